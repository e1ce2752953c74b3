"""Use an installed provider as a first user does, outside the clone: import all of it, read DAGs, run a backfill.

Needs an AIRFLOW_HOME of its own, and the DAG folder in AIRFLOW__CORE__DAGS_FOLDER; ``--backfill FOLDER`` also needs the
database to be migrated.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import sys
from pathlib import Path
from typing import Any


def import_everything() -> int:
    """Import every module of the package; how many."""
    import airflow_backfill_provider as package

    found = [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    # Alembic runs the modules of migrations, and Python the ones named __main__; DAGs are read as Airflow reads them; the
    # local Databricks runs where there is Spark, which no extra installs.
    apart = ("migrations", "__main__", "example_dags", "local_databricks")
    names = [name for name in found if not any(part in name.split(".") for part in apart)]
    for name in names:
        importlib.import_module(name)
    return len(names)


def read_dags() -> dict[str, Any]:
    """What Airflow finds in its DAG folder.

    :raises SystemExit: a file cannot be read, or there is none.
    """
    from airflow import settings
    from airflow.dag_processing.dagbag import DagBag

    sys.path.append(settings.DAGS_FOLDER)  # as the DAG processor does
    bag = DagBag(settings.DAGS_FOLDER)
    if bag.import_errors or not bag.dags:
        raise SystemExit(f"{settings.DAGS_FOLDER}: {len(bag.dags)} DAGs; errors: {bag.import_errors}")
    return dict(bag.dags)


def backfill(dag: Any, folder: Path) -> None:
    """Correct two days of the demo's flights by one ``dag.test()``.

    :raises SystemExit: the run or the backfill did not end well, or other rows than those were corrected.
    """
    from airflow_backfill_provider.demo.data import build_warehouse, connect
    from airflow_backfill_provider.identity import backfill_id
    from airflow_backfill_provider.ledger.states import BackfillState
    from airflow_backfill_provider.ledger.store import Ledger

    warehouse = folder / "warehouse.duckdb"
    build_warehouse(warehouse)
    os.environ["AIRFLOW_CONN_WAREHOUSE_BACKFILL"] = json.dumps({"conn_type": "duckdb", "host": str(warehouse)})
    run = dag.test(run_conf={"start_date": "2013-02-08", "end_date": "2013-02-09", "reason": "delays filled in as 0"})
    with Ledger(f"sqlite:///{folder / 'ledger.db'}") as ledger:
        found = ledger.find_backfill(backfill_id(dag.dag_id, run.run_id))
    with connect(warehouse, read_only=True) as connection:
        corrected = connection.execute(
            "SELECT flight_date::VARCHAR, count(*) FROM analytics.fct_flights "
            "WHERE arrival_delay_minutes IS NULL GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    if run.state != "success" or found is None or found.state is not BackfillState.COMPLETED:
        raise SystemExit(f"The run ended as {run.state}, the backfill as {found and found.state}.")
    if corrected != [("2013-02-08", 475), ("2013-02-09", 393)]:
        raise SystemExit(
            f"Rows that were corrected, by day: {corrected}; wanted 475 on 2013-02-08 and 393 on 2013-02-09."
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backfill", type=Path, metavar="FOLDER", help="run one; FOLDER holds the ledger, ledger.db")
    options = parser.parse_args()
    print(f"{import_everything()} modules imported")
    dags = read_dags()
    print(f"{len(dags)} DAGs read: {', '.join(sorted(dags))}")
    if options.backfill:
        backfill(dags["backfill__fct_flights"], options.backfill.resolve())
        print("dag.test() of backfill__fct_flights: completed, and the right rows were corrected")


if __name__ == "__main__":
    main()
