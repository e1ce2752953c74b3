"""The SELECT inside the scheduled pipeline's statement: its write is taken off, nothing else changes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.transform.cut import Cut, CutCache, last_token, renamed, shape_of

_ACCEPTED = "one SELECT, one INSERT INTO {target} SELECT …, or one CREATE [OR REPLACE] TABLE {target} AS SELECT …"

_WRITES = (
    exp.DML,
    exp.DDL,
    exp.Into,
    exp.Lock,
    exp.Command,
    exp.Copy,
    exp.Drop,
    exp.Alter,
    exp.TruncateTable,
    exp.Attach,
    exp.Detach,
    exp.Pragma,
    exp.Set,
    exp.Use,
    exp.Transaction,
    exp.Commit,
    exp.Rollback,
)
_WRITING_FUNCTIONS = frozenset(
    "nextval setval setseed set_config checkpoint force_checkpoint write_log postgres_execute mysql_execute "
    "postgres_attach sqlite_attach dblink dblink_exec lo_create lo_from_bytea lo_import lo_export lo_put "
    "lo_unlink pg_notify pg_advisory_lock pg_advisory_xact_lock pg_try_advisory_lock pg_cancel_backend "
    "pg_terminate_backend pg_reload_conf pg_rotate_logfile pg_logical_emit_message pg_switch_wal".split()
)
_CUTS = CutCache()
_QUERY_STARTS = (TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.L_PAREN)


@dataclass(frozen=True)
class Query:
    """What the statement selects, and how it would have been written."""

    text: str
    tree: exp.Expr
    by_position: bool = False
    """The statement was an INSERT without column names: the engine would have matched columns by position."""
    cut: Cut | None = None
    """Where the text stands in the statement; ``None`` when it had to be written anew."""


def to_select(sql: str, target: str, dialect: str, origin: str = "The SQL") -> str:
    """The text of the rows that ``sql`` produces for ``target``, with any write to it removed.

    The user's own text is kept, character by character, where it can be cut out; column names of an INSERT become the
    names of the result.

    :raises TransformRefused: when ``sql`` is anything but one SELECT, or one INSERT … SELECT or CREATE TABLE … AS of
        exactly ``target``, or calls something that writes.
    """
    try:
        tokens = Dialect.get_or_raise(dialect).tokenize(sql)
    except SqlglotError as error:
        raise TransformRefused(f"{origin} is not one statement of {dialect} SQL: {_first_line(error)}.") from error
    # Parsing takes some 10 ms; the partitions of a backfill differ in their literals only.
    shape = shape_of(tokens)
    cut = _CUTS.find(target, dialect, shape)
    if cut is None:
        query = parse(sql, target, dialect, origin)
        if query.cut is None:
            return query.text
        cut = query.cut
        _CUTS.keep(target, dialect, shape, cut)
    return cut.text(sql, tokens)


def parse(sql: str, target: str, dialect: str, origin: str = "The SQL") -> Query:
    """As :func:`to_select`, with the parsed tree."""
    accepted = _ACCEPTED.format(target=target)
    try:
        statements = [one for one in sqlglot.parse(sql, dialect=dialect) if one and not isinstance(one, exp.Semicolon)]
        tokens = Dialect.get_or_raise(dialect).tokenize(sql)
    except SqlglotError as error:
        raise TransformRefused(f"{origin} is not one statement of {dialect} SQL: {_first_line(error)}.") from error
    if len(statements) != 1:
        found = "no statement" if not statements else f"{len(statements)} statements"
        raise TransformRefused(f"{origin} holds {found}; a backfill runs {accepted}.")
    statement: exp.Expr = statements[0]
    refusal = f"{origin} is {{found}}, which a backfill does not run; it runs {accepted}."
    match statement:
        case exp.Insert():
            query = _redirect(statement, _of_insert(statement, refusal), target, dialect, origin)
        case exp.Create():
            query = _redirect(statement, _of_create(statement, refusal), target, dialect, origin)
        case _ if _is_query(statement):
            query = statement
        case _:
            raise TransformRefused(refusal.format(found=_called(statement)))
    if not _is_query(query):
        raise TransformRefused(refusal.format(found=f"{_called(statement)} of {_called(query)}"))
    _refuse_writes(query, origin)
    columns = _columns(statement, query, dialect, origin)
    by_position = isinstance(statement, exp.Insert) and not columns and not statement.args.get("by_name")
    cut = Cut(0, 0, last_token(tokens)) if query is statement else _cut(sql, tokens, query, dialect)
    if cut is None:
        # sqlglot's own writing, which may spell a function in another way than the file does.
        return Query(renamed(query.sql(dialect=dialect), columns), query, by_position)
    cut = replace(cut, columns=columns)
    return Query(cut.text(sql, tokens), query, by_position, cut)


def require_query(sql: str, dialect: str, origin: str) -> None:
    """Refuse anything but one SELECT that only reads.

    :raises TransformRefused: naming what was found.
    """
    try:
        statements = [one for one in sqlglot.parse(sql, dialect=dialect) if one and not isinstance(one, exp.Semicolon)]
    except SqlglotError as error:
        raise TransformRefused(f"{origin} is not one statement of {dialect} SQL: {_first_line(error)}.") from error
    if len(statements) != 1 or not _is_query(statements[0]):
        found = _called(statements[0]) if len(statements) == 1 else f"{len(statements)} statements"
        raise TransformRefused(f"{origin} is {found}; it must be one SELECT.")
    _refuse_writes(statements[0], origin)


def same_table(table: exp.Table, target: str, dialect: str) -> bool:
    """Whether a table named in SQL is the target, under the dialect's rules for case; every part must be there."""
    return _parts(table, dialect) == _target_parts(target, dialect)


