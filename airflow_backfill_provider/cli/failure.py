"""How a command ends when something of ours goes wrong: the message, not a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_backfill_provider.errors import BackfillError, Throttled


@contextmanager
def plain_errors() -> Iterator[None]:
    """End the process with status 1 and the error's own words."""
    try:
        yield
    except Throttled as wait:
        raise SystemExit(f"Throttled: {wait} A command does not wait: run it again then.") from wait
    except BackfillError as error:
        raise SystemExit(f"{type(error).__name__}: {error}") from error
