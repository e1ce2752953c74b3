"""The demo's second action: undo its backfill while rows that came later survive."""

from __future__ import annotations

import time

from rich.console import Console

from airflow_backfill_provider.demo.data import TARGET, append_live_rows
from airflow_backfill_provider.demo.run import step
from airflow_backfill_provider.demo.verify import live_rows, unlike_backup, wrong_rows
from airflow_backfill_provider.demo.workspace import ROLLBACK_DAG, Workspace
from airflow_backfill_provider.ledger.states import WRITTEN, BackfillState
from airflow_backfill_provider.ledger.store import Ledger

_PATIENCE = 900


def rollback(workspace: Workspace, console: Console) -> int:
    """Append live rows, restore the range, verify both; 0 only when the range equals the backup and they survived."""
    if not workspace.exists:
        console.print(f"There is nothing to undo yet: run `{workspace.calls.run}` first.")
        return 2
    with Ledger(workspace.ledger_url) as ledger:
        written = [row.backfill_id for row in ledger.backfills() if row.state in WRITTEN]
        if not written:
            console.print(f"No backfill is published, so there is nothing to undo: run `{workspace.calls.run}` first.")
            return 2
        was_running = workspace.airflow.running()
        try:
            with step(console, "Starting Airflow"):
                workspace.start()
            return _undo(workspace, ledger, written[0], console)
        finally:
            if not was_running:
                workspace.stop()


def _undo(workspace: Workspace, ledger: Ledger, backfill_id: str, console: Console) -> int:
    append_live_rows(workspace.engine.run, workspace.engine.append)
    before = live_rows(workspace.engine.run)
    console.print(f"Appended live rows after the range, as a live pipeline would: {before:,} flights of 2014-01-01")

    api = workspace.airflow.api
    started = time.monotonic()
    run_id = api.trigger(ROLLBACK_DAG, {"backfill_id": backfill_id})
    console.print(f"Triggered {ROLLBACK_DAG} for backfill {backfill_id}")
    state = api.wait_for_run(ROLLBACK_DAG, run_id, timeout=_PATIENCE)
    seconds = time.monotonic() - started
    record = ledger.backfill(backfill_id)
    if state != "success" or record.state is not BackfillState.ROLLED_BACK:
        console.print(api.failures(ROLLBACK_DAG, run_id), highlight=False, markup=False)
        console.print(f"[bold red]The run ended as {state}; the backfill is {record.state}.[/bold red]")
        return 1

    unlike = unlike_backup(ledger, backfill_id, workspace.engine.open)
    wrong = wrong_rows(workspace.engine.run, corrected=False)
    after = live_rows(workspace.engine.run)
    if unlike or wrong or after != before:
        console.print(
            f"[bold red]{TARGET} does not verify:[/bold red] {len(unlike)} partitions differ from the backup, {wrong:,} "
            f"rows differ from what was published before, {before:,} live rows became {after:,}."
        )
        return 1
    partitions = len(ledger.partitions(backfill_id))
    console.print(f"\n[bold]Backfill {backfill_id} of {TARGET}: {record.state}[/bold]")
    for name, fact in {
        "range": f"all {partitions} partitions equal the backup, by fingerprint",
        "old rows": "the whole year is again what was published before the backfill, by plain SQL",
        "live rows": f"{after:,} of {before:,} rows that came after the backfill survived",
        "time": f"{seconds:.1f} s from trigger to restored",
        "again": f"publishing again needs a new backfill: {workspace.calls.run} starts over",
    }.items():
        console.print(f"  {name:<11} {fact}", highlight=False)
    return 0