def same_parts(table: exp.Table, other: exp.Table, dialect: str) -> bool:
    """Whether two names in SQL are one, part by part, under the dialect's rules for case."""
    return _parts(table, dialect) == _parts(other, dialect)


def names_end_alike(table: exp.Table, target: str, dialect: str) -> bool:
    """Whether the two names are the same as far as both have parts, so that they may be one table."""
    mine, theirs = _parts(table, dialect), _target_parts(target, dialect)
    shared = min(len(mine), len(theirs))
    return shared > 0 and mine[-shared:] == theirs[-shared:]


def _is_query(node: exp.Expr) -> bool:
    return isinstance(node, exp.Select | exp.SetOperation) or (
        isinstance(node, exp.Subquery) and isinstance(node.unnest(), exp.Select | exp.SetOperation)
    )


def _of_insert(statement: exp.Insert, refusal: str) -> exp.Expr:
    allowed = {"this", "expression", "by_name", "with_"}
    if extra := [name for name, value in statement.args.items() if value and name not in allowed]:
        raise TransformRefused(refusal.format(found=f"an INSERT with {', '.join(extra).upper()}"))
    query: exp.Expr = statement.expression
    return query


def _of_create(statement: exp.Create, refusal: str) -> exp.Expr:
    kind = str(statement.args.get("kind"))
    properties = statement.args.get("properties")
    for unfit in properties.expressions if properties else ():
        if isinstance(unfit, exp.TemporaryProperty | exp.WithDataProperty):
            raise TransformRefused(refusal.format(found=f"a CREATE {kind} that is {unfit.sql()}"))
    if kind != "TABLE" or statement.args.get("exists") or statement.args.get("clone"):
        suffix = " IF NOT EXISTS" if statement.args.get("exists") else ""
        raise TransformRefused(refusal.format(found=f"CREATE {kind}{suffix}"))
    if not statement.expression:
        raise TransformRefused(refusal.format(found="a CREATE TABLE without AS SELECT"))
    query: exp.Expr = statement.expression
    return query


def _redirect(statement: exp.Expr, query: exp.Expr, target: str, dialect: str, origin: str) -> exp.Expr:
    written = statement.this.this if isinstance(statement.this, exp.Schema) else statement.this
    if not isinstance(written, exp.Table) or not same_table(written, target, dialect):
        raise TransformRefused(
            f"{origin} writes to {written.sql(dialect)}, but the spec's target is {target}. A backfill redirects "
            "writes to its target only, and takes both names literally: write the same name, with every part, in both."
        )
    if with_ := statement.args.get("with_"):
        # WITH … INSERT INTO t SELECT …: the names belong to the query once the INSERT is gone.
        if query.args.get("with_"):
            raise TransformRefused(f"{origin} has a WITH before its INSERT and another one after it; keep one.")
        query = query.copy()
        query.set("with_", with_.copy())
    return query


def _refuse_writes(query: exp.Expr, origin: str) -> None:
    for node in query.walk():
        if isinstance(node, _WRITES):
            raise TransformRefused(f"{origin} holds {_called(node)} inside its SELECT; it may only read.")
        if isinstance(node, exp.Func) and (name := function_name(node)) in _WRITING_FUNCTIONS:
            raise TransformRefused(
                f"{origin} calls {name}(), which changes something outside its result; it may only read."
            )


def function_name(node: exp.Func) -> str:
    """The function's name in lower case, as the dialect-neutral tree knows it."""
    return (node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower()


def _columns(statement: exp.Expr, query: exp.Expr, dialect: str, origin: str) -> str:
    """The column names that the statement gives the query's result, in its order; empty when it gives none."""
    schema = statement.this if isinstance(statement, exp.Insert | exp.Create) else None
    names = list(schema.expressions) if isinstance(schema, exp.Schema) else []
    if not names:
        return ""
    if not all(isinstance(name, exp.Identifier) for name in names):
        raise TransformRefused(f"{origin} defines column types; write the column names alone, or none.")
    selects = query.selects if isinstance(query, exp.Query) else []
    if any(select.is_star or isinstance(select, exp.Columns) for select in selects):
        raise TransformRefused(f"{origin} matches named columns to a *, by position; name the columns in the SELECT.")
    if len(selects) != len(names):
        raise TransformRefused(
            f"{origin} names {len(names)} columns for a SELECT of {len(selects)}; name as many as it selects."
        )
    return ", ".join(name.sql(dialect) for name in names)


def _cut(sql: str, tokens: list[Token], query: exp.Expr, dialect: str) -> Cut | None:
    """Where the query of a writing statement stands, proven by parsing what is cut out."""
    write = next(i for i, token in enumerate(tokens) if token.token_type in (TokenType.INSERT, TokenType.CREATE))
    last = last_token(tokens)
    for first in range(write + 1, last + 1):
        if tokens[first].token_type in _QUERY_STARTS:
            cut = Cut(write, first, last)
            try:
                if sqlglot.parse_one(cut.text(sql, tokens), dialect=dialect) == query:
                    return cut
            except SqlglotError:
                continue
    return None


def _parts(table: exp.Table, dialect: str) -> list[str]:
    rules = Dialect.get_or_raise(dialect)
    return [rules.normalize_identifier(part.copy()).name for part in table.parts if isinstance(part, exp.Identifier)]


def _target_parts(target: str, dialect: str) -> list[str]:
    rules = Dialect.get_or_raise(dialect)
    return [rules.normalize_identifier(exp.to_identifier(part, quoted=True)).name for part in target.split(".")]


def _called(node: exp.Expr) -> str:
    return str(node.this).upper() if isinstance(node, exp.Command) else type(node).__name__.upper()


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0].rstrip(".")
