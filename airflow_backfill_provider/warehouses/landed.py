"""How long the place lasts in which code that is not ours puts its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from airflow_backfill_provider.errors import RunLeftOpen


@contextmanager
def dropped_afterwards(drop: Callable[[], None]) -> Iterator[None]:
    """Drop a landing once its rows were read or could not be had; one that a run may still fill is left to whoever goes on with it.

    When nobody does, it is a leftover of the backfill, which clean-up drops.
    """
    try:
        yield
    except RunLeftOpen:
        raise
    except BaseException:
        drop()
        raise
    else:
        drop()
