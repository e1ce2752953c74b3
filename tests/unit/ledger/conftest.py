"""Every ledger test runs on a real SQLite file, and on a real PostgreSQL where its programs and psycopg are there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import postgres_server
import pytest
from sqlalchemy import URL, NullPool, create_engine, text

from airflow_backfill_provider.ledger.store import Ledger


@pytest.fixture(scope="session")
def postgresql_server() -> URL:
    if not postgres_server.is_installed():
        pytest.skip(postgres_server.NEEDS)
    return postgres_server.start()


@pytest.fixture(params=["sqlite", "postgresql"])
def ledger_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that holds nothing yet."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    server: URL = request.getfixturevalue("postgresql_server")
    engine = create_engine(server, poolclass=NullPool)
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    return server.render_as_string(hide_password=False)


@pytest.fixture
def ledger(ledger_url: str) -> Iterator[Ledger]:
    """An empty ledger with its schema."""
    with Ledger(ledger_url) as opened:
        opened.upgrade()
        yield opened
