"""Ranges that runs of the scheduled pipeline hold while they write."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "safe_backfill_live_claim",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("claim_id", sa.Text(), nullable=False),
        sa.Column("dag_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("window_start", sa.DateTime(timezone=True)),
        sa.Column("window_end", sa.DateTime(timezone=True)),
        sa.Column("value", sa.Text()),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_safe_backfill_live_claim"),
        sa.ForeignKeyConstraint(["target"], ["safe_backfill_target.target"], name="fk_safe_backfill_live_claim_target"),
    )
    op.create_index("ix_safe_backfill_live_claim_target", "safe_backfill_live_claim", ["target"])
    op.create_index("ix_safe_backfill_live_claim_claim_id", "safe_backfill_live_claim", ["claim_id"])
