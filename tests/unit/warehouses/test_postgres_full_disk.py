"""A disk that is full while rows are staged or published: nothing of it is kept, and it goes on once there is room."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from postgres_shop import RANGE, Shop, clean_server, pytestmark, raised

from airflow_backfill_provider.errors import WarehouseError

__all__ = ["clean_server", "pytestmark"]


@contextmanager
def small_disk(shop: Shop) -> Iterator[tuple[str, Path]]:
    """A tablespace on a file system of one megabyte, and where that is; the shop is gone with it."""
    folder = Path(tempfile.mkdtemp(prefix="safe-backfill-small-"))
    folder.chmod(0o755)  # the server may run as another user
    space = f"small_{shop.database.name}"
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        folder.rmdir()
        pytest.skip("no file system can be mounted here, so none can be full")
    try:
        data = folder / "data"
        data.mkdir()
        ((server,),) = shop.rows("SHOW data_directory")
        shutil.chown(data, Path(server).owner())
        shop.database.execute(f"CREATE TABLESPACE {space} LOCATION '{data}'")
        yield space, folder
        shop.database.drop()
        shop.database.execute(f"DROP TABLESPACE {space}", dbname="postgres")
    finally:
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


@contextmanager
def no_room(folder: Path) -> Iterator[None]:
    """Fill the disk up to its last page."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    assert shutil.disk_usage(folder).free == 0
    yield
    ballast.unlink()


def test_a_full_disk_is_named_nothing_is_written_and_it_goes_on_once_there_is_room() -> None:
    shop = Shop.create(size=200)
    with small_disk(shop) as (space, folder):
        old, outside = shop.amounts(), shop.outside()
        shop.database.execute(
            f"ALTER DATABASE {shop.database.name} SET default_tablespace = '{space}'",
            f"ALTER TABLE analytics.orders SET TABLESPACE {space}",
        )
        shop = Shop.open(shop.database)

        with no_room(folder), pytest.raises(WarehouseError, match=r"No space left on device.*Check free disk space"):
            shop.stage(*RANGE)
        for item in shop.warehouse.storage():
            shop.warehouse.drop(item.location)
        publication = shop.publication(shop.stage(*RANGE))
        assert (shop.amounts(), shop.outside()) == (old, outside)

        with no_room(folder), pytest.raises(WarehouseError, match=r"No space left on device.*Check free disk space"):
            shop.warehouse.replace_partitions(shop.target, publication)
        assert (shop.amounts(), shop.outside()) == (old, outside)
        assert shop.warehouse.receipts(shop.target) == ()

        shop.warehouse.replace_partitions(shop.target, publication)
        assert (shop.amounts(), shop.outside()) == (raised(old), outside)
