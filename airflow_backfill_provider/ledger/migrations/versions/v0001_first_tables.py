"""The first tables.

Column types are written out, not imported, so that this migration makes the same tables for ever.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "safe_backfill_backfill",
        sa.Column("backfill_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("dag_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("requested_by", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("backup_location", sa.Text()),
        sa.Column("backup_fingerprints", sa.Text()),
        sa.PrimaryKeyConstraint("backfill_id", name="pk_safe_backfill_backfill"),
    )
    op.create_index("ix_safe_backfill_backfill_created_at", "safe_backfill_backfill", ["created_at"])
    op.create_index("ix_safe_backfill_backfill_name_created_at", "safe_backfill_backfill", ["name", "created_at"])
    op.create_table(
        "safe_backfill_plan",
        sa.Column("backfill_id", sa.Text(), nullable=False),
        sa.Column("revision", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("plan_hash", sa.Text(), nullable=False),
        sa.Column("intent_hash", sa.Text(), nullable=False),
        sa.Column("spec_hash", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("backfill_id", "revision", name="pk_safe_backfill_plan"),
        sa.ForeignKeyConstraint(
            ["backfill_id"], ["safe_backfill_backfill.backfill_id"], name="fk_safe_backfill_plan_backfill_id"
        ),
    )
    op.create_table(
        "safe_backfill_partition",
        sa.Column("backfill_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("window_start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("window_end", sa.DateTime(timezone=True), nullable=False),
        sa.Column("state", sa.String(32), nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text()),
        sa.Column("location", sa.Text()),
        sa.Column("rows", sa.BigInteger()),
        sa.Column("digest", sa.Text()),
        sa.Column("method", sa.Text()),
        sa.Column("staged_intent", sa.Text()),
        sa.Column("seconds", sa.Double()),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("backfill_id", "key", name="pk_safe_backfill_partition"),
        sa.ForeignKeyConstraint(
            ["backfill_id"], ["safe_backfill_backfill.backfill_id"], name="fk_safe_backfill_partition_backfill_id"
        ),
    )
    op.create_table(
        "safe_backfill_evidence",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("backfill_id", sa.Text(), nullable=False),
        sa.Column("key", sa.Text()),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("recorded_by", sa.Text(), nullable=False),
        sa.Column("recorded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("superseded_at", sa.DateTime(timezone=True)),
        sa.PrimaryKeyConstraint("id", name="pk_safe_backfill_evidence"),
        sa.ForeignKeyConstraint(
            ["backfill_id"], ["safe_backfill_backfill.backfill_id"], name="fk_safe_backfill_evidence_backfill_id"
        ),
        sa.ForeignKeyConstraint(
            ["backfill_id", "key"],
            ["safe_backfill_partition.backfill_id", "safe_backfill_partition.key"],
            name="fk_safe_backfill_evidence_backfill_id_key",
        ),
    )
    op.create_index("ix_safe_backfill_evidence_backfill_id_key", "safe_backfill_evidence", ["backfill_id", "key"])
    op.create_table(
        "safe_backfill_event",
        sa.Column("sequence", sa.Integer(), nullable=False),
        sa.Column("backfill_id", sa.Text(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_safe_backfill_event"),
        sa.ForeignKeyConstraint(
            ["backfill_id"], ["safe_backfill_backfill.backfill_id"], name="fk_safe_backfill_event_backfill_id"
        ),
    )
    op.create_index("ix_safe_backfill_event_backfill_id_sequence", "safe_backfill_event", ["backfill_id", "sequence"])
    op.create_table(
        "safe_backfill_target",
        sa.Column("target", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("target", name="pk_safe_backfill_target"),
    )
    op.create_table(
        "safe_backfill_range_lock",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("backfill_id", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("tenant", sa.Text(), nullable=False),
        sa.Column("window_start", sa.DateTime(timezone=True), nullable=False),
        sa.Column("window_end", sa.DateTime(timezone=True), nullable=False),
        sa.Column("claimed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_safe_backfill_range_lock"),
        sa.ForeignKeyConstraint(
            ["backfill_id"], ["safe_backfill_backfill.backfill_id"], name="fk_safe_backfill_range_lock_backfill_id"
        ),
        sa.ForeignKeyConstraint(["target"], ["safe_backfill_target.target"], name="fk_safe_backfill_range_lock_target"),
    )
    op.create_index("ix_safe_backfill_range_lock_target_tenant", "safe_backfill_range_lock", ["target", "tenant"])
    op.create_index("ix_safe_backfill_range_lock_backfill_id", "safe_backfill_range_lock", ["backfill_id"])
