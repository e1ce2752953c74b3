"""What the catalog says of a table, and what about it a backfill could not keep its promises on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import sqlglot
from databricks.sql.exc import Error
from sqlglot import TokenType, exp
from sqlglot.errors import SqlglotError

from airflow_backfill_provider.errors import SpecError, TransformRefused, WarehouseError
from airflow_backfill_provider.warehouses.base import Column, Constraint, ConstraintKind, Target
from airflow_backfill_provider.warehouses.clocks import Reading
from airflow_backfill_provider.warehouses.databricks.dialect import DIALECT, SPELLING
from airflow_backfill_provider.warehouses.databricks.errors import is_about_the_statement, is_absent, message
from airflow_backfill_provider.warehouses.databricks.session import Session
from airflow_backfill_provider.warehouses.databricks.types import canonical, is_hashable
from airflow_backfill_provider.warehouses.relational.tables import Place, Table, no_table

_SCHEMAS_LISTED = 3
_CHECK = "delta.constraints."
_HEADING = "#"
_WRITTEN_BY_PIPELINES = {
    "STREAMING_TABLE": "a streaming table",
    "MATERIALIZED_VIEW": "a materialized view",
}
_PIPELINE_WAY = (
    "A pipeline owns its rows: whatever else writes them is lost at its next full refresh. Backfill the table that the "
    "pipeline reads and refresh it, or add a flow to the pipeline that runs once."
)
_WRITABLE = ("MANAGED", "EXTERNAL")
_CONVERTIBLE = ("parquet", "iceberg")
_VEILS = {"row filter": "a row filter", "column mask": "column masks"}
"""How ``DESCRIBE TABLE EXTENDED`` begins the row or the heading of each. No page of Databricks' documentation names them."""
_IDENTITY, _IDENTITY_VERSION = "delta.feature.identityColumns", "6"
_NUMBERED = ["GENERATED", "ALWAYS", "AS", "IDENTITY"]
_UNWRITABLE = {
    "delta.appendOnly": "delta.appendOnly, so that no row can be deleted",
}


@dataclass(frozen=True)
class Described:
    """What ``DESCRIBE TABLE EXTENDED`` says of a table or view."""

    types: Mapping[str, str]
    """Of each column, in the table's order."""
    facts: Mapping[str, str]
    """Of the table itself: ``Catalog``, ``Database``, ``Table``, ``Type``, ``Provider``, …"""
    veils: tuple[str, ...] = ()
    """What may keep rows or values of it from a login."""

    @property
    def kind(self) -> str:
        """``MANAGED``, ``EXTERNAL``, ``VIEW``, ``MATERIALIZED_VIEW`` or ``STREAMING_TABLE``."""
        return self.facts.get("Type", "").upper()

    @property
    def place(self) -> Place:
        """Where it is, in the catalog's own spelling."""
        facts = self.facts
        return Place(facts["Catalog"], facts["Database"], facts["Table"], "VIEW" in self.kind, SPELLING)

    @property
    def is_versioned(self) -> bool:
        """Whether it is a Delta table, whose earlier versions can be read."""
        return "VIEW" not in self.kind and self.facts.get("Provider", "delta").lower() == "delta"

    def dotted(self, name: str) -> str:
        """Its name in the catalog's spelling, with as many parts as it was asked for by."""
        place = self.place
        return f"{place.database}.{place}" if name.count(".") == 2 else str(place)


def parse_description(rows: Sequence[tuple[str, str, str | None]]) -> Described:
    """Take the rows of ``DESCRIBE TABLE EXTENDED`` apart: columns first, then sections under headings."""
    types: dict[str, str] = {}
    facts: dict[str, str] = {}
    veils: list[str] = []
    heading = ""
    for name, value, _ in rows:
        if heading or name.startswith(_HEADING):
            plain = name.lstrip(f"{_HEADING} ").casefold()
            veils += [veil for begins, veil in _VEILS.items() if plain.startswith(begins)]
        if name.startswith(_HEADING):
            heading = name
        elif not heading and name:
            types[name] = canonical(value)
        elif "Detailed" in heading or heading.startswith("# View"):
            facts[name] = value
    return Described(types, facts, tuple(dict.fromkeys(veils)))


