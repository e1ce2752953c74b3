"""The engine's way to change the range, and its way back, by the mechanism that the spec names."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from airflow_backfill_provider.spec.model import PublishSpec
from airflow_backfill_provider.warehouses.base import Action, Publication, Receipt, Target, Warehouse

Change = Callable[[Target, Publication], Receipt]


def change(warehouse: Warehouse, publish: PublishSpec) -> Change:
    """What publishes."""
    match publish.mechanism:
        case "replace_partitions":
            return warehouse.swap_children if publish.swap else warehouse.replace_partitions
        case "merge":
            return warehouse.merge
        case "view_swap":
            return warehouse.swap_view
        case _:
            assert_never(publish.mechanism)


def undo(warehouse: Warehouse, publish: PublishSpec) -> Change:
    """What restores a backup. A merge is undone by the backup's rows as a replacement is."""
    if publish.mechanism == "view_swap":
        return warehouse.swap_view
    return warehouse.swap_children if publish.swap else warehouse.replace_partitions


def mechanism_of(publish: PublishSpec, action: Action) -> str:
    """The name of what did that by the spec, for the audit trail: a mechanism, or ``swap`` of whole partitions."""
    if publish.mechanism == "view_swap":
        return publish.mechanism
    if publish.swap and action is not Action.RESTORE:
        return "swap"
    return publish.mechanism if action is Action.PUBLISH else "replace_partitions"


def bring_back(warehouse: Warehouse, publish: PublishSpec) -> Change:
    """What brings back the rows that a forced rollback overwrote; they were never a partition that could be exchanged."""
    return warehouse.swap_view if publish.mechanism == "view_swap" else warehouse.replace_partitions
