from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_engines import DuckDB
from ledger_file import new_ledger
from steps_world import World, fill

from airflow_backfill_provider.ledger.store import Ledger


@pytest.fixture(params=[DuckDB], ids=["duckdb"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    engine = request.param()
    warehouse = engine.create(tmp_path)
    with Ledger(new_ledger(tmp_path)) as ledger:
        fill(engine)
        yield World(engine, warehouse, ledger)
    warehouse.close()
