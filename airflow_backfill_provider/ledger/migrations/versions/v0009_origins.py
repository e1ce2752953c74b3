"""Which Airflow installation a run is of, and when it began: two installations that share a ledger have runs of the same ids.
And the claims that a person gave up, with who and why; and an index by which the lines of one action are found."""

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
    op.create_table(
        "safe_backfill_given_up_claim",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("claim_id", sa.Text(), nullable=False),
        sa.Column("dag_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text(), nullable=False),
        sa.Column("installation", sa.Text(), nullable=False),
        sa.Column("held", sa.Text(), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_safe_backfill_given_up_claim"),
    )
    columns = ["backfill_id", "action", "sequence"]
    op.create_index("ix_safe_backfill_event_backfill_id_action_sequence", "safe_backfill_event", columns)