def describe_table(session: Session, name: str) -> Described:
    """The table or view of the dotted name ``schema.name``, or ``catalog.schema.name``.

    :raises SpecError: there is none; the message names what exists.
    """
    parts = name.split(".")
    if not (2 <= len(parts) <= 3 and all(parts) and "\x00" not in name):
        raise no_table(name, _places(session, parts))
    try:
        rows = session.run(f"DESCRIBE TABLE EXTENDED {SPELLING.quote_path(*parts)}")
    except Error as exc:
        if not is_absent(exc):
            raise
        raise no_table(name, _places(session, parts)) from exc
    return parse_description([(str(row[0]), str(row[1]), row[2]) for row in rows])


def _places(session: Session, parts: Sequence[str]) -> list[Place]:
    """Tables that could be meant: those of the schemas that are named alike."""
    catalog = [parts[0]] if len(parts) == 3 and all(parts) else []
    wanted = parts[-2] if len(parts) > 1 else ""
    try:
        there = [
            row[0] for row in session.run("SHOW SCHEMAS" + "".join(f" IN {SPELLING.quote(one)}" for one in catalog))
        ]
    except Error:
        return []
    near = get_close_matches(wanted, there, n=_SCHEMAS_LISTED, cutoff=0.5) or there[:_SCHEMAS_LISTED]
    return [
        Place("", schema, row[1], False, SPELLING)
        for schema in near
        for row in session.run(f"SHOW TABLES IN {SPELLING.quote_path(*catalog, schema)}")
        if row[0] == schema
    ]


def find_table(session: Session, name: str) -> Table:
    """The table or view of that name with its columns."""
    return _table(session, describe_table(session, name))


def _table(session: Session, found: Described) -> Table:
    place = found.place
    listed = {
        str(column["COLUMN_NAME"]).casefold(): column["IS_NULLABLE"] == "NO"
        for column in session.catalog_columns(place.database, place.schema, place.name)
    }
    # Of a view, whose rows nothing is written into, nobody asks.
    if not place.is_view and (unlisted := [name for name in found.types if name.casefold() not in listed]):
        raise WarehouseError(
            f"The catalog call of the Databricks client lists no column {', '.join(unlisted)} of {place}, so whether it may be NULL "
            "is not known. Nothing was written. Look whether the login of compute.conn_id may see the table in Catalog Explorer."
        )
    return Table(
        place,
        tuple(
            Column(name, data_type, nullable=not listed.get(name.casefold(), False), hashable=is_hashable(data_type))
            for name, data_type in found.types.items()
        ),
    )


def describe(session: Session, name: str, partition_by: str, key: Sequence[str], reading: Reading) -> Target:
    """The published table as a target, its name and its columns' in the catalog's spelling.

    :raises SpecError: as :meth:`Warehouse.describe`, or nothing but a pipeline may write it, or it cannot be replaced in part.
    """
    found = describe_table(session, name)
    place = found.place
    refuse_kind(found, name)
    properties = {str(row[0]): str(row[1]) for row in session.run(f"SHOW TBLPROPERTIES {place.sql}")}
    if obstacles := [reason for key_, reason in _UNWRITABLE.items() if properties.get(key_) == "true"]:
        raise SpecError(f"{name} has {', '.join(obstacles)}. Nothing was written. Take it off the table first.")
    if _may_be_numbered(properties):
        ((definition,),) = session.run(f"SHOW CREATE TABLE {place.sql}")
        if columns := list(numbered(str(definition))):
            raise SpecError(
                f"Delta numbers {', '.join(columns)} itself in {name} (GENERATED ALWAYS AS IDENTITY), and lets nobody write a number "
                "that a row had. Nothing was written. Make the table anew with GENERATED BY DEFAULT AS IDENTITY, or with a key of its own."
            )
    table = _table(session, found)
    stored = table.stored(partition_by)
    keys = tuple(table.stored(column) for column in key)
    for column in (stored, *keys):
        if not column.hashable:
            raise SpecError(f"{name}.{column.name} is of type {column.type}, which cannot be compared or hashed.")
    return Target(
        found.dotted(name),
        stored.name,
        table.clock(DIALECT, partition_by, reading),
        tuple(column.name for column in keys),
        table.columns,
        tuple(_constraints(table, properties)),
    )


