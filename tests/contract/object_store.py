"""Delta tables in S3, spoken by a simulator on this host that the test suite starts itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError

from contract_engines import Delta
from pyarrow import fs

from airflow_backfill_provider.demo.local_airflow import free_port
from airflow_backfill_provider.warehouses.base import Warehouse

_BUCKET = "bucket"
_STARTED_WITHIN_SECONDS = 60


@contextmanager
def simulator() -> Iterator[str]:
    """An empty store with one bucket; its address. A process of its own: delta-rs keeps ours from answering while it asks."""
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        address = f"http://127.0.0.1:{port}"
        try:
            _put(f"{address}/{_BUCKET}", until=time.monotonic() + _STARTED_WITHIN_SECONDS)
            yield address
        finally:
            server.terminate()


def _put(url: str, until: float) -> None:
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=30).close()
        except URLError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


class DeltaInObjectStorage(Delta):
    """As on a disk, which the engine has a copy of: fetched before each statement, and given back after one that writes."""

    def __init__(self, address: str, folder: str) -> None:
        self._folder = f"{_BUCKET}/{folder}"
        self.uri = f"s3://{self._folder}"
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
        fs.copy_files(str(self.root), self._folder, destination_filesystem=self._store)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        self._fetch()
        return super().rows(sql)

    def files(self, folder: str) -> list[str]:
        """Every file below a folder of the root."""
        found = self._store.get_file_info(
            fs.FileSelector(f"{self._folder}/{folder}", recursive=True, allow_not_found=True)
        )
        return sorted(entry.path for entry in found if entry.type is fs.FileType.File)

    def _fetch(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.mkdir()
        if self.files(""):
            fs.copy_files(self._folder, str(self.root), source_filesystem=self._store)
