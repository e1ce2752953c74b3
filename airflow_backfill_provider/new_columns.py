"""Columns that the publish is to add to the target: what the transform yields of ``new_columns`` and the table lacks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.warehouses.base import Column, Target, Warehouse

_NO_TYPES = frozenset({"null", "unknown", "void", '"null"'})
"""What engines call the type of a bare NULL."""


def grown(spec: BackfillSpec, target: Target, surplus: Iterable[Column]) -> Target:
    """The target as it will be, with ``schema.mode: evolve``; as it is with any other.

    :param surplus: what the transform yields and the target has no place for.
    :raises SpecError: a new column has no type.
    """
    if spec.schema_gate.mode != "evolve":
        return target
    declared = {name.casefold(): column for name, column in spec.schema_gate.columns.items()}
    added: dict[str, Column] = {}
    for column in surplus:
        name = column.name.casefold()
        if name not in declared or name in added:
            continue
        if column.type.casefold() in _NO_TYPES:
            raise SpecError(
                f"schema.mode evolve cannot add {column.name}: the SQL yields NULL and no type. Write the type, as in "
                f"CAST(NULL AS DECIMAL(12, 2)) AS {column.name}."
            )
        comment = f"{declared[name]}. Added by backfill {spec.name}."
        added[name] = Column(column.name, column.type, added=comment)
    return replace(target, columns=(*target.columns, *added.values()))


def growth_cautions(target: Target, warehouse: Warehouse) -> list[str]:
    """What it comes to that the publish adds columns, a sentence each; none where it adds none.

    :raises SpecError: the engine cannot, or the connection may not.
    """
    if not target.added:
        return []
    added = ", ".join(f"{column.name} ({column.type}, comment: {column.added})" for column in target.added)
    return [
        f"schema.mode evolve: the commit of the publish adds {added} to {target.table}. It is NULL in every row outside the range. "
        "A rollback puts the range back with NULL in it, and leaves the column, since somebody may read it by then.",
        *warehouse.growth_cautions(target),
    ]
