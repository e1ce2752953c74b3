"""What a backfill will claim later keeps other backfills out from its plan on, and live runs not yet."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("DROP VIEW safe_backfill_restating")
    op.add_column(
        "safe_backfill_range_lock", sa.Column("reserved", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.execute(
        "CREATE VIEW safe_backfill_restating AS SELECT claimed.target, claimed.tenant, claimed.window_start, "
        "claimed.window_end, claimed.value, claimed.claimed_at AS since, owner.backfill_id, owner.name, owner.state, "
        "owner.reason, owner.requested_by, owner.dag_id, owner.run_id FROM safe_backfill_range_lock AS claimed "
        "JOIN safe_backfill_backfill AS owner ON owner.backfill_id = claimed.backfill_id WHERE NOT claimed.reserved"
    )
