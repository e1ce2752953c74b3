"""Versions of a Delta table: whether one can still be read."""

from __future__ import annotations

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from pyarrow import fs

from airflow_backfill_provider.errors import SpecError, VersionGone
from airflow_backfill_provider.warehouses.delta.dataset import file_sizes
from airflow_backfill_provider.warehouses.delta.errors import message
from airflow_backfill_provider.warehouses.delta.root import Root


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


def _missing(root: Root, uri: str, table: DeltaTable, latest: DeltaTable) -> list[str]:
    """The files of the version that are not there. What the latest version holds too is not vacuumed."""
    sizes = file_sizes(table)
    doubtful = sorted(sizes.keys() - file_sizes(latest).keys())
    found = root.files_of(uri, {}).get_file_info(doubtful)
    return [path for path, entry in zip(doubtful, found, strict=True) if entry.type is fs.FileType.NotFound]
