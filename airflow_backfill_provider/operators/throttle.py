"""Measuring what a throttle names: a query through an Airflow connection, or a function on the worker."""

from __future__ import annotations

from importlib import import_module

from airflow.sdk.bases.hook import BaseHook

from airflow_backfill_provider.spec.throttle import Throttle


def measure(throttle: Throttle) -> object:
    """What the query or the function returns; raises whatever they raise.

    :raises ValueError: the query returned no row, or more than one column.
    """
    if throttle.callable is not None:
        module, _, name = throttle.callable.partition(":")
        return getattr(import_module(module), name)()
    row = BaseHook.get_hook(str(throttle.conn_id)).get_first(throttle.sql)
    if row is None or len(row) != 1:
        raise ValueError(f"the query must return one row of one number, and returned {row!r}"[:200])
    return row[0]
