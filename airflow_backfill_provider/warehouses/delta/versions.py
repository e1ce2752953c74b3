"""Versions of a Delta table: whether one can still be read, and what its log says of those before."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import fs

from airflow_backfill_provider.errors import SpecError, VersionGone
from airflow_backfill_provider.warehouses.delta.dataset import file_sizes
from airflow_backfill_provider.warehouses.delta.errors import message
from airflow_backfill_provider.warehouses.delta.root import Root
from airflow_backfill_provider.warehouses.history import (
    Commit,
    changed_in_place,
    receipts_soon_gone,
    sent_to_streams,
    soon_gone,
)


def require_version(root: Root, name: str, version: int) -> None:
    """Refuse when the log does not tell that version any more, or one of its files was vacuumed.

    :raises VersionGone: naming the table and the version.
    """
    gone = f"{name} can no longer be read at version {version}, which the plan pinned"
    try:
        place = root.locate(name)
        uri = root.uri(place.schema, place.name)
        table, latest = root.open(uri, version), root.open(uri)
    except (SpecError, DeltaError, TableNotFoundError) as exc:
        raise VersionGone(f"{gone}: {message(exc)}") from exc
    if missing := _missing(root, uri, table, latest):
        raise VersionGone(
            f"{gone}: {len(missing)} of its files were vacuumed, such as {missing[0]}. VACUUM removes what a table does "
            "not hold any more after delta.deletedFileRetentionDuration, 7 days unless set."
        )


def cautions(root: Root, name: str, version: int, since: datetime | None, needed: timedelta) -> list[str]:
    """See :meth:`Warehouse.source_cautions`; by the table's log, as far as it goes back."""
    place = root.locate(name)
    table = root.open(root.uri(place.schema, place.name))
    changed = changed_in_place(name, map(_commit, table.history()), since, version)
    return changed + soon_gone(name, table.metadata().configuration, needed)


def receipt_cautions(root: Root, name: str, needed: timedelta) -> list[str]:
    """See :meth:`Warehouse.receipt_cautions`."""
    place = root.locate(name)
    table = root.open(root.uri(place.schema, place.name))
    return receipts_soon_gone(name, table.metadata().configuration, needed)


def reader_cautions(root: Root, name: str) -> list[str]:
    """See :meth:`Warehouse.reader_cautions`."""
    place = root.locate(name)
    return sent_to_streams(name, root.open(root.uri(place.schema, place.name)).metadata().configuration)


def _commit(entry: dict[str, Any]) -> Commit:
    return Commit(
        version=int(entry["version"]),
        at=datetime.fromtimestamp(entry["timestamp"] / 1000, UTC),
        operation=str(entry.get("operation", "")),
        metrics=entry.get("operationMetrics") or {},
        predicate=str((entry.get("operationParameters") or {}).get("predicate") or ""),
    )


def _missing(root: Root, uri: str, table: DeltaTable, latest: DeltaTable) -> list[str]:
    """The files of the version that are not there. What the latest version holds too is not vacuumed."""
    sizes = file_sizes(table)
    doubtful = sorted(sizes.keys() - file_sizes(latest).keys())
    found = root.files_of(uri, {}).get_file_info(doubtful)
    return [path for path, entry in zip(doubtful, found, strict=True) if entry.type is fs.FileType.NotFound]
