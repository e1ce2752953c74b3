"""Every error of the driver becomes one of ours, with its message kept and its cause attached."""

from __future__ import annotations

import inspect

import duckdb
import pytest

from airflow_backfill_provider.errors import BackfillError, LockTimeout, WarehouseError
from airflow_backfill_provider.warehouses.duckdb.errors import translated

DRIVER_ERRORS = [error for _, error in inspect.getmembers(duckdb, inspect.isclass) if issubclass(error, duckdb.Error)]
HELD = 'IO Error: Could not set lock on file "x": Conflicting lock is held in python (PID 1)'


@pytest.mark.parametrize("error", DRIVER_ERRORS, ids=lambda error: error.__name__)
def test_every_driver_error_is_translated(error: type[duckdb.Error]) -> None:
    with pytest.raises(WarehouseError) as raised, translated("Staging 2024-01-01"):
        raise error("what the engine said")

    assert str(raised.value).startswith("Staging 2024-01-01")
    assert isinstance(raised.value.__cause__, error)
    assert "what the engine said" in str(raised.value) or error is duckdb.InterruptException


@pytest.mark.parametrize(
    ("error", "retry"),
    [
        (duckdb.IOException(HELD), True),
        (duckdb.TransactionException("Conflict on tuple deletion!"), True),
        (duckdb.TransactionException("Failed to commit: Could not write file x.wal: No space left on device"), False),
        (duckdb.IOException("No space left on device"), False),
        (duckdb.ConstraintException("Duplicate key"), False),
        (duckdb.BinderException("no such column"), False),
        (duckdb.CatalogException("no such table"), False),
        (duckdb.ConversionException("not a number"), False),
        (duckdb.OutOfMemoryException("too little"), False),
        (duckdb.InterruptException("INTERRUPT"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_locks_and_conflicts_are_worth_a_retry(error: duckdb.Error, retry: bool) -> None:
    with pytest.raises(WarehouseError) as raised, translated("Publishing"):
        raise error

    assert isinstance(raised.value, LockTimeout) is retry


def test_our_own_errors_pass_unchanged() -> None:
    own = BackfillError("ours")

    with pytest.raises(BackfillError) as raised, translated("Publishing"):
        raise own
    assert raised.value is own
