"""Questions to people and their answers; who asked for each revision of a plan."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("safe_backfill_plan", sa.Column("requested_by", sa.Text(), nullable=False, server_default=""))
    op.create_table(
        "safe_backfill_approval",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("backfill_id", sa.Text(), nullable=False),
        sa.Column("gate", sa.String(32), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("shown", sa.Text(), nullable=False),
        sa.Column("asked_for", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("clear_number", sa.Integer(), nullable=False),
        sa.Column("asked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decision", sa.String(32)),
        sa.Column("decided_at", sa.DateTime(timezone=True)),
        sa.Column("decided_by", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_safe_backfill_approval"),
        sa.ForeignKeyConstraint(
            ["backfill_id"], ["safe_backfill_backfill.backfill_id"], name="fk_safe_backfill_approval_backfill_id"
        ),
    )
    op.create_index("ix_safe_backfill_approval_backfill_id", "safe_backfill_approval", ["backfill_id"])
