"""A range that is being put back stays its backfill's until that has ended, also when the backfill is completed meanwhile."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "safe_backfill_range_lock", sa.Column("way_back", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    # One that is over holds a range only for a rollback, or for bringing back what a rollback overwrote.
    op.execute(
        "UPDATE safe_backfill_range_lock SET way_back = TRUE WHERE backfill_id IN "
        "(SELECT backfill_id FROM safe_backfill_backfill WHERE state IN ('completed', 'rolled_back'))"
    )
