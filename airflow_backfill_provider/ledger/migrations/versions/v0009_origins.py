"""Which Airflow installation a run is of, and when it began: two installations that share a ledger have runs of the same ids."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("safe_backfill_backfill", "safe_backfill_live_claim"):
        op.add_column(table, sa.Column("installation", sa.Text(), nullable=False, server_default=""))
        op.add_column(table, sa.Column("run_started_at", sa.DateTime(timezone=True), nullable=True))
        op.add_column(table, sa.Column("clear_number", sa.Integer(), nullable=False, server_default="0"))
