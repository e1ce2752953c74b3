"""Whether the published table is what it should be: by the product's fingerprints, and by plain SQL without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from airflow_backfill_provider.demo.data import COLUMNS, COUNT_LIVE_ROWS, RANGE, Run
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.warehouses.base import Backup, Fingerprint, Published, Warehouse

Open = Callable[[], Warehouse]

# Rows of 2014 are the demo's live rows; they are counted by themselves.
_EXPECTED = """
SELECT
    flight_date, carrier, flight, origin, dest, tailnum,
    make_timestamp(year, month, day, hour, minute, 0) AS scheduled_departure,
    dep_delay AS departure_delay_minutes,
    arrival_delay_minutes,
    distance AS distance_miles,
    dep_time IS NULL AS cancelled,
    arrival_delay_minutes <= 15 AS on_time
FROM (
    SELECT *, CASE WHEN flight_date BETWEEN DATE '{first}' AND DATE '{last}' THEN arr_delay ELSE coalesce(arr_delay, 0) END
        AS arrival_delay_minutes
    FROM raw.flights
) AS f
"""
_WRONG = f"""
WITH expected AS ({_EXPECTED}),
published AS (SELECT {COLUMNS} FROM analytics.fct_flights WHERE flight_date < DATE '2014-01-01')
SELECT (SELECT count(*) FROM (SELECT * FROM published EXCEPT ALL SELECT * FROM expected) AS surplus)
     + (SELECT count(*) FROM (SELECT * FROM expected EXCEPT ALL SELECT * FROM published) AS missing)
"""  # noqa: S608 - every part is a constant of the demo


def wrong_rows(run: Run, *, corrected: bool) -> int:
    """How many rows of the whole table differ from what raw.flights says they should be; 0 when all is well.

    :param corrected: whether the range should hold the mended rule, or, like the rest of the year, the wrong one.
    """
    first, last = RANGE if corrected else (RANGE[1], RANGE[0])
    ((wrong,),) = run(_WRONG.format(first=first, last=last))
    return int(wrong)


def live_rows(run: Run) -> int:
    """How many rows the table holds of the day that :func:`append_live_rows` adds."""
    ((rows,),) = run(COUNT_LIVE_ROWS)
    return int(rows)


def unlike_validated(ledger: Ledger, backfill_id: str, open_warehouse: Open) -> list[str]:
    """Keys of the partitions whose published rows are not the ones that were staged and validated."""
    records = ledger.partitions(backfill_id)
    wanted = {
        key: Fingerprint(record.rows, record.digest, record.method)
        for key, record in records.items()
        if record.rows is not None and record.digest is not None and record.method is not None
    }
    return _unlike(ledger, backfill_id, open_warehouse, wanted)


def unlike_backup(ledger: Ledger, backfill_id: str, open_warehouse: Open) -> list[str]:
    """Keys of the partitions whose published rows are not those of the backup, read again from where it is."""
    location = ledger.backfill(backfill_id).backup_location
    if location is None:
        return list(ledger.partitions(backfill_id))
    plan = Plan.from_document(ledger.plan(backfill_id).document)
    warehouse = open_warehouse()
    try:
        backup = warehouse.fingerprint(plan.target, Backup(location), plan.partitions)
    finally:
        warehouse.close()
    return _unlike(ledger, backfill_id, open_warehouse, backup)


def _unlike(ledger: Ledger, backfill_id: str, open_warehouse: Open, wanted: Mapping[str, Fingerprint]) -> list[str]:
    plan = Plan.from_document(ledger.plan(backfill_id).document)
    warehouse = open_warehouse()
    try:
        found = warehouse.fingerprint(plan.target, Published(), plan.partitions)
    finally:
        warehouse.close()
    return [key for key in plan.keys if found[key] != wanted.get(key)]