def refuse_kind(found: Described, name: str) -> None:
    """:raises SpecError: a backfill cannot write what it is; the message says what to do instead."""
    if (written := _WRITTEN_BY_PIPELINES.get(found.kind)) is not None:
        raise SpecError(f"{name} is {written}, which a backfill must not write. {_PIPELINE_WAY}")
    if found.kind == "VIEW":
        raise SpecError(f"{name} is a view, which has no rows of its own. Name the table that a pipeline writes.")
    if found.kind not in _WRITABLE:
        kind = f"of type {found.kind}" if found.kind else "of a type that the catalog does not tell"
        raise SpecError(f"{name} is {kind}. A backfill writes into a managed or external Delta table; name that one.")
    if (provider := found.facts.get("Provider", "delta").lower()) != "delta":
        way = (
            "CONVERT TO DELTA makes a Delta table of it."
            if provider in _CONVERTIBLE
            else "Copy its rows into a Delta table, and name that one."
        )
        raise SpecError(
            f"{name} is a table of {provider} files, where nothing is replaced in one commit. Nothing was written. {way}"
        )
    if found.veils:
        raise SpecError(
            f"{name} has {' and '.join(found.veils)}, so what a backfill reads of it need not be all that is there, and Databricks "
            "refuses time travel and the history of such a table. Nothing was written. Take them off the table for the backfill, or "
            "put them on a view of it."
        )


def _may_be_numbered(properties: Mapping[str, str]) -> bool:
    """Whether the table's protocol lets it have identity columns."""
    return _IDENTITY in properties or properties.get("delta.minWriterVersion") == _IDENTITY_VERSION


def numbered(definition: str) -> Iterator[str]:
    """The columns that a ``CREATE TABLE`` has Delta give numbers to, whatever is written into them.

    :param definition: as ``SHOW CREATE TABLE`` answers; what stands behind the columns need not be known to sqlglot.
    """
    depth, name = 0, ""
    tokens = sqlglot.tokenize(definition, dialect=DIALECT.name)
    for before, token, *then in zip(tokens, tokens[1:], tokens[2:], tokens[3:], tokens[4:], strict=False):
        depth += (before.token_type is TokenType.L_PAREN) - (before.token_type is TokenType.R_PAREN)
        if depth == 1 and before.token_type in (TokenType.L_PAREN, TokenType.COMMA):
            name = token.text
        words = [token, *then]
        if depth == 1 and [one.text.upper() for one in words] == _NUMBERED and token.token_type is TokenType.VAR:
            yield name
        if depth == 0 and name:
            return


def _constraints(table: Table, properties: Mapping[str, str]) -> Iterator[Constraint]:
    for column in table.columns:
        if not column.nullable:
            text = f"NOT NULL({SPELLING.quote(column.name)})"
            yield Constraint(ConstraintKind.NOT_NULL, column.name, text, (column.name,))
    for key, text in sorted(properties.items()):
        if key.startswith(_CHECK):
            name = key.removeprefix(_CHECK)
            yield Constraint(ConstraintKind.CHECK, name, f"CHECK({text})", _columns_of(name, text), text)


def _columns_of(name: str, text: str) -> tuple[str, ...]:
    try:
        tree = sqlglot.parse_one(text, dialect=DIALECT.name)
    except SqlglotError as error:
        raise SpecError(f"The constraint {name} cannot be understood: {text!r}.") from error
    return tuple(dict.fromkeys(column.name for column in tree.find_all(exp.Column)))


def select_columns(session: Session, select: str) -> tuple[Column, ...]:
    """Name and type of every column a SELECT would return; see :meth:`Warehouse.select_columns`."""
    if (text := session.one_select(select)) is None:
        raise TransformRefused("The transform is not one SELECT statement and nothing else.")
    try:
        described = session.run(f"DESCRIBE QUERY {text}")
    except Error as exc:
        if not is_about_the_statement(exc):
            raise
        raise TransformRefused(f"Databricks cannot bind the transform: {message(exc)}") from exc
    return tuple(Column(str(name), canonical(str(data_type))) for name, data_type, *_ in described)
