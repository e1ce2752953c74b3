"""The demo's first action: five wrong months, corrected through a real scheduler, and shown to be right afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from airflow_backfill_provider.demo.data import RANGE, SOURCE_ROWS, TARGET
from airflow_backfill_provider.demo.progress import BackfillProgress
from airflow_backfill_provider.demo.summary import print_summary
from airflow_backfill_provider.demo.verify import unlike_validated, wrong_rows
from airflow_backfill_provider.demo.workspace import BACKFILL_DAG, Workspace
from airflow_backfill_provider.identity import backfill_id
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.steps.report import summarise

_DAYS = (RANGE[1] - RANGE[0]).days + 1
_PATIENCE = 1800


def run(workspace: Workspace, console: Console) -> int:
    """Build everything anew, backfill, verify; 0 only when the ledger says completed and the table verifies."""
    try:
        with step(console, f"Loading {SOURCE_ROWS:,} flights of 2013, and publishing {TARGET} by a wrong rule"):
            workspace.clear()
            workspace.make()
        with step(console, "Starting Airflow: web server, scheduler, DAG processor"):
            workspace.start()
        return _backfill(workspace, console)
    finally:
        workspace.stop()


def _backfill(workspace: Workspace, console: Console) -> int:
    api = workspace.airflow.api
    conf = {
        "start_date": RANGE[0].isoformat(),
        "end_date": RANGE[1].isoformat(),
        "reason": "Missing arrival delays were filled in as 0, so cancelled flights looked punctual",
    }
    started = time.monotonic()
    run_id = api.trigger(BACKFILL_DAG, conf)
    found = backfill_id(BACKFILL_DAG, run_id)
    console.print(f"Triggered {BACKFILL_DAG} for {conf['start_date']} … {conf['end_date']}: backfill {found}")
    with Ledger(workspace.ledger_url) as ledger:
        with BackfillProgress(ledger, found, _DAYS, console) as progress:
            state = api.wait_for_run(BACKFILL_DAG, run_id, timeout=_PATIENCE, meanwhile=progress.look)
        seconds = time.monotonic() - started
        known = ledger.find_backfill(found)
        if state != "success" or known is None or known.state is not BackfillState.COMPLETED:
            console.print(api.failures(BACKFILL_DAG, run_id), highlight=False, markup=False)
            outcome = known.state if known else "never planned"
            console.print(f"[bold red]The run ended as {state}; the backfill is {outcome}.[/bold red]")
            return 1
        unlike = unlike_validated(ledger, found, workspace.engine.open)
        wrong = wrong_rows(workspace.engine.run, corrected=True)
        if unlike or wrong:
            console.print(
                f"[bold red]{TARGET} does not verify:[/bold red] {len(unlike)} partitions are not what was validated "
                f"({', '.join(unlike[:5])}), {wrong:,} rows are not what raw.flights says."
            )
            return 1
        proof = [
            f"all {_DAYS} partitions hold exactly the rows that were validated, by fingerprint",
            "every row of the year is what raw.flights says, and outside the range nothing changed, by plain SQL",
        ]
        print_summary(console, summarise(ledger, found), workspace, seconds=seconds, proof=proof)
        return 0


@contextmanager
def step(console: Console, what: str) -> Iterator[None]:
    """Say what is being done, and how long it took."""
    started = time.monotonic()
    console.print(f"{what} …", highlight=False)
    yield
    console.print(f"  {time.monotonic() - started:.1f} s", style="dim", highlight=False)
