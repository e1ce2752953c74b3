"""`safe-backfill status`, `list` and `abandon`: what the ledger knows."""

from __future__ import annotations

import getpass
import json
from argparse import Namespace

from airflow_backfill_provider.cli.failure import plain_errors
from airflow_backfill_provider.connections import open_ledger
from airflow_backfill_provider.ledger.states import BackfillState
from airflow_backfill_provider.steps.report import summarise


def status(args: Namespace) -> None:
    """Print one backfill's summary and its audit trail."""
    with plain_errors(), open_ledger() as ledger:
        print("\n".join(summarise(ledger, args.backfill_id).lines()))
        print("Audit trail")
        for event in ledger.events(args.backfill_id):
            detail = f"  {json.dumps(event.detail, sort_keys=True)[:200]}" if event.detail else ""
            print(f"  {event.at:%Y-%m-%dT%H:%M:%SZ}  {event.action}  by {event.by}{detail}")


def list_backfills(args: Namespace) -> None:
    """Print a line per backfill, newest first."""
    with plain_errors(), open_ledger() as ledger:
        found = ledger.backfills(name=args.name, limit=args.limit)
        for row in found:
            print(f"{row.backfill_id}  {row.created_at:%Y-%m-%dT%H:%M:%SZ}  {row.state:<20}  {row.name}  {row.reason}")
        if not found:
            print("No backfill yet.")


def abandon(args: Namespace) -> None:
    """Give up a backfill that published nothing, and free its range."""
    with plain_errors(), open_ledger() as ledger:
        ledger.move(args.backfill_id, BackfillState.EXPIRED, by=f"{getpass.getuser()} via cli", reason=args.reason)
        print(f"Backfill {args.backfill_id} is abandoned; its range is free.")
