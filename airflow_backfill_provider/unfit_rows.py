"""Rows that the target would refuse: what its CHECK and NOT NULL constraints say of one row by itself."""

from __future__ import annotations

from airflow_backfill_provider.transform import quoted
from airflow_backfill_provider.warehouses.base import Constraint, ConstraintKind, Target
from airflow_backfill_provider.warehouses.predicate import row_expression


def of_one_row(target: Target) -> tuple[Constraint, ...]:
    """The constraints that a row keeps or breaks by itself. Of rows that repeat a key, nothing says which is the wrong one."""
    return tuple(one for one in target.constraints if one.kind is not ConstraintKind.UNIQUE)


def fitting(target: Target, dialect: str) -> str:
    """SQL that is true for the rows that break none of them; empty where there is none to break."""
    return " AND ".join(_kept(constraint, dialect) for constraint in of_one_row(target))


def _kept(constraint: Constraint, dialect: str) -> str:
    if constraint.kind is ConstraintKind.NOT_NULL:
        return " AND ".join(f"{quoted(name, dialect)} IS NOT NULL" for name in constraint.columns)
    return f"(({row_expression(constraint.expression, dialect)}) IS NOT FALSE)"
