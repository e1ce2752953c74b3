"""Whether the published table is what it should be: by the product's fingerprints, and by plain SQL without it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from airflow_backfill_provider.demo.data import RANGE, connect
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.warehouses import open_warehouse
from airflow_backfill_provider.warehouses.base import Backup, Fingerprint, Published, Warehouse

# Rows of 2014 are the demo's live rows; they are counted by themselves.
_EXPECTED = """
SELECT
    flight_date, carrier, flight, origin, dest, tailnum,
    make_timestamp(year, month, day, hour, minute, 0) AS scheduled_departure,
    dep_delay AS departure_delay_minutes,
    CASE WHEN flight_date BETWEEN ? AND ? THEN arr_delay ELSE coalesce(arr_delay, 0) END AS arrival_delay_minutes,
    distance AS distance_miles,
    dep_time IS NULL AS cancelled,
    arrival_delay_minutes <= 15 AS on_time
FROM raw.flights
"""
_WRONG = f"""
WITH expected AS ({_EXPECTED}),
published AS (SELECT * FROM analytics.fct_flights WHERE flight_date < DATE '2014-01-01')
SELECT (SELECT count(*) FROM (FROM published EXCEPT ALL FROM expected))
     + (SELECT count(*) FROM (FROM expected EXCEPT ALL FROM published))
"""  # noqa: S608 - both parts are constants of this module


def wrong_rows(path: Path, *, corrected: bool) -> int:
    """How many rows of the whole table differ from what raw.flights says they should be; 0 when all is well.

    :param corrected: whether the range should hold the mended rule, or, like the rest of the year, the wrong one.
    """
    first, last = RANGE if corrected else (RANGE[1], RANGE[0])
    with connect(path, read_only=True) as connection:
        return int(connection.execute(_WRONG, [first, last]).fetchall()[0][0])


def live_rows(path: Path) -> int:
    """How many rows the table holds of the day that :func:`append_live_rows` adds."""
    with connect(path, read_only=True) as connection:
        counted = "SELECT count(*) FROM analytics.fct_flights WHERE flight_date >= DATE '2014-01-01'"
        return int(connection.execute(counted).fetchall()[0][0])


def unlike_validated(ledger: Ledger, backfill_id: str, path: Path) -> list[str]:
    """Keys of the partitions whose published rows are not the ones that were staged and validated."""
    records = ledger.partitions(backfill_id)
    wanted = {
        key: Fingerprint(record.rows, record.digest, record.method)
        for key, record in records.items()
        if record.rows is not None and record.digest is not None and record.method is not None
    }
    return _unlike(ledger, backfill_id, path, wanted)


def unlike_backup(ledger: Ledger, backfill_id: str, path: Path) -> list[str]:
    """Keys of the partitions whose published rows are not those of the backup, read again from its file."""
    location = ledger.backfill(backfill_id).backup_location
    if location is None:
        return list(ledger.partitions(backfill_id))
    plan = Plan.from_document(ledger.plan(backfill_id).document)
    warehouse = _open(path)
    try:
        backup = warehouse.fingerprint(plan.target, Backup(location), plan.partitions)
    finally:
        warehouse.close()
    return _unlike(ledger, backfill_id, path, backup)


def _unlike(ledger: Ledger, backfill_id: str, path: Path, wanted: Mapping[str, Fingerprint]) -> list[str]:
    plan = Plan.from_document(ledger.plan(backfill_id).document)
    warehouse = _open(path)
    try:
        found = warehouse.fingerprint(plan.target, Published(), plan.partitions)
    finally:
        warehouse.close()
    return [key for key in plan.keys if found[key] != wanted.get(key)]


def _open(path: Path) -> Warehouse:
    return open_warehouse(
        "duckdb",
        path=str(path.resolve()),
        config={},
        staging_dir=None,
        lock_timeout=timedelta(minutes=1),
        statement_timeout=timedelta(minutes=5),
    )
