"""Where stages, samples and backups are: Delta tables ``<root>/_safe_backfill/<backfill_id>/<kind>-<label>-<unique>``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC
from uuid import uuid4

import pyarrow
from deltalake import ColumnProperties, CommitProperties, DeltaTable, WriterProperties, write_deltalake
from deltalake.exceptions import TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions
from pyarrow import fs

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import StorageItem
from airflow_backfill_provider.warehouses.delta.root import Root
from airflow_backfill_provider.warehouses.delta.wholesale import WholeFile

QUICKLY = WriterProperties(compression="LZ4_RAW", default_column_properties=ColumnProperties(dictionary_enabled=False))
"""How rows are kept that are read a few times and dropped: half the time of a table's own files, and no larger."""
_COPIES_AT_ONCE = 8
"""Object storage answers slowly, and many requests at once."""
_FOLDER = "_safe_backfill"
_COVERED = "covered_partitions"
_WORD = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")
_LOCATION = re.compile(
    r"\A(?P<backfill_id>[A-Za-z0-9][A-Za-z0-9_-]{0,63})/(?P<kind>stage|sample|backup|shadow)-[A-Za-z0-9_-]+-[0-9a-f]{12}\Z"
)


class Storage:
    """The folder beside the tables that holds ours; no name of a table can mean it.

    A *location* is a path relative to it. On a disk the folder is its owner's alone; in object storage it is open to
    whoever may read the root.
    """

    def __init__(self, root: Root) -> None:
        self._root = root

    def prepare(self) -> None:
        """Make the folder, where there are folders; silent when it exists."""
        if self._root.folder is not None:
            # Through the root, which must exist.
            if not self._root.folder.is_dir():
                raise WarehouseError(
                    f"There is no folder {self._root.folder}. Check the path; it is never created here."
                )
            (self._root.folder / _FOLDER).mkdir(mode=0o700, exist_ok=True)

    def new_location(self, kind: str, backfill_id: str, label: str) -> str:
        """A location that no table has had before.

        :raises WarehouseError: the id or the label holds anything but letters, digits, ``-`` and ``_``.
        """
        for word in (backfill_id, label):
            if not _WORD.match(word):
                raise WarehouseError(
                    f"{word!r} cannot name a table of a backfill: use at most 64 letters, digits, '-' and '_'."
                )
        return f"{backfill_id}/{kind}-{label}-{uuid4().hex[:12]}"

    def uri(self, location: str) -> str:
        """The address of the location, which need not exist.

        :raises WarehouseError: the location is not one of ours.
        """
        if not _LOCATION.match(location):
            raise WarehouseError(
                f"{location!r} is not the location of a stage, a sample, a backup or a shadow in {self._root.name}."
            )
        return self._root.uri(_FOLDER, *location.split("/"))

    def open(self, location: str) -> DeltaTable:
        """The table of the location.

        :raises WarehouseError: as :meth:`uri`, or it is gone.
        """
        with self.expecting(location):
            return self._root.open(self.uri(location))

    @contextmanager
    def expecting(self, location: str) -> Iterator[None]:
        """Opens the table of the location inside.

        :raises WarehouseError: it is gone.
        """
        try:
            yield
        except TableNotFoundError as exc:
            raise WarehouseError(
                f"{location} is gone from {self._root.uri(_FOLDER)}: it was dropped, or nothing was kept in it. Stage again."
            ) from exc

    def create(
        self,
        location: str,
        rows: pyarrow.RecordBatchReader,
        *,
        partition_by: Sequence[str] = (),
        covered: Sequence[str] = (),
    ) -> None:
        """Make the table of the location from these rows, in one commit.

        :param covered: the keys that a backup covers, those without rows too.
        """
        write_deltalake(
            self.uri(location),
            rows,
            mode="error",
            partition_by=list(partition_by) or None,
            description=_description(location),
            storage_options=self._root.options,
            writer_properties=QUICKLY,
            commit_properties=_covers(covered),
        )

    def create_from_files(
        self,
        location: str,
        table: DeltaTable,
        uri: str,
        files: Sequence[WholeFile],
        go_on: Callable[[], None],
        *,
        covered: Sequence[str],
    ) -> None:
        """As :meth:`create`, of copies of files of the table at that address, byte for byte; ``go_on`` is called before each."""
        folder = f"{_FOLDER}/{location}"
        source = self._root.files_of(uri, {file.path: file.size for file in files})
        self._root.files.create_dir(folder)

        def copy(numbered: tuple[int, WholeFile]) -> AddAction:
            go_on()
            number, file = numbered
            name = f"{number:06}.parquet"
            fs.copy_files(
                file.path, f"{folder}/{name}", source_filesystem=source, destination_filesystem=self._root.files
            )
            return file.added_as(name)

        with ThreadPoolExecutor(_COPIES_AT_ONCE) as pool:
            added = list(pool.map(copy, enumerate(files)))
        create_table_with_add_actions(
            self.uri(location),
            table.schema(),
            added,
            partition_by=table.metadata().partition_columns,
            description=_description(location),
            storage_options=self._root.options,
            commit_properties=_covers(covered),
        )

    def covered(self, location: str) -> set[str]:
        """The keys that a backup covers."""
        return {key for commit in self.open(location).history() for key in json.loads(commit.get(_COVERED) or "[]")}

    def items(self) -> tuple[StorageItem, ...]:
        """Every stage, sample, backup and shadow there is, by location; one that was left half dropped too."""
        found = []
        for backfill_id in self._folders(_FOLDER):
            for name in self._folders(f"{_FOLDER}/{backfill_id}"):
                location = f"{backfill_id}/{name}"
                if (match := _LOCATION.match(location)) is None:
                    continue
                files = [
                    entry
                    for entry in self._root.files.get_file_info(
                        fs.FileSelector(f"{_FOLDER}/{location}", recursive=True, allow_not_found=True)
                    )
                    if entry.type is fs.FileType.File
                ]
                if files:
                    found.append(
                        StorageItem(
                            match["backfill_id"],
                            match["kind"],
                            location,
                            sum(entry.size for entry in files),
                            max(entry.mtime for entry in files).astimezone(UTC),
                        )
                    )
        return tuple(found)

    def drop(self, location: str) -> None:
        """Remove the table; silent when it is gone.

        :raises WarehouseError: as :meth:`uri`.
        """
        self.uri(location)
        try:
            self._root.files.delete_dir(f"{_FOLDER}/{location}")
        except FileNotFoundError:
            pass

    def _folders(self, folder: str) -> list[str]:
        entries = self._root.files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        return sorted(entry.base_name for entry in entries if entry.type is fs.FileType.Directory)


def _description(location: str) -> str:
    backfill_id, _, name = location.partition("/")
    return f"{name.partition('-')[0]} of backfill {backfill_id}"


def _covers(keys: Sequence[str]) -> CommitProperties:
    return CommitProperties(custom_metadata={_COVERED: json.dumps(list(keys))})
