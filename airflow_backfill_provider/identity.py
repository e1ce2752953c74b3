"""Who a backfill is: an id that survives every clear, because dag_id and run_id do."""

from __future__ import annotations

import re
from hashlib import sha256

from airflow_backfill_provider.errors import RequestError

UNKNOWN_USER = "unknown user"
"""Who asked, when Airflow cannot say who triggered a run."""

_ID = re.compile(r"\A[0-9a-f]{12}\Z")


def backfill_id(dag_id: str, run_id: str, installation: str = "") -> str:
    """12 hexadecimal characters derived from the DAG run; the same for every attempt and clear of it.

    Two Airflow installations have runs of the same ids; what tells them apart is the name of each.
    """
    return _hashed(installation, dag_id, run_id)


def claim_id(dag_id: str, run_id: str, task_id: str, map_index: int, installation: str = "") -> str:
    """12 hexadecimal characters derived from a task of a run; the same for every attempt and clear of it."""
    return _hashed(installation, dag_id, run_id, task_id, str(map_index))


def _hashed(installation: str, *parts: str) -> str:
    # An installation without a name has the ids that it had before there were names.
    named = (f"installation {installation}", *parts) if installation else parts
    return sha256("\0".join(named).encode()).hexdigest()[:12]


def require_id(text: str) -> str:
    """The text, when it is an id; it becomes part of names of tables and files.

    :raises RequestError: it is not 12 hexadecimal characters.
    """
    if not _ID.match(text):
        raise RequestError(
            f"backfill_id is {text!r}; it must be 12 characters of 0-9 and a-f. Copy it from the report or from "
            "`airflow safe-backfill list`, or leave it out."
        )
    return text
