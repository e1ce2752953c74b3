"""`safe-backfill plan`, `drill`, `validate-spec` and `new`: work on spec files."""

from __future__ import annotations

import getpass
import os
import sys
from argparse import Namespace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import yaml
from airflow.configuration import conf

from airflow_backfill_provider.cli.failure import plain_errors
from airflow_backfill_provider.cli.preflight import obstacles
from airflow_backfill_provider.cli.switch import heed_switch
from airflow_backfill_provider.connections import (
    SECTION,
    executor_spanning_hosts,
    installation,
    most_mapped_tasks,
    open_ledger,
    warehouse_for,
)
from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.records import Origin
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.operators.throttle import measure
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.planning import build_plan
from airflow_backfill_provider.preview import preview
from airflow_backfill_provider.spec.load import load_spec
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import Mode, Request
from airflow_backfill_provider.steps.scope import Run
from airflow_backfill_provider.steps.throttle import Throttling
from airflow_backfill_provider.steps.whole_drill import drill as run_drill
from airflow_backfill_provider.steps.work import Work, utc_now


def plan(args: Namespace) -> None:
    """Print the plan that a trigger with the same range would make, and what keeps such a run from starting."""
    with plain_errors():
        spec = _read(args.spec)
        request = Request.from_conf(
            {
                "start_date": args.from_date,
                "end_date": args.to_date,
                "partitions": args.partition,
                "exclude": args.exclude,
                "reason": args.reason,
                "expand": args.expand,
                "include_live": args.include_live,
                "mode": str(Mode.PLAN),
            }
        )
        warehouse = warehouse_for(spec)
        try:
            made = build_plan(
                spec,
                request,
                warehouse,
                backfill_id=backfill_id("preview", spec.name),
                now=datetime.now(UTC),
                strict=conf.get(SECTION, "policy", fallback="default") == "strict",
                spans_hosts=executor_spanning_hosts(),
                most_tasks=most_mapped_tasks(),
            )
        finally:
            warehouse.close()
        print(preview(made))
        for obstacle in obstacles(spec):
            print(f"Before it can run: {obstacle}")


def drill(args: Namespace) -> None:
    """Run a whole drill here and now; status 1 unless it passed."""
    with plain_errors(), open_ledger() as ledger:
        spec = _spec_of(args.name, ledger)
        asked = {
            "start_date": args.from_date,
            "end_date": args.to_date,
            "partitions": args.partition,
            "reason": args.reason,
        }
        request = Request.from_conf({**asked, "drill": True})
        run_id = f"drill__{datetime.now(UTC).isoformat()}"
        warehouse = warehouse_for(spec)
        try:
            found, by = backfill_id(spec.name, run_id, installation()), f"{getpass.getuser()} via cli"
            throttling = Throttling(ledger, found, spec.throttle, measure, utc_now, by, run_id=run_id)
            work = Work(
                spec,
                found,
                warehouse,
                ledger,
                by,
                check_stop=partial(heed_switch, spec.name),
                check_throttle=throttling,
                measure_lag=throttling.measure_lag,
                run_id=run_id,
            )
            end = run_drill(
                work, request, Run(f"backfill__{spec.name}", run_id, getpass.getuser(), Origin(installation()))
            )
        finally:
            warehouse.close()
    print(f"Drill {work.backfill_id} of {spec.target.table} {end}.")
    if not end.passed:
        raise SystemExit(1)


def _spec_of(name: str, ledger: Ledger) -> BackfillSpec:
    """The spec in that file, or that of the newest backfill of the name."""
    if Path(name).is_file():
        return _read(name)
    sys.path.append(conf.get("core", "dags_folder"))
    found = ledger.backfills(name=name, limit=1)
    if not found:
        raise SpecError(
            f"{name} is no file, and the ledger knows no backfill of that name. Give the path of the spec's YAML file."
        )
    return Plan.from_document(ledger.plan(found[0].backfill_id).document).spec


def _read(path: str) -> BackfillSpec:
    """The spec, with the folder of the DAG files on ``sys.path`` as it is where DAGs are read: its code may lie there."""
    sys.path.append(conf.get("core", "dags_folder"))
    return load_spec(path)


def validate_spec(args: Namespace) -> None:
    """Say whether a spec can be read, with every problem of the file at once."""
    with plain_errors():
        spec = _read(args.spec)
        print(f"{args.spec} is fine: {spec.name} rebuilds {spec.target.table} by {spec.target.grain}.")


def new(args: Namespace) -> None:
    """Write a first spec and its DAG file; nothing that exists is overwritten."""
    with plain_errors():
        name = args.table.rsplit(".", 1)[-1].lower()
        folder = Path(args.folder)
        spec_file = folder / f"{name}.yaml"
        dag_file = folder.parent / f"{folder.name}_dags.py"
        if not Path(args.sql).is_file():
            raise SpecError(f"--sql {args.sql}: there is no such file; give the SQL file that the scheduled DAG runs.")
        if spec_file.exists():
            raise SpecError(f"{spec_file} is there already; nothing was written.")
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "name": name,
            "target": {"table": args.table, "partition_by": args.partition_by, "key": args.key.split(",")},
            "transform": {"sql": os.path.relpath(args.sql, folder)},
            "compute": {"conn_id": args.conn_id},
        }
        spec_file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        try:
            load_spec(spec_file)
        except SpecError:
            spec_file.unlink()
            raise
        print(f"wrote {spec_file}")
        if not dag_file.exists():
            dag_file.write_text(_DAG_FILE.format(folder=folder.name), encoding="utf-8")
            print(f"wrote {dag_file}")
        print(f"Next: add checks and compare, then `airflow safe-backfill plan {spec_file} --from-date … --to-date …`.")


_DAG_FILE = '''"""DAGs of the backfill specs in {folder}/."""

from pathlib import Path

from airflow_backfill_provider.dag_factory import backfill_dags

globals().update(backfill_dags(Path(__file__).parent / "{folder}"))
'''
