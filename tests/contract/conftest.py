"""One body per promise, every engine: each test runs once per class in ``contract_engines.ENGINES``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_engines import ENGINES, Engine
from contract_world import World

from airflow_backfill_provider.warehouses.base import Warehouse


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param()


@pytest.fixture
def warehouse(engine: Engine, tmp_path: Path) -> Iterator[Warehouse]:
    warehouse = engine.create(tmp_path)
    yield warehouse
    warehouse.close()


@pytest.fixture
def orders(engine: Engine, warehouse: Warehouse) -> World:
    """The published table by day on a DATE column, with neighbours and rows that no day can hold."""
    return World.by_date(engine, warehouse)


@pytest.fixture
def events(engine: Engine, warehouse: Warehouse) -> World:
    """The same on a TIMESTAMP column, with rows on every edge of the days."""
    return World.by_timestamp(engine, warehouse)


@pytest.fixture(params=["date", "timestamp"])
def world(request: pytest.FixtureRequest, engine: Engine, warehouse: Warehouse) -> World:
    """Both tables, one after the other: for promises that no clock may change."""
    return World.by_date(engine, warehouse) if request.param == "date" else World.by_timestamp(engine, warehouse)
