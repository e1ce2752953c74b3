"""Functions as a team writes them, for ``transform.python``."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

RIGHT = (
    "SELECT order_id, order_date, CASE WHEN refunded THEN NULL ELSE amount END AS amount, note FROM raw.orders "
    "WHERE order_date >= DATE '{start:%Y-%m-%d}' AND order_date < DATE '{end:%Y-%m-%d}'"
)


def _select(context: Any) -> str:
    return RIGHT.format(start=context.data_interval_start, end=context.data_interval_end)


def writes(context: Any) -> None:
    """As one would write it first: one INSERT into the staging table."""
    context.connection.execute(
        f"INSERT INTO {context.staging_table} (order_id, order_date, amount, note) {_select(context)}"
    )


def returns(context: Any) -> list[dict[str, Any]]:
    """The rows as mappings."""
    rows = context.connection.execute(_select(context)).fetchall()
    return [dict(zip(context.columns, row, strict=True)) for row in rows]


def clocked(context: Any) -> list[dict[str, Any]]:
    """Rows that no second run gives again."""
    return [row | {"note": str(time.time_ns())} for row in returns(context)]


def across(context: Any) -> list[dict[str, Any]]:
    """Rows that hang on how many are computed together."""
    rows = returns(context)
    return [row | {"note": str(len(rows))} for row in rows]


def told(context: Any) -> list[dict[str, Any]]:
    """What it was told, in the notes."""
    note = f"{context.partition_key} {context.ds} {context.params['rate']} {context.data_interval_end.isoformat()}"
    return [row | {"note": note} for row in returns(context)]


def hourless(context: Any) -> None:
    """Asks for what it has no name for."""
    context.logical_date  # noqa: B018


def fails_once_in_the_middle(context: Any) -> None:
    """Breaks after having written, for one day, as long as the marker is there."""
    writes(context)
    if context.partition_key == context.params["day"] and Path(context.params["marker"]).exists():
        raise ConnectionError("the rates service does not answer")


def is_killed_once_in_the_middle(context: Any) -> None:
    """Takes its process down after having written, for one day, as long as the marker is there."""
    writes(context)
    marker = Path(context.params["marker"])
    if context.partition_key == context.params["day"] and marker.exists():
        marker.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def _outside(params: dict[str, Any], sql: str) -> None:
    """Run a statement by a connection of its own, as code that was written for another purpose does."""
    if "path" in params:
        import duckdb

        with duckdb.connect(params["path"]) as connection:
            connection.execute(sql)
    else:
        import psycopg

        with psycopg.connect(**params["address"]) as connection:
            connection.execute(sql)


def publishes_by_itself(context: Any) -> list[dict[str, Any]]:
    """Returns the right rows, and has overwritten the published ones, as the scheduled function did."""
    _outside(context.params, f"DELETE FROM {context.target_table} WHERE order_date = DATE '{context.partition_key}'")
    return returns(context)


def mends_the_day_before(context: Any) -> list[dict[str, Any]]:
    """Returns the right rows, and has changed published ones of the day before in place."""
    _outside(
        context.params,
        f"UPDATE {context.target_table} SET amount = 0 WHERE order_date = DATE '{context.partition_key}' - 1",
    )
    return returns(context)


def mends_the_day_before_until_it_is_ended(context: Any) -> None:
    """The same, by the end that an execution_timeout makes of it, which is no Exception."""
    mends_the_day_before(context)
    raise TimedOut


class TimedOut(BaseException):
    """As Airflow's AirflowTaskTimeout."""


def mends_the_day_before_and_is_killed(context: Any) -> None:
    """The same, in a process that does not live to tell, unless it is the spared one."""
    mends_the_day_before(context)
    if os.getpid() != context.params["spared"]:
        os.kill(os.getpid(), signal.SIGKILL)


def publishes_by_itself_and_breaks(context: Any) -> None:
    """Overwrites the published rows, and raises."""
    publishes_by_itself(context)
    raise ValueError("half done")


def stages_the_day_before_too(context: Any) -> None:
    """Writes rows of another partition into the stage."""
    writes(context)
    context.connection.execute(
        f"INSERT INTO {context.staging_table} (order_id, order_date, amount, note) "
        f"SELECT order_id, order_date - 1, amount, note FROM ({_select(context)}) AS rows"
    )
