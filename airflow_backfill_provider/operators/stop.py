"""The stop signals a task can see: the kill switch and a paused DAG. Whatever cannot be read means stop."""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow.sdk import Variable
from airflow.sdk.definitions.context import Context

from airflow_backfill_provider.errors import Stopped
from airflow_backfill_provider.switch import VARIABLE, decide


def stop_signal(context: Context, name: str, *, every: float = 0) -> Callable[[], None]:
    """A check that raises :class:`~airflow_backfill_provider.errors.Stopped`.

    :param every: seconds that an answer "go" may be used again; asking costs the API server two requests.
    """
    go_until = float("-inf")

    def check() -> None:
        nonlocal go_until
        if time.monotonic() < go_until:
            return
        verdict = decide(_read_switch(), name)
        if not verdict.go:
            raise Stopped(f"Stopped: {verdict.reason} Then clear the failed tasks; finished partitions are reused.")
        dag_id = context["dag_run"].dag_id
        if _is_paused(context, dag_id):
            raise Stopped(
                f"Stopped: the DAG {dag_id} is paused. Unpause it and clear the failed tasks; finished partitions are reused."
            )
        go_until = time.monotonic() + every

    return check


def _read_switch() -> str | None:
    # Without a default: with one, an API server that is down or a wrong Fernet key would read as "go".
    try:
        return str(Variable.get(VARIABLE))
    except Exception:
        return None


def _is_paused(context: Context, dag_id: str) -> bool:
    try:
        return bool(context["ti"].get_dag(dag_id).is_paused)
    except Exception as error:
        raise Stopped(
            f"Stopped: whether the DAG {dag_id} is paused cannot be read ({type(error).__name__})."
        ) from error
