"""A partition, and a claim, may be a value of a list: ``value`` beside the window, whose bounds may be NULL now.

A column loses its NOT NULL by being copied, in a way that SQLite and PostgreSQL share: rebuilding a table in SQLite
would break the foreign keys to it.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for table in ("safe_backfill_partition", "safe_backfill_range_lock"):
        op.add_column(table, sa.Column("value", sa.Text()))
        for name in ("window_start", "window_end"):
            op.add_column(table, sa.Column(f"{name}_copy", sa.DateTime(timezone=True)))
            columns = sa.table(table, sa.column(name), sa.column(f"{name}_copy"))
            op.execute(columns.update().values({f"{name}_copy": columns.c[name]}))
            op.drop_column(table, name)
            op.alter_column(table, f"{name}_copy", new_column_name=name)
