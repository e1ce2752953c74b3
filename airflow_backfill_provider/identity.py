"""Who a backfill is: an id that survives every clear, because dag_id and run_id do."""

from __future__ import annotations

from hashlib import sha256


def backfill_id(dag_id: str, run_id: str) -> str:
    """12 hexadecimal characters derived from the DAG run; the same for every attempt and clear of it."""
    return sha256(f"{dag_id}\0{run_id}".encode()).hexdigest()[:12]
