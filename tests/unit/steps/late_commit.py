"""A commit that can no longer be held back, and what happens just before and just behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from steps_world import World

from airflow_backfill_provider.warehouses.base import Publication, Receipt, Target


class Killed(BaseException):
    """The worker is gone."""


def once_confirmed(
    world: World, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch, after: Callable[[], object] = lambda: None
) -> None:
    """Let ``act`` happen when the next commit can no longer be held back, and ``after`` just behind that commit."""
    real, is_next = world.warehouse.replace_partitions, True

    def late(target: Target, publication: Publication) -> Receipt:
        nonlocal is_next
        if not is_next:
            return real(target, publication)
        publication.confirm()
        is_next = False
        act()
        receipt = real(target, replace(publication, confirm=lambda: None))
        after()
        return receipt

    monkeypatch.setattr(world.warehouse, "replace_partitions", late)


def die() -> None:
    raise Killed
