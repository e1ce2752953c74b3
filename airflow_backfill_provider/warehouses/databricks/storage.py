"""Where stages, samples, backups and shadows are: a Delta table each in a schema of their own, in the connection's catalog."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC
from uuid import uuid4

from databricks.sql.exc import Error

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import StorageItem
from airflow_backfill_provider.warehouses.databricks.dialect import SPELLING
from airflow_backfill_provider.warehouses.databricks.errors import is_absent
from airflow_backfill_provider.warehouses.databricks.session import Session

_WORD = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
_LOCATION = re.compile(r"\A(?P<kind>stage|sample|backup|shadow)__[a-z0-9_]+__[0-9a-f]{12}\Z")
_BACKFILL, _COVERED = "safe_backfill.backfill_id", "safe_backfill.covered_partitions"


class Storage:
    """The staging schema. A *location* is the name of a table in it, whose properties lead back to the backfill.

    :param schema: ``schema``, or ``catalog.schema``.
    """

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._parts = schema.split(".")

    def new_location(self, kind: str, backfill_id: str, label: str) -> str:
        """A location that no table has had before.

        :raises WarehouseError: the id or the label holds anything but letters, digits, ``-`` and ``_``.
        """
        for word in (backfill_id, label):
            if not _WORD.match(word):
                raise WarehouseError(
                    f"{word!r} cannot name a table of a backfill: use at most 64 letters, digits, '-' and '_'."
                )
        # The catalog writes names in small letters.
        named = f"{backfill_id}_{label}".replace("-", "_").lower()
        return f"{kind}__{named}__{uuid4().hex[:12]}"

    def sql(self, location: str) -> str:
        """The name of the location's table, which need not exist.

        :raises WarehouseError: the location is not one of ours.
        """
        if not _LOCATION.match(location):
            raise WarehouseError(f"{location!r} is not the location of a stage, a sample, a backup or a shadow.")
        return SPELLING.quote_path(*self._parts, location)

    def create(
        self,
        session: Session,
        location: str,
        backfill_id: str,
        definition: str,
        *,
        covered: Sequence[str] = (),
        rows: str = "",
    ) -> None:
        """Make the location's table in one commit; the schema too, when it is missing.

        :param definition: what stands between the table's name and its properties.
        :param covered: the keys that a backup covers, those without rows too.
        :param rows: a SELECT of its rows; without one it has the columns of the definition.
        """
        kind = location.partition("__")[0]
        properties = {_BACKFILL: backfill_id} | ({_COVERED: json.dumps(list(covered))} if covered else {})
        self._make(
            session,
            f"CREATE TABLE IF NOT EXISTS {self.sql(location)} {definition} "
            f"COMMENT {SPELLING.text_literal(f'{kind} of backfill {backfill_id}')} {_written(properties)}"
            + (f" AS {rows}" if rows else ""),
        )

    def create_like(self, session: Session, location: str, backfill_id: str, table: str) -> None:
        """Make the location's table, empty, with the definition of a published one: its columns, partitions and constraints."""
        self._make(
            session,
            f"CREATE TABLE IF NOT EXISTS {self.sql(location)} LIKE {table} {_written({_BACKFILL: backfill_id})}",
        )

    def _make(self, session: Session, statement: str) -> None:
        """:param statement: what a statement that the connector sends a second time finds done already, it lets be: no other
        table has had the name.
        """
        try:
            session.run(statement)
        except Error as exc:
            if not is_absent(exc) or "SCHEMA_NOT_FOUND" not in str(exc):
                raise
            session.run(f"CREATE SCHEMA IF NOT EXISTS {SPELLING.quote_path(*self._parts)}")
            session.run(statement)

    def covered(self, session: Session, location: str) -> set[str]:
        """The keys that a backup covers.

        :raises WarehouseError: it is gone.
        """
        return set(json.loads(self._properties(session, location).get(_COVERED, "[]")))

    def items(self, session: Session) -> tuple[StorageItem, ...]:
        """Every stage, sample, backup and shadow there is, by location."""
        try:
            names = sorted(str(row[1]) for row in session.run(f"SHOW TABLES IN {SPELLING.quote_path(*self._parts)}"))
        except Error as exc:
            if not is_absent(exc):
                raise
            return ()
        return tuple(item for name in names if (item := self._item(session, name)) is not None)

    def _item(self, session: Session, name: str) -> StorageItem | None:
        """What the table of that name is; None when it is not of ours, or was dropped just now."""
        if (match := _LOCATION.match(name)) is None:
            return None
        try:
            (detail,) = session.records(f"DESCRIBE DETAIL {self.sql(name)}")
        except Error as exc:
            if not is_absent(exc):
                raise
            return None
        properties = dict(detail["properties"] or ())
        size, modified = int(detail["sizeInBytes"] or 0), detail["lastModified"].astimezone(UTC)
        return StorageItem(properties.get(_BACKFILL, ""), match["kind"], name, size, modified)

    def drop(self, session: Session, location: str) -> None:
        """Remove the table; silent when it is gone.

        :raises WarehouseError: it is not one of ours.
        """
        try:
            session.run(f"DROP TABLE IF EXISTS {self.sql(location)}")
        except Error as exc:
            if not is_absent(exc):
                raise

    def _properties(self, session: Session, location: str) -> Mapping[str, str]:
        try:
            rows = session.run(f"SHOW TBLPROPERTIES {self.sql(location)}")
        except Error as exc:
            if not is_absent(exc):
                raise
            raise WarehouseError(f"{location} is gone from {self.schema}: it was dropped. Stage again.") from exc
        return {str(row[0]): str(row[1]) for row in rows}


def _written(properties: Mapping[str, str]) -> str:
    values = ", ".join(
        f"{SPELLING.text_literal(key)} = {SPELLING.text_literal(value)}" for key, value in properties.items()
    )
    return f"TBLPROPERTIES ({values})"
