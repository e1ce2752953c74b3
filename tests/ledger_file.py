"""A new ledger in a SQLite file: made by the migrations once in a process, and copied from then on, which takes no time."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from airflow_backfill_provider.ledger.store import Ledger


def new_ledger(folder: Path) -> str:
    """Write ``ledger.db`` into the folder; its URL."""
    file = folder / "ledger.db"
    assert not file.exists(), f"{file} is a ledger already"
    file.write_bytes(_made())
    return f"sqlite:///{file}"


@cache
def _made() -> bytes:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "ledger.db"
        with Ledger(f"sqlite:///{file}") as ledger:
            ledger.upgrade()
        assert sorted(Path(folder).iterdir()) == [file], "nothing of it is in a journal"
        return file.read_bytes()
