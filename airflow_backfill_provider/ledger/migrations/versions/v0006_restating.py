"""A view for whoever reads a target: which windows and values of it a backfill owns now."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # SQLite cannot rename a table that a view reads: a migration that rebuilds one of the two drops the view first.
    op.execute(
        "CREATE VIEW safe_backfill_restating AS SELECT claimed.target, claimed.tenant, claimed.window_start, "
        "claimed.window_end, claimed.value, claimed.claimed_at AS since, owner.backfill_id, owner.name, owner.state, "
        "owner.reason, owner.requested_by, owner.dag_id, owner.run_id FROM safe_backfill_range_lock AS claimed "
        "JOIN safe_backfill_backfill AS owner ON owner.backfill_id = claimed.backfill_id"
    )
