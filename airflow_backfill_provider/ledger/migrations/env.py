"""Runs the migrations on the connection, and in the transaction, that ``schema.upgrade`` hands over."""

from __future__ import annotations

from alembic import context

from airflow_backfill_provider.ledger.tables import VERSION_TABLE, Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
)
context.run_migrations()
