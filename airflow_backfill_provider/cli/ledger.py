"""`safe-backfill status`, `report`, `list`, `abandon` and `accept`: what the ledger knows."""

from __future__ import annotations

import getpass
import json
from argparse import Namespace
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from functools import partial

from airflow_backfill_provider.cli.failure import plain_errors
from airflow_backfill_provider.cli.heartbeats import task_lines
from airflow_backfill_provider.cli.questions import open_questions
from airflow_backfill_provider.connections import open_ledger, warehouse_to_end
from airflow_backfill_provider.ledger.states import RELEASES_LOCK
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.ledger.trail import VALUES
from airflow_backfill_provider.operators.report_files import write_report
from airflow_backfill_provider.steps.ending import accept, give_up
from airflow_backfill_provider.steps.open_runs import open_run_lines
from airflow_backfill_provider.steps.report import summarise
from airflow_backfill_provider.steps.stored import stored_plan
from airflow_backfill_provider.steps.throttle import waiting_for
from airflow_backfill_provider.steps.waiting import waiting_lines
from airflow_backfill_provider.steps.way_on import way_on
from airflow_backfill_provider.steps.work import Work

_SHOWN = 40
"""Lines of an audit trail that a person is shown unasked; there are about two for each partition."""


def status(args: Namespace) -> None:
    """Print one backfill's summary and the end of its audit trail, or all of that with ``--trail``."""
    with plain_errors(), open_ledger() as ledger:
        backfill, now = ledger.backfill(args.backfill_id), datetime.now(UTC)
        print("\n".join(summarise(ledger, args.backfill_id).lines()))
        print("\n".join(waiting_lines(ledger, backfill, now)))
        for line in task_lines(ledger, backfill, now):
            print(line)
        if waiting := waiting_for(ledger, args.backfill_id):
            print(
                f"  waiting     since {waiting.at:%Y-%m-%dT%H:%M:%SZ}: {waiting.detail['reason']}, when it was last looked at"
            )
        print("Audit trail")
        events = ledger.events(args.backfill_id) if args.trail else ledger.last_events(args.backfill_id, _SHOWN + 1)
        if not args.trail and len(events) > _SHOWN:
            events = events[1:]
            print(f"  … earlier lines: airflow safe-backfill status {args.backfill_id} --trail")
        for event in events:
            told = {name: value for name, value in event.detail.items() if name != VALUES}
            detail = f"  {json.dumps(told, sort_keys=True)[:200]}" if told else ""
            print(f"  {event.at:%Y-%m-%dT%H:%M:%SZ}  {event.action}  by {event.by}{detail}")


def report(args: Namespace) -> None:
    """Write one backfill's report and print where its page is."""
    with plain_errors(), open_ledger() as ledger:
        print(write_report(ledger, args.backfill_id, args.folder))


def list_backfills(args: Namespace) -> None:
    """Print a line per backfill, newest first; or per range that a live run holds, oldest first, and per claim given up."""
    with plain_errors(), open_ledger() as ledger:
        if args.live:
            _list_live(ledger)
            return
        found = ledger.backfills(name=args.name, limit=args.limit)
        for row in found:
            print(f"{row.backfill_id}  {row.created_at:%Y-%m-%dT%H:%M:%SZ}  {row.state:<20}  {row.name}  {row.reason}")
        if not found:
            print("No backfill yet.")


def _list_live(ledger: Ledger) -> None:
    claims = ledger.live_claims()
    for claim in claims:
        print(f"{claim.run.claim_id}  {claim.claimed_at:%Y-%m-%dT%H:%M:%SZ}  {claim.target} {claim.span}  {claim.run}")
    if not claims:
        print("No scheduled run holds a range.")
    for given_up in ledger.given_up_claims():
        print(f"Given up: {given_up}")


def abandon(args: Namespace) -> None:
    """Give up a backfill that published nothing, or the claim of a live run that is dead, and free its range; or call off a
    rollback that broke before it put anything back."""
    with plain_errors(), open_ledger() as ledger:
        if ledger.give_up_live(args.backfill_id, by=f"{getpass.getuser()} via cli", reason=args.reason):
            print(f"Claim {args.backfill_id} is released; its range is free. Who did so and why is kept in the ledger.")
            return
    _end(args, partial(give_up, publish_is_dead=args.publish_is_dead, rollback_is_dead=args.rollback_is_dead))


def accept_published(args: Namespace) -> None:
    """Complete a published_unverified backfill as its range is, and free it."""
    _end(args, accept)


def _end(args: Namespace, how: Callable[[Work, str], None]) -> None:
    with plain_errors(), open_ledger() as ledger:
        planned = stored_plan(ledger, args.backfill_id).spec
        with closing(warehouse_to_end(planned)) as warehouse:
            work = Work(planned, args.backfill_id, warehouse, ledger, f"{getpass.getuser()} via cli")
            how(work, args.reason)
        backfill = ledger.backfill(args.backfill_id)
        if backfill.state not in RELEASES_LOCK:
            print(
                f"The rollback of backfill {args.backfill_id}, which had put nothing back, is called off. Rows of it are published, so "
                f"it is {backfill.state} and its range stays its own. {way_on(ledger, backfill)}"
            )
            return
        stays = "stays its own until its rollback is over" if ledger.is_on_way_back(args.backfill_id) else "is free"
        print(f"Backfill {args.backfill_id} is {backfill.state}; its range {stays}.")
        for line in [*open_questions(ledger, args.backfill_id), *open_run_lines(work)]:
            print(line)
