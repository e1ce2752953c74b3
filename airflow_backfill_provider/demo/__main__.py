"""``python -m airflow_backfill_provider.demo run|rollback|up|down``: how the Makefile calls the demo in a clone."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from airflow_backfill_provider.demo.actions import act
from airflow_backfill_provider.demo.calls import HOME, MAKE
from airflow_backfill_provider.demo.engines import ENGINES


def main() -> int:
    """Do what the command line says; 0 when it came out well."""
    parser = argparse.ArgumentParser(prog="python -m airflow_backfill_provider.demo", description=__doc__)
    parser.add_argument("action", choices=("run", "rollback", "up", "down"))
    parser.add_argument("--home", type=Path, default=HOME, help=f"where everything goes (default: {HOME})")
    parser.add_argument("--engine", choices=sorted(ENGINES), help="default: that of the folder, else duckdb")
    parser.add_argument("--dags", type=Path, help="the DAG folder (default: the provider's example DAGs)")
    parser.add_argument("--port", type=int, help="port of the web UI (default: up takes 8080 when free)")
    options = parser.parse_args()
    return act(options.action, options.home, MAKE, engine=options.engine, dags=options.dags, port=options.port)


if __name__ == "__main__":
    sys.exit(main())
