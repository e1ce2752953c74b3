"""What a Delta table's log says of it, and what about it a backfill could not keep its promises on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import sqlglot
from deltalake import DeltaTable
from sqlglot import exp
from sqlglot.errors import SqlglotError

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.warehouses.base import Column, Constraint, ConstraintKind, Target
from airflow_backfill_provider.warehouses.clocks import Reading
from airflow_backfill_provider.warehouses.delta.dialect import DIALECT
from airflow_backfill_provider.warehouses.delta.features import obstacles
from airflow_backfill_provider.warehouses.delta.root import Root
from airflow_backfill_provider.warehouses.delta.session import DeltaSession
from airflow_backfill_provider.warehouses.relational.tables import Table
from airflow_backfill_provider.warehouses.sql import quote

_CHECK = "delta.constraints."


def find_table(root: Root, session: DeltaSession, name: str) -> Table:
    """The table of that name with its columns, at the version that the session reads."""
    place = root.locate(name)
    pinned = session.pin(place)
    nullable = {field.name: field.nullable for field in pinned.table.schema().fields}
    return Table(
        place,
        tuple(
            Column(column, data_type, nullable=nullable[column])
            for column, data_type, *_ in session.run(f"DESCRIBE SELECT * FROM {pinned.sql}")
        ),
    )


def describe(
    root: Root, session: DeltaSession, name: str, partition_by: str, key: Sequence[str], reading: Reading
) -> Target:
    """The published table as a target, its name and its columns' in the spelling of its folder and its log.

    :raises SpecError: as :meth:`Warehouse.describe`, or it has a feature that cannot be written.
    """
    place = root.locate(name)
    refuse_unwritable(root.open(root.uri(place.schema, place.name)), str(place))
    table = find_table(root, session, name)
    keys = tuple(table.stored(column).name for column in key)
    return Target(
        name if place.has_odd_name else str(place),
        table.stored(partition_by).name,
        table.clock(DIALECT, partition_by, reading),
        keys,
        table.columns,
        tuple(_constraints(session.pin(place).table)),
    )


def refuse_unwritable(table: DeltaTable, name: str) -> None:
    """:raises SpecError: naming each feature that delta-rs cannot write."""
    if found := list(obstacles(table)):
        raise SpecError(
            f"{name} has {', '.join(found)}, which delta-rs cannot write without breaking a promise. Nothing was written. "
            "Let the engine that made it publish the backfill, or take the feature off the table."
        )


def _constraints(table: DeltaTable) -> Iterator[Constraint]:
    for field in table.schema().fields:
        if not field.nullable:
            yield Constraint(ConstraintKind.NOT_NULL, field.name, f"NOT NULL({quote(field.name)})", (field.name,))
    for key, text in sorted(table.metadata().configuration.items()):
        if key.startswith(_CHECK):
            name = key.removeprefix(_CHECK)
            expression = _expression(name, text)
            columns = dict.fromkeys(column.name for column in expression.find_all(exp.Column))
            yield Constraint(
                ConstraintKind.CHECK, name, f"CHECK({text})", tuple(columns), expression.sql(dialect=DIALECT.name)
            )


def _expression(name: str, text: str) -> exp.Expr:
    """The constraint, which is written as Spark writes SQL.

    :raises SpecError: it cannot be understood, so staged rows could not be checked against it.
    """
    try:
        return sqlglot.parse_one(text, dialect="spark")
    except SqlglotError as error:
        raise SpecError(f"The constraint {name} ({text}) cannot be read: {str(error).splitlines()[0]}.") from error
