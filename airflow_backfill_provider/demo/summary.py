"""What the demo says at the end, read from the ledger."""

from __future__ import annotations

from rich.console import Console

from airflow_backfill_provider.demo.workspace import Workspace
from airflow_backfill_provider.steps.report import Summary


def print_summary(
    console: Console, summary: Summary, workspace: Workspace, *, seconds: float, proof: list[str]
) -> None:
    """Print one finished backfill, a fact per line.

    :param seconds: from trigger to the end of the run.
    :param proof: what was verified, a sentence each.
    """
    backfill, plan, moved = summary.backfill, summary.plan, summary.moved
    changed, added, removed = (sum(getattr(move, what) for move in moved) for what in ("changed", "added", "removed"))
    console.print(f"\n[bold]Backfill {backfill.backfill_id} of {plan.target.table}: {backfill.state}[/bold]")
    _fact(console, "range", f"{plan.keys[0]} … {plan.keys[-1]}, {len(plan.keys)} daily partitions")
    _fact(console, "rows", f"{summary.rows_old:,} old, {summary.rows_new:,} new")
    _fact(console, "difference", f"{changed:,} changed, {added:,} added, {removed:,} removed")
    _fact(console, "moved most", *(f"{move.key}  {move.rows:>4,} rows" for move in moved[:5]))
    _fact(console, "time", f"{seconds:.1f} s from trigger to completed")
    publish = plan.spec.publish
    _fact(console, "mechanism", f"{publish.mechanism}, {publish.commits}")
    _fact(console, "verified", *proof)
    _fact(console, "not proven", *plan.not_proven)
    _fact(console, "undo", workspace.calls.rollback, f"in your own Airflow: {summary.undo}")
    _fact(
        console,
        "look next",
        f"{workspace.calls.up}  the run in Airflow's web UI",
        f"{workspace.engine.place}  the table, with its receipts",
        f"{workspace.dags / 'backfills' / 'fct_flights.yaml'}  the spec that was run",
    )


def _fact(console: Console, name: str, *lines: str) -> None:
    for index, line in enumerate(lines):
        console.print(f"  {name if index == 0 else '':<11} {line}", highlight=False, markup=False, soft_wrap=True)
