"""Where stages, samples, backups and shadows are: ``<staging_dir>/<backfill_id>/<kind>-<label>-<unique>.duckdb``."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import StorageItem

_WORD = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
_LOCATION = re.compile(
    r"\A(?P<backfill_id>[A-Za-z0-9][A-Za-z0-9_-]{0,63})/(?P<kind>stage|sample|backup|shadow)-[A-Za-z0-9_-]+\.duckdb\Z"
)


class StagingFolder:
    """The folder beside the warehouse that holds our files, readable by its owner only.

    A *location* is a path relative to it, so that nothing about the host goes into the ledger. No call reaches a
    file outside it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def create(self) -> None:
        """Make the folder; silent when it exists."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def new_location(self, kind: str, backfill_id: str, label: str) -> str:
        """A location that no file has had before; makes its folder.

        :raises WarehouseError: the id or the label holds anything but letters, digits, ``-`` and ``_``.
        """
        for word in (backfill_id, label):
            if not _WORD.match(word):
                raise WarehouseError(
                    f"{word!r} cannot name a file of a backfill: use at most 64 letters, digits, '-' and '_'."
                )
        (self.folder / backfill_id).mkdir(mode=0o700, exist_ok=True)
        return f"{backfill_id}/{kind}-{label}-{uuid4().hex[:12]}.duckdb"

    def path(self, location: str) -> Path:
        """The file of the location, which need not exist.

        :raises WarehouseError: the location is not one of ours, or leads out of the folder.
        """
        path = self.folder / location
        if not _LOCATION.match(location) or not path.resolve().is_relative_to(self.folder.resolve()):
            raise WarehouseError(
                f"{location!r} is not the location of a stage, a sample, a backup or a shadow in {self.folder}."
            )
        return path

    def existing(self, location: str) -> Path:
        """The file of the location.

        :raises WarehouseError: as :meth:`path`, or it is gone.
        """
        path = self.path(location)
        if not path.is_file():
            raise WarehouseError(
                f"{location} is gone from {self.folder}: it was dropped, or staged on another host. Stage again."
            )
        return path

    def items(self) -> tuple[StorageItem, ...]:
        """Every stage, sample, backup and shadow there is, by location."""
        found = []
        # A run elsewhere may hand its file over when nobody waits for it any more.
        files = [*self.folder.glob("*/*.duckdb"), *self.folder.glob("*/*.parquet")]
        for path in sorted({file.with_suffix(".duckdb") for file in files}):
            location = path.relative_to(self.folder).as_posix()
            if (match := _LOCATION.match(location)) is None:
                continue
            try:
                stats = [part.stat() for part in _parts(path) if part.is_file()]
                modified_at = datetime.fromtimestamp(stats[0].st_mtime, UTC)
            except (FileNotFoundError, IndexError):
                continue  # dropped meanwhile
            size = sum(stat.st_size for stat in stats)
            found.append(StorageItem(match["backfill_id"], match["kind"], location, size, modified_at))
        return tuple(found)

    def drop(self, location: str) -> None:
        """Remove the file and its write-ahead log; silent when they are gone.

        :raises WarehouseError: as :meth:`path`.
        """
        # The file last: as long as it is there, what is left of a drop that was cut off is listed.
        for part in reversed(_parts(self.path(location))):
            part.unlink(missing_ok=True)


def _parts(path: Path) -> tuple[Path, ...]:
    """The database, its write-ahead log, and what another process handed over to be taken into it."""
    return path, path.with_name(path.name + ".wal"), path.with_suffix(".parquet")
