"""Creating, upgrading and recognising the ledger's schema."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, column, inspect, select, table, text

from airflow_backfill_provider.errors import LedgerError
from airflow_backfill_provider.ledger.engine import LedgerEngine
from airflow_backfill_provider.ledger.tables import VERSION_TABLE

MIGRATIONS = Path(__file__).parent / "migrations"

HEAD = "0009"
"""The newest migration; written out so that an up-to-date ledger is recognised without loading alembic."""

_UPGRADE_LOCK = 5_221_887_460
"""Number of the PostgreSQL advisory lock that lets one process upgrade at a time."""


def upgrade(engine: LedgerEngine) -> bool:
    """Bring the schema to the newest migration, in one transaction; True when something changed.

    Safe to run again and in many processes at once: one works, the others wait and find it done.

    :raises LedgerError: the ledger is newer than this code, or cannot be written.
    """
    with engine.read() as connection:
        if _revision(connection) == HEAD:
            return False
    with engine.write() as connection:
        if engine.dialect == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _UPGRADE_LOCK})
        found = _revision(connection)
        if found == HEAD:
            return False
        _refuse_newer(engine, found)
        _migrate(connection)
        return True


def require(engine: LedgerEngine) -> None:
    """Refuse a ledger whose schema is not the one this code was written for; changes nothing.

    :raises LedgerError: it was never set up, is older, or is newer than this code.
    """
    found = None
    if engine.exists():
        with engine.read() as connection:
            found = _revision(connection)
    if found == HEAD:
        return
    _refuse_newer(engine, found)
    state = "is not set up" if found is None else f"has the older schema {found}, and this version needs {HEAD}"
    raise LedgerError(f"The ledger {engine.address} {state}. Run `airflow safe-backfill init`.")


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(select(column("version_num")).select_from(table(VERSION_TABLE))).scalar_one_or_none()


def _refuse_newer(engine: LedgerEngine, found: str | None) -> None:
    from alembic.script import ScriptDirectory

    if found is None or found in {script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions()}:
        return
    raise LedgerError(
        f"The ledger {engine.address} has schema {found}, which this version does not know (it knows up to {HEAD}): "
        "a newer version wrote it. Upgrade airflow-backfill-provider here."
    )


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    command.upgrade(config, "head")
