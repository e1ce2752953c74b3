"""Opening a warehouse by its kind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from airflow_backfill_provider.errors import SpecError, WarehouseError
from airflow_backfill_provider.warehouses import open_warehouse
from airflow_backfill_provider.warehouses.base import Warehouse


def test_duckdb_is_a_kind(tmp_path: Path) -> None:
    duckdb.connect(str(tmp_path / "w.duckdb")).close()
    warehouse: Warehouse = open_warehouse("duckdb", path=str(tmp_path / "w.duckdb"), config={"threads": 1})

    assert warehouse.capabilities.engine == f"DuckDB {duckdb.__version__}"
    assert warehouse.storage() == ()
    warehouse.close()


def test_an_unknown_kind_is_refused_naming_the_known_ones() -> None:
    with pytest.raises(
        SpecError, match=r"'duckbd' is not a known kind of warehouse; known: databricks, delta, duckdb, postgres"
    ):
        open_warehouse("duckbd", path="x")


def test_a_missing_driver_is_refused_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("airflow_backfill_provider.warehouses.duckdb")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "duckdb", None)

    with pytest.raises(SpecError, match=r"pip install 'airflow-backfill-provider\[duckdb\]'"):
        open_warehouse("duckdb", path="x")


def test_the_driver_is_not_imported_before_a_warehouse_is_opened() -> None:
    code = "import sys, airflow_backfill_provider.warehouses; sys.exit('duckdb' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("version", ["1.4.4", "1.5.6"])
def test_a_version_whose_guard_does_not_hold_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(duckdb, "__version__", version)

    with pytest.raises(WarehouseError, match=rf"DuckDB {version} is installed, and 2\.0 is needed"):
        open_warehouse("duckdb", path="x")
