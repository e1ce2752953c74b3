"""In which order partitions are computed whose SQL reads the table that it rebuilds; refused where that is not said or cannot be."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.recompute import PlannedEra
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.transforms import SqlTransform
from airflow_backfill_provider.transform import may_read_table, other_tables, over, reads_table
from airflow_backfill_provider.warehouses.base import AFTERWARDS, Target, Warehouse


def require_order(spec: BackfillSpec, era: PlannedEra, dialect: str) -> None:
    """:raises SpecError: the SQL reads the table that it rebuilds, and in which order is not said or cannot be kept."""
    table, transform = spec.target.table, spec.transform
    if not isinstance(transform, SqlTransform):
        return
    chained = transform.depends_on_past
    if not era.first_sql or chained is False or not may_read_table(era.first_sql, table, dialect):
        return
    if not reads_table(era.first_sql, table, dialect):
        raise SpecError(
            f"{era.file} reads a table that may be {table}, the one that it rebuilds, under another name. Write that name with every "
            "part in the SQL, so that it can be told; or set transform.depends_on_past: false where it is another table, or where the "
            "SQL reads no partition of it but its own. Nothing was done."
        )
    if chained is None:
        raise SpecError(
            f"{era.file} reads {table}, the table that it rebuilds. Computed side by side, each partition would read what is "
            "published of the others now, and not what they become. Set transform.depends_on_past: true where a partition is "
            "made from those before it: they are then computed one after the other, each from the staged rows of those before; "
            "or false where it reads no partition but its own. Nothing was done."
        )
    if chained and over(era.first_sql, table, AFTERWARDS, dialect) is None:
        raise SpecError(
            f"{era.file} reads {table} in a way that cannot be turned to staged rows. With transform.depends_on_past it needs to "
            "stand as a plain table in FROM or JOIN, without ONLY, sampling or a version. Nothing was done."
        )


def require_one_name(spec: BackfillSpec, era: PlannedEra, target: Target, warehouse: Warehouse) -> None:
    """:raises SpecError: the SQL reads the table that it rebuilds by another name, where the order of partitions may matter."""
    table, transform = spec.target.table, spec.transform
    if not isinstance(transform, SqlTransform) or not era.first_sql or transform.depends_on_past is False:
        return
    if found := warehouse.aliases(target, other_tables(era.first_sql, table, warehouse.capabilities.dialect)):
        raise SpecError(
            f"{era.file} reads {', '.join(found)}, which shows rows of {table}, the table that it rebuilds. Each partition would read "
            f"what is published of the others now, and not what they become. Read {table} itself, with transform.depends_on_past: "
            "true, where a partition is made from those before it; or set transform.depends_on_past: false where it reads no "
            "partition but its own. Nothing was done."
        )


def require_chain(spec: BackfillSpec, eras: Sequence[PlannedEra], live: Sequence[str], dialect: str) -> None:
    """:raises SpecError: with depends_on_past, no SQL reads the table that it rebuilds, or a partition is still being written."""
    table = spec.target.table
    if not (spec.transform.is_chained and eras):
        return
    if live:
        raise SpecError(
            f"{', '.join(live[:3])} {'is' if len(live) == 1 else 'are'} still being written, and transform.depends_on_past makes each "
            "partition from those before it in one task, which would keep the scheduled pipeline out for as long as the whole chain "
            "takes. Nothing was done. Leave include_live out, and ask for that partition once it is over."
        )
    if all(over(era.first_sql, table, AFTERWARDS, dialect) is None for era in eras):
        raise SpecError(
            f"transform.depends_on_past is true, and {', '.join(sorted({era.file for era in eras}))} does not read {table}, so no partition "
            "would be made from the staged rows of those before it. Write that name, with every part, in FROM or JOIN, in the SQL of the "
            "first partition too, and not the name of a view of it; or leave depends_on_past out. Nothing was done."
        )
