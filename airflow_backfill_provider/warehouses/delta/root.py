"""The folder that holds the tables: ``<root>/<schema>/<name>``, on a disk or in object storage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from urllib.parse import quote as percent
from urllib.parse import urlsplit
from urllib.request import url2pathname

from deltalake import DeltaTable
from deltalake.fs import DeltaStorageHandler
from pyarrow import fs

from airflow_backfill_provider.errors import SpecError, WarehouseError
from airflow_backfill_provider.warehouses.relational.tables import Place, no_table

# delta-rs reads % as the start of an escaped character; folders that begin with _ or . are nobody's tables.
_FOLDER = re.compile(r"\A[^_./\\%\x00-\x1f][^/\\%\x00-\x1f]*\Z")


class Root:
    """Where the tables are, and how to get at them.

    :param root: a folder, or a URL such as ``s3://bucket/warehouse``.
    :param options: object storage's credentials and settings, as delta-rs names them.
    """

    def __init__(self, root: str, options: Mapping[str, str] | None) -> None:
        self.options = dict(options) if options else None
        self.folder = _folder(root)
        """The folder on this host; None in object storage."""
        self.name = root.rstrip("/") if self.folder is None else str(self.folder)

    def uri(self, *parts: str) -> str:
        """The address of something below the root."""
        if self.folder is None:
            return "/".join([self.name, *(percent(part, safe="/") for part in parts)])
        return str(self.folder.joinpath(*parts))

    @cached_property
    def files(self) -> fs.FileSystem:
        """The file system whose paths begin at the root.

        :raises WarehouseError: there is no such folder.
        """
        if self.folder is None:
            return fs.PyFileSystem(DeltaStorageHandler(self.name, self.options))
        if not self.folder.is_dir():
            raise WarehouseError(f"There is no folder {self.folder}. Check the path; it is never created here.")
        return fs.SubTreeFileSystem(str(self.folder), fs.LocalFileSystem())

    def open(self, uri: str, version: int | None = None) -> DeltaTable:
        """A table at a version, by default the latest.

        :raises deltalake.exceptions.TableNotFoundError: there is none.
        :raises deltalake.exceptions.DeltaError: the log does not go back to the version.
        """
        return DeltaTable(uri, version=version, storage_options=self.options)

    def files_of(self, uri: str, sizes: dict[str, int]) -> fs.FileSystem:
        """The file system whose paths begin at the folder of a table.

        :param sizes: bytes of each file, so that object storage is not asked for them.
        """
        if self.folder is None:
            return fs.PyFileSystem(DeltaStorageHandler(uri, self.options, sizes))
        return fs.SubTreeFileSystem(uri, fs.LocalFileSystem())

    def is_table(self, uri: str) -> bool:
        """Whether there is a Delta table."""
        return DeltaTable.is_deltatable(uri, storage_options=self.options)

    def find(self, schema: str, name: str) -> Place | None:
        """The table of these names; in any case, where none has just this spelling. None when there is none.

        :raises SpecError: several tables differ in case only.
        """
        if not (_FOLDER.match(schema) and _FOLDER.match(name)):
            return None
        if self.is_table(self.uri(schema, name)):
            return Place("", schema, name, is_view=False)
        wanted = (schema.lower(), name.lower())
        found = [
            place
            for place in self._folders()
            if (place.schema.lower(), place.name.lower()) == wanted and self._is_place(place)
        ]
        if len(found) > 1:
            raise SpecError(
                f"'{schema}.{name}' may be any of {', '.join(map(str, found))}; write it in the spelling of one of them."
            )
        return found[0] if found else None

    def locate(self, name: str) -> Place:
        """The table of the dotted name ``schema.name``; a name with more dots is found too.

        :raises SpecError: there is none; the message names what exists.
        """
        dots = [match.start() for match in re.finditer(r"\.", name)]
        for dot in dots:
            if (place := self.find(name[:dot], name[dot + 1 :])) is not None:
                return place
        raise no_table(name, [place for place in self._folders() if self._is_place(place)])

    def _is_place(self, place: Place) -> bool:
        return self.is_table(self.uri(place.schema, place.name))

    def _folders(self) -> Iterator[Place]:
        """Every folder that could be a table by its name."""
        for schema in self._below(""):
            for name in self._below(schema):
                yield Place("", schema, name, is_view=False)

    def _below(self, folder: str) -> list[str]:
        entries = self.files.get_file_info(fs.FileSelector(folder, allow_not_found=True))
        names = (entry.base_name for entry in entries if entry.type is fs.FileType.Directory)
        return sorted(name for name in names if _FOLDER.match(name))


def _folder(root: str) -> Path | None:
    if "://" not in root:
        return Path(root).absolute()
    parts = urlsplit(root)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None
