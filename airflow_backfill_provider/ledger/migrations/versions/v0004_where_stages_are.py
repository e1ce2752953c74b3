"""The connection of the warehouse that holds what a backfill left aside, beside the backfill."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_CONN_ID = {
    "sqlite": "json_extract(p.document, '$.spec.compute.conn_id')",
    "postgresql": "CAST(p.document AS json) -> 'spec' -> 'compute' ->> 'conn_id'",
}


def upgrade() -> None:
    op.add_column("safe_backfill_backfill", sa.Column("conn_id", sa.Text(), nullable=False, server_default=""))
    backfill = sa.table("safe_backfill_backfill", *map(sa.column, ("backfill_id", "revision", "conn_id")))
    plan = sa.table("safe_backfill_plan", *map(sa.column, ("backfill_id", "revision", "document")))
    newest = (
        sa.select(sa.text(_CONN_ID[op.get_bind().dialect.name]))
        .select_from(plan.alias("p"))
        .where(
            sa.text(
                "p.backfill_id = safe_backfill_backfill.backfill_id AND p.revision = safe_backfill_backfill.revision"
            )
        )
    )
    op.execute(backfill.update().values(conn_id=sa.func.coalesce(newest.scalar_subquery(), "")))
