"""Delta tables in S3, spoken by a simulator on this host that the test suite starts itself."""

from __future__ import annotations

import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from contract_engines import Delta
from moto.server import ThreadedMotoServer
from pyarrow import fs

from airflow_backfill_provider.warehouses.base import Warehouse

_BUCKET = "bucket"


@contextmanager
def simulator() -> Iterator[str]:
    """An empty store with one bucket; its address."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        address = f"http://{host}:{port}"
        for method, path in (("POST", "moto-api/reset"), ("PUT", _BUCKET)):
            urllib.request.urlopen(urllib.request.Request(f"{address}/{path}", method=method), timeout=30).close()
        yield address
    finally:
        server.stop()


class DeltaInObjectStorage(Delta):
    """As on a disk, which the engine has a copy of: fetched before each statement, and given back after one that writes."""

    def __init__(self, address: str) -> None:
        self.uri = f"s3://{_BUCKET}/warehouse"
        self.options = {
            "AWS_ENDPOINT_URL": address,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "anybody",
            "AWS_SECRET_ACCESS_KEY": "anything",
            "AWS_REGION": "eu-west-1",
        }
        self._store = fs.S3FileSystem(
            access_key="anybody", secret_key="anything", endpoint_override=address, region="eu-west-1"
        )

    def create(self, tmp_path: Path) -> Warehouse:
        from airflow_backfill_provider.warehouses.delta import DeltaWarehouse

        self.root = tmp_path / "copy"
        return DeltaWarehouse(self.uri, storage_options=self.options)

    def execute(self, *statements: str) -> None:
        self._fetch()
        super().execute(*statements)
        fs.copy_files(str(self.root), f"{_BUCKET}/warehouse", destination_filesystem=self._store)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        self._fetch()
        return super().rows(sql)

    def files(self, folder: str) -> list[str]:
        """Every file below a folder of the root."""
        found = self._store.get_file_info(
            fs.FileSelector(f"{_BUCKET}/warehouse/{folder}", recursive=True, allow_not_found=True)
        )
        return sorted(entry.path for entry in found if entry.type is fs.FileType.File)

    def _fetch(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        if self.files(""):
            fs.copy_files(f"{_BUCKET}/warehouse", str(self.root), source_filesystem=self._store)
