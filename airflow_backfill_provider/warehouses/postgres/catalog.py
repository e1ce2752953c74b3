"""What PostgreSQL's catalog says of a table, and what about it a backfill could not keep its promises on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import psycopg

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.warehouses.base import Column, Constraint, ConstraintKind, Target
from airflow_backfill_provider.warehouses.clocks import Reading
from airflow_backfill_provider.warehouses.postgres.dialect import DIALECT
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.relational.tables import Place, Table, no_table
from airflow_backfill_provider.warehouses.sql import quote, quote_path, text_literal

_TABLES = (
    "FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace "
    "WHERE c.relkind IN ('r', 'p', 'f', 'v', 'm') AND c.relpersistence <> 't' "
    "AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_toast'"
)
_PLACE = "SELECT '', n.nspname, c.relname, c.relkind IN ('v', 'm')"
_NAMED_AT_MOST = 1000


def locate(session: Session, name: str) -> Place:
    """The table or view of that name: ``schema.name``, or a name alone that the search path finds.

    The spelling counts first; a name that no table has just so may be in any case. With three parts the first is the
    database. A name with a dot in it is found too.

    :raises SpecError: there is none, or there are several; the message names what exists.
    """
    spelled = "n.nspname || '.' || c.relname"
    matches = [
        f"{text_literal(name)} IN ({spelled}, current_database() || '.' || {spelled}) "
        f"OR pg_table_is_visible(c.oid) AND c.relname = {text_literal(name)}",
        f"lower({text_literal(name)}) IN (lower({spelled}), lower(current_database() || '.' || {spelled})) "
        f"OR pg_table_is_visible(c.oid) AND lower(c.relname) = lower({text_literal(name)})",
    ]
    for match in matches:
        found = [Place(*row) for row in session.run(f"{_PLACE} {_TABLES} AND ({match})")]
        if len(found) > 1:
            raise SpecError(
                f"{name!r} may be any of {', '.join(map(str, found))}; write it in the spelling of one of them."
            )
        if found:
            return found[0]
    raise no_table(
        name, [Place(*row) for row in session.run(f"{_PLACE} {_TABLES} ORDER BY 2, 3 LIMIT {_NAMED_AT_MOST}")]
    )


def find_table(session: Session, name: str) -> Table:
    """The table or view of that name with its columns; see :func:`locate`."""
    place = locate(session, name)
    return Table(place, tuple(_columns(session, place)))


def describe(session: Session, name: str, partition_by: str, key: Sequence[str], reading: Reading) -> Target:
    """The published table as a target, its name and its columns' in the catalog's spelling.

    :raises SpecError: as :meth:`Warehouse.describe`, or a backfill could not keep a promise on this table.
    """
    table = find_table(session, name)
    place = table.place
    if place.is_view:
        raise SpecError(
            f"{name} is a view: it has no rows of its own to replace. Name the table that it reads, or the one that "
            "a pipeline writes."
        )
    if found := obstacles(session, place):
        raise SpecError(f"{place} cannot be the target of a backfill: {'; '.join(found)}.")
    partition_column = table.stored(partition_by)
    keys = tuple(table.stored(column) for column in key)
    clock = table.clock(DIALECT, partition_by, reading)
    columns = tuple(_with_hash(session, table))
    for column in columns:
        if column.name in (partition_column.name, *(one.name for one in keys)) and not column.hashable:
            raise SpecError(f"{place}.{column.name} ({column.type}) cannot be hashed, so rows cannot be matched by it.")
    return Target(
        name if place.has_odd_name else str(place),
        partition_column.name,
        clock,
        tuple(column.name for column in keys),
        columns,
        tuple(_constraints(session, place)),
    )


def aliases(session: Session, table: str, names: Sequence[str]) -> tuple[str, ...]:
    """See :meth:`Warehouse.aliases`; by what the catalog says depends on the table, which no spelling of a view hides."""
    found = {}
    for name in names:
        with suppress(SpecError):  # what is no table of this database, such as a function's rows
            found[name] = locate(session, name)
    if not found:
        return ()
    own = f"{_oid(locate(session, table))}::pg_catalog.oid"
    reading = {
        oid
        for (oid,) in session.run(
            f"WITH RECURSIVE reading (oid) AS (SELECT {own} UNION SELECT next.oid FROM reading JOIN ("
            "SELECT d.refobjid AS read, w.ev_class AS oid FROM pg_catalog.pg_depend AS d "
            "JOIN pg_catalog.pg_rewrite AS w ON w.oid = d.objid "
            "WHERE d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.refclassid = 'pg_catalog.pg_class'::regclass "
            "UNION ALL SELECT inhparent, inhrelid FROM pg_catalog.pg_inherits"
            f") AS next ON next.read = reading.oid) SELECT oid::bigint FROM reading WHERE oid <> {own}"
        )
    }
    oids = {name: session.run(f"SELECT ({_oid(place)})::pg_catalog.oid::bigint")[0][0] for name, place in found.items()}
    return tuple(name for name in names if oids.get(name) in reading)


def type_under(session: Session, domain: str) -> str | None:
    """The type that a domain narrows down, through every domain between; None for what is no domain."""
    try:
        with session.attempt():
            found = session.run(
                "WITH RECURSIVE narrowed AS ("
                f"SELECT typtype, typbasetype, typtypmod FROM pg_catalog.pg_type WHERE oid = to_regtype({text_literal(domain)}) "
                "UNION ALL SELECT t.typtype, t.typbasetype, t.typtypmod FROM pg_catalog.pg_type AS t "
                "JOIN narrowed AS n ON t.oid = n.typbasetype) "
                "SELECT format_type(typbasetype, typtypmod) FROM narrowed AS n WHERE typtype = 'd' AND NOT EXISTS "
                "(SELECT FROM pg_catalog.pg_type AS t WHERE t.oid = n.typbasetype AND t.typtype = 'd')"
            )
    except psycopg.ProgrammingError:
        return None
    return str(found[0][0]) if found else None


def _columns(session: Session, place: Place) -> Iterator[Column]:
    for name, spelled, nullable, generated, numbered in session.run(
        "SELECT attname, format_type(atttypid, atttypmod), NOT attnotnull, attgenerated <> '', attidentity = 'a' "
        f"FROM pg_catalog.pg_attribute WHERE attrelid = {_oid(place)} AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
    ):
        yield Column(name, spelled, nullable=nullable, generated=generated, numbered=numbered)


def _with_hash(session: Session, table: Table) -> Iterator[Column]:
    """The columns, each with whether PostgreSQL can hash its type: by its own answer, not by a list of types."""
    every = [column.name for column in table.columns]
    unhashable = (
        set()
        if _hashes(session, table.place, every)
        else {one for one in every if not _hashes(session, table.place, [one])}
    )
    for column in table.columns:
        yield replace(column, hashable=column.name not in unhashable)


def _hashes(session: Session, place: Place, names: Sequence[str]) -> bool:
    # A NULL of the column itself: a cast of NULL to a domain that forbids it would be an error of another kind.
    row = ", ".join(f"(SELECT r.{quote(name)} FROM {place.sql} AS r WHERE FALSE)" for name in names)
    try:
        with session.attempt():
            session.run(f"SELECT hash_record_extended(ROW({row}), 0)")
    except psycopg.errors.UndefinedFunction:
        return False
    return True


def obstacles(session: Session, place: Place) -> list[str]:
    """What would make a publish do more, or less, than replace rows; each with what to do about it."""
    return list(_obstacles(session, place))


def _obstacles(session: Session, place: Place) -> Iterator[str]:
    oid = _oid(place)
    tree = f"(SELECT {oid} AS relid UNION SELECT relid FROM pg_partition_tree({oid}))"
    ((kind, hidden, children),) = session.run(
        f"SELECT c.relkind, row_security_active(c.oid), (SELECT count(*) FROM pg_catalog.pg_inherits AS i "
        f"WHERE i.inhparent = c.oid AND c.relkind = 'r') FROM pg_catalog.pg_class AS c WHERE c.oid = {oid}"
    )
    if kind == "f":
        yield "it is a foreign table, whose rows another server commits"
    elif foreign := _names(
        session, f"SELECT oid::regclass::text FROM pg_catalog.pg_class WHERE relkind = 'f' AND oid IN {tree}"
    ):
        yield f"its partitions {foreign} are foreign tables, whose rows another server commits"
    if children:
        yield f"{children} tables inherit from it, and their rows would be read as its own; name one of them"
    if hidden:
        yield "row-level security hides rows from this role; use a role with BYPASSRLS, or the owner"
    if loose := _names(
        session,
        "SELECT DISTINCT quote_ident(a.attname) FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_collation AS l "
        f"ON l.oid = a.attcollation WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped "
        "AND NOT l.collisdeterministic",
    ):
        yield f"its columns {loose} have a collation to which different texts are equal, so that a change could go unseen"
    fires = "IN ('O', 'A')"
    if triggers := _names(
        session,
        "SELECT DISTINCT quote_ident(tgname) FROM pg_catalog.pg_trigger "
        f"WHERE tgrelid IN {tree} AND NOT tgisinternal AND tgenabled {fires}",
    ):
        yield f"its triggers {triggers} would fire for every row of the range; disable them for the backfill"
    if rules := _names(
        session,
        f"SELECT quote_ident(rulename) FROM pg_catalog.pg_rewrite WHERE ev_class = {oid} AND ev_enabled {fires}",
    ):
        yield f"its rules {rules} rewrite what a publish does; drop them"
    for name, publication in session.run(
        "SELECT DISTINCT c.oid::regclass::text, quote_ident(p.pubname) FROM pg_catalog.pg_publication AS p "
        "JOIN pg_catalog.pg_publication_tables AS t ON t.pubname = p.pubname "
        "JOIN pg_catalog.pg_namespace AS n ON n.nspname = t.schemaname "
        "JOIN pg_catalog.pg_class AS s ON s.relnamespace = n.oid AND s.relname = t.tablename "
        f"JOIN pg_catalog.pg_class AS c ON c.relkind = 'r' AND c.oid IN {tree} AND (c.oid = s.oid OR s.oid IN "
        "(SELECT relid FROM pg_partition_ancestors(c.oid))) WHERE (p.pubdelete OR p.pubupdate) AND (c.relreplident = 'n' "
        "OR c.relreplident = 'd' AND NOT EXISTS (SELECT FROM pg_catalog.pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary)) "
        "ORDER BY 1"
    ):
        yield (
            f"publication {publication} sends deletes of {name}, which has no replica identity, so PostgreSQL lets nobody delete its "
            f"rows; ALTER TABLE {name} REPLICA IDENTITY FULL, or give it a primary key"
        )
    # A key that refers to a partitioned table is there once more for each partition; it counts once.
    for name, referrer, action, deferrable in session.run(
        "SELECT quote_ident(conname), conrelid::regclass::text, confdeltype, condeferrable FROM pg_catalog.pg_constraint AS k "
        f"WHERE contype = 'f' AND confrelid IN {tree} AND NOT EXISTS (SELECT FROM pg_catalog.pg_constraint AS p "
        f"WHERE p.oid = k.conparentid AND p.confrelid IN {tree}) ORDER BY 1"
    ):
        if action in _SPREADING:
            yield f"deleting its rows would {_SPREADING[action]} rows of {referrer} (foreign key {name})"
        elif action == "r":
            yield f"{referrer} restricts deleting its rows (foreign key {name}), and no such check can wait; make it NO ACTION DEFERRABLE"
        elif not deferrable:
            yield (
                f"{referrer} refers to its rows (foreign key {name}), so none can be replaced; "
                f"ALTER TABLE {referrer} ALTER CONSTRAINT {name} DEFERRABLE"
            )


def is_unique(session: Session, place: Place, names: Sequence[str]) -> bool:
    """Whether an index makes sure that no two rows of the table have the same values, none of them NULL, in these columns."""
    own = ", ".join(map(text_literal, names))
    ((indexes,),) = session.run(
        "SELECT count(*) FROM pg_catalog.pg_index AS i "
        f"WHERE i.indrelid = {_oid(place)} AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL "
        "AND NOT EXISTS (SELECT FROM unnest(i.indkey[0:i.indnkeyatts - 1]) AS k (n) JOIN pg_catalog.pg_attribute AS a "
        f"ON a.attrelid = i.indrelid AND a.attnum = k.n WHERE a.attname NOT IN ({own}))"
    )
    return bool(indexes)


def _names(session: Session, sql: str) -> str:
    return ", ".join(sorted(name for (name,) in session.run(sql)))


_SPREADING = {"c": "delete", "n": "empty columns of", "d": "reset columns of"}


def _constraints(session: Session, place: Place) -> Iterator[Constraint]:
    oid = _oid(place)
    for name, text, columns, expression in session.run(
        "SELECT conname, pg_get_constraintdef(oid), "
        f"ARRAY(SELECT attname::text FROM pg_catalog.pg_attribute WHERE attrelid = conrelid AND attnum = ANY (conkey)), "
        f"pg_get_expr(conbin, conrelid) FROM pg_catalog.pg_constraint WHERE contype = 'c' AND conrelid = {oid} ORDER BY conname"
    ):
        yield Constraint(ConstraintKind.CHECK, name, text, tuple(columns), expression)
    for (name,) in session.run(
        f"SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped "
        "AND attnotnull AND attgenerated = '' ORDER BY attnum"
    ):
        yield Constraint(ConstraintKind.NOT_NULL, f"{name}_not_null", f"NOT NULL({quote(name)})", (name,))
    # An index over an expression is left to PostgreSQL, which refuses the publish when a row breaks it.
    for name, columns, where, nulls_differ in session.run(
        "SELECT c.relname, ARRAY(SELECT a.attname::text FROM unnest(i.indkey[0:i.indnkeyatts - 1]) WITH ORDINALITY AS k (n, o) "
        "JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.n ORDER BY k.o), "
        "coalesce(pg_get_expr(i.indpred, i.indrelid), ''), NOT i.indnullsnotdistinct "
        "FROM pg_catalog.pg_index AS i JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid "
        f"WHERE i.indrelid = {oid} AND i.indisunique AND i.indexprs IS NULL ORDER BY c.relname"
    ):
        present = [f"{quote(column)} IS NOT NULL" for column in columns] if nulls_differ else []
        text = f"UNIQUE({', '.join(map(quote, columns))}){f' WHERE {where}' if where else ''}"
        yield Constraint(
            ConstraintKind.UNIQUE,
            name,
            text,
            tuple(columns),
            where=" AND ".join([*([where] if where else []), *present]),
        )


def _oid(place: Place) -> str:
    return f"{text_literal(quote_path(place.schema, place.name))}::regclass"


def family(session: Session, place: Place) -> list[str]:
    """The table and every partition of it, as SQL."""
    found = session.run(f"SELECT relid::regclass::text FROM pg_partition_tree({text_literal(place.sql)}::regclass)")
    return list(dict.fromkeys([place.sql, *(name for (name,) in found)]))
