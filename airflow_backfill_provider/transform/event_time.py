"""A dbt model's compiled SQL held to one partition, as a SQL template: dbt itself writes the bounds only when it runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import sqlglot
from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.transform import reads
from airflow_backfill_provider.transform.parse import same_parts

_EPHEMERAL = "__dbt__cte__"
"""How dbt calls the WITH query of an ephemeral model. What that reads is not bounded: it is no microbatch model itself."""
_START, _END = "\0start\0", "\0end\0"
_WRITTEN = "strftime('%Y-%m-%d %H:%M:%S+00:00')"
"""As Python, and so dbt, writes an aware instant."""


@dataclass(frozen=True)
class EventTime:
    """A table that the model reads, as SQL, and its column of time, as SQL."""

    relation: str
    column: str


@dataclass(frozen=True)
class Bounded:
    """The template, and the tables whose reads are bounded in it."""

    template: str
    relations: tuple[str, ...]


def held_to_batch(sql: str, parents: Sequence[EventTime], dialect: str, origin: str) -> Bounded:
    """Each read of a parent as ``(select * from parent where column >= start and column < end)``, which is what a run of a
    microbatch model gives for its batch. All else in the text stays as it is.

    :raises TransformRefused: it is not one statement, or reads a parent in a way that cannot be bounded.
    """
    tree = _parsed(sql, dialect, origin)
    columns = [(exp.to_table(parent.relation, dialect=dialect), parent.column) for parent in parents]
    bounds: list[tuple[exp.Table, str]] = []
    for table in tree.find_all(exp.Table):
        column = next((column for parent, column in columns if same_parts(table, parent, dialect)), None)
        if column is None or _is_of_an_ephemeral(table):
            continue
        if surplus := reads.more_than_a_name(table):
            raise TransformRefused(
                f"{origin} reads {table.sql(dialect)}: a read with {', '.join(surplus)} cannot be bounded to a batch."
            )
        bounds.append((table, _between(column)))
    tokens = Dialect.get_or_raise(dialect).tokenize(sql)
    places = reads.find([table for table, _ in bounds], tokens)
    by_name = {
        sql[tokens[place.first].start : tokens[place.last].end + 1]: predicate
        for place, (_, predicate) in zip(places, bounds, strict=True)
    }
    bounded = reads.replaced(sql, tokens, places, lambda name: f"(select * from {name} where {by_name[name]})")  # noqa: S608
    _prove(bounded, tree, bounds, dialect, origin)
    return Bounded(_template(bounded), tuple(by_name))


def cut_to_window(sql: str, column: str, dialect: str, origin: str) -> Bounded:
    """The rows of the whole result whose ``column`` lies in the partition: what a full build of the model has there.

    :raises TransformRefused: it is not one statement.
    """
    _parsed(sql, dialect, origin)
    name = exp.to_identifier(column, quoted=True).sql(dialect=dialect)
    text = sql.strip().rstrip(";")
    return Bounded(_template(f"select * from (\n{text}\n) as built where {_between(name)}"), ())  # noqa: S608


def _between(column: str) -> str:
    return f"{column} >= '{_START}' and {column} < '{_END}'"


def _template(sql: str) -> str:
    """The text, in which nothing but the two bounds is Jinja's."""
    plain = re.sub(r"\{(?=[{%#])", "{{ '{' }}", sql)
    for mark, name in ((_START, "data_interval_start"), (_END, "data_interval_end")):
        plain = plain.replace(mark, f"{{{{ {name}.{_WRITTEN} }}}}")
    return plain


def _parsed(sql: str, dialect: str, origin: str) -> exp.Expr:
    try:
        statements = [one for one in sqlglot.parse(sql, dialect=dialect) if one and not isinstance(one, exp.Semicolon)]
    except SqlglotError as error:
        first = str(error).splitlines()[0].rstrip(".")
        raise TransformRefused(f"{origin} is not one statement of {dialect} SQL: {first}.") from error
    if len(statements) != 1:
        raise TransformRefused(f"{origin} compiles to {len(statements)} statements; it must be one SELECT.")
    return statements[0]


def _is_of_an_ephemeral(table: exp.Table) -> bool:
    around = table.parent
    while around is not None:
        if isinstance(around, exp.CTE) and around.alias.lower().startswith(_EPHEMERAL):
            return True
        around = around.parent
    return False


def _prove(bounded: str, tree: exp.Expr, bounds: Sequence[tuple[exp.Table, str]], dialect: str, origin: str) -> None:
    """:raises TransformRefused: something but the reads was changed, or a column of time is no column."""
    some = str(datetime(2001, 1, 1, tzinfo=UTC))

    def at_some_time(text: str) -> str:
        return text.replace(_START, some).replace(_END, some)

    try:
        wanted = reads.bounded_tree(tree, [(table, at_some_time(text)) for table, text in bounds], dialect)
        same = sqlglot.parse_one(at_some_time(bounded), dialect=dialect) == wanted
    except SqlglotError:
        same = False
    if not same:
        columns = sorted({text.partition(" >= ")[0] for _, text in bounds})
        raise TransformRefused(
            f"{origin} cannot be bounded by {', '.join(columns)}: event_time must name a column of what it reads."
        )
