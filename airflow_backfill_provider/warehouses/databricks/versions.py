"""Versions of Delta tables: which one a SELECT would read now, and the SELECT that reads it again later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlglot
from databricks.sql.exc import Error
from sqlglot import exp

from airflow_backfill_provider.errors import SpecError, VersionGone
from airflow_backfill_provider.warehouses.base import Versions
from airflow_backfill_provider.warehouses.databricks.catalog import describe_table
from airflow_backfill_provider.warehouses.databricks.dialect import DIALECT, SPELLING
from airflow_backfill_provider.warehouses.databricks.errors import is_about_the_statement, message
from airflow_backfill_provider.warehouses.databricks.session import Session
from airflow_backfill_provider.warehouses.history import (
    Commit,
    changed_in_place,
    receipts_soon_gone,
    sent_to_streams,
    soon_gone,
)


def source_versions(session: Session, selects: Iterable[str], tables: Iterable[str]) -> dict[str, int]:
    """See :meth:`Warehouse.source_versions`; a view has none, whatever it reads."""
    named = dict.fromkeys(name for text in selects for name, _ in _tables(text)) | dict.fromkeys(tables)
    found: dict[str, int] = {}
    for name in named:
        try:
            described = describe_table(session, name)
        except SpecError:  # what is no table has no version
            continue
        if described.is_versioned:
            (latest,) = session.records(f"DESCRIBE HISTORY {described.place.sql} LIMIT 1")
            found[described.dotted(name)] = int(latest["version"])
    return found


def require_versions(session: Session, versions: Versions) -> None:
    """See :meth:`Warehouse.require_versions`.

    A file that VACUUM removed is not looked for: whoever reads it later gets an error.
    """
    for name, version in versions.items():
        table = SPELLING.quote_path(*name.split("."))
        try:
            session.run(f"SELECT 1 FROM {table}{as_of(version)} LIMIT 0")
        except Error as exc:
            if not is_about_the_statement(exc):
                raise
            raise VersionGone(
                f"{name} can no longer be read at version {version}, which the plan pinned: {message(exc)}"
            ) from exc


def source_cautions(session: Session, versions: Versions, since: datetime | None, needed: timedelta) -> Iterator[str]:
    """See :meth:`Warehouse.source_cautions`; by the table's history, as far as it goes back."""
    for name, version in versions.items():
        table = SPELLING.quote_path(*name.split("."))
        commits = map(_commit, session.records(f"DESCRIBE HISTORY {table}"))
        yield from changed_in_place(name, commits, since, version)
        yield from soon_gone(name, _properties(session, table), needed)


def receipt_cautions(session: Session, name: str, needed: timedelta) -> list[str]:
    """See :meth:`Warehouse.receipt_cautions`."""
    return receipts_soon_gone(name, _properties(session, SPELLING.quote_path(*name.split("."))), needed)


def reader_cautions(session: Session, name: str) -> list[str]:
    """See :meth:`Warehouse.reader_cautions`."""
    return sent_to_streams(name, _properties(session, SPELLING.quote_path(*name.split("."))))


def _properties(session: Session, table: str) -> dict[str, str]:
    return {str(row[0]): str(row[1]) for row in session.run(f"SHOW TBLPROPERTIES {table}")}


def _commit(row: Mapping[str, Any]) -> Commit:
    metrics, parameters = (dict(row[name] or ()) for name in ("operationMetrics", "operationParameters"))
    return Commit(
        version=int(row["version"]),
        at=row["timestamp"].astimezone(UTC),
        operation=str(row["operation"]),
        metrics=metrics,
        predicate=str(parameters.get("predicate") or ""),
    )


def as_of(version: int) -> str:
    """What stands behind a table's name to read it at that version."""
    return f" VERSION AS OF {int(version)}"


def pin(text: str, versions: Versions, is_pinned_by_nature: Callable[[str], bool]) -> tuple[str, list[str]]:
    """The SELECT with the version behind the name of every table, the rest as it was written; and the tables without one.

    :param is_pinned_by_nature: whether a name that has no version needs none, because it is no table.
    """
    known = {name.casefold(): version for name, version in versions.items()}
    unplanned = []
    for name, end in sorted(_tables(text), key=lambda one: one[1], reverse=True):
        if (version := known.get(name.casefold())) is not None:
            text = f"{text[:end]}{as_of(version)}{text[end:]}"
        elif not is_pinned_by_nature(name):
            unplanned.append(name)
    return text, sorted(set(unplanned))


def _tables(text: str) -> list[tuple[str, int]]:
    """Every table that is named with its schema and without a version, and where in the text its name ends."""
    tree = sqlglot.parse_one(text, dialect=DIALECT.name)
    return [
        (".".join(part.name for part in table.parts), int(table.this.meta["end"]) + 1)
        for table in tree.find_all(exp.Table)
        if len(table.parts) > 1 and isinstance(table.this, exp.Identifier) and not table.args.get("version")
    ]
