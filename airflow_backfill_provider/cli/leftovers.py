"""`safe-backfill leftovers`, `cleanup` and `keep`: what backfills left aside, how long it is kept, and its end."""

from __future__ import annotations

import getpass
from argparse import Namespace
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from functools import partial

from airflow_backfill_provider.cli.failure import plain_errors
from airflow_backfill_provider.cli.switch import heed_switch
from airflow_backfill_provider.connections import is_connection, open_ledger, warehouse_at
from airflow_backfill_provider.errors import BackfillError, RequestError
from airflow_backfill_provider.steps.cleanup import clean_up_all
from airflow_backfill_provider.steps.leftovers import Leftover
from airflow_backfill_provider.steps.leftovers import leftovers as find_leftovers
from airflow_backfill_provider.steps.retention import keep as keep_longer
from airflow_backfill_provider.switch import ALL


def leftovers(args: Namespace) -> None:
    """Print a line for everything that is left aside, oldest first; ends with status 1 when a warehouse cannot be read."""
    now = datetime.now(UTC)
    found: list[Leftover] = []
    unread: list[str] = []
    with plain_errors(), open_ledger() as ledger:
        for conn_id in args.conn_id or ledger.connections():
            try:
                with closing(warehouse_at(conn_id)) as warehouse:
                    found += find_leftovers(ledger, warehouse, conn_id)
            except BackfillError as error:
                unread.append(f"The warehouse {conn_id} could not be read: {error}")
    for one in sorted(found, key=lambda one: one.item.modified_at):
        print(one.line(now))
    if not found:
        print("Nothing is left aside.")
    if unread:
        raise SystemExit("\n".join(unread))


def cleanup(args: Namespace) -> None:
    """Drop what is over and print a line for each.

    Ends with status 1 when something that is over could not be dropped, or when a stop of every backfill holds it back.
    """
    now = datetime.now(UTC)
    by = f"{getpass.getuser()} via cli"
    heed = partial(heed_switch, ALL)
    with plain_errors(), open_ledger() as ledger:
        dropped, failed = clean_up_all(
            ledger, args.conn_id, warehouse_at, now=now, by=by, check_stop=heed, is_known=is_connection
        )
    for one in dropped:
        print(f"dropped  {one.line(now)}")
    if not dropped:
        print("Nothing was dropped.")
    if failed:
        raise SystemExit("\n".join(failed))


def keep(args: Namespace) -> None:
    """Keep everything of one backfill for longer."""
    with plain_errors(), open_ledger() as ledger:
        until, now = _instant(args.until), datetime.now(UTC)
        keep_longer(ledger, args.backfill_id, until, now=now, by=f"{getpass.getuser()} via cli", reason=args.reason)
        print(f"What backfill {args.backfill_id} left aside is kept until {until:%Y-%m-%dT%H:%M:%SZ}, at least.")


def _instant(written: str) -> datetime:
    """The end of a day, or a datetime as it is; UTC unless it says otherwise.

    :raises RequestError: it is neither.
    """
    try:
        if len(written) == len("2024-12-31"):
            day = date.fromisoformat(written)
            return datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1)
        found = datetime.fromisoformat(written)
    except ValueError as error:
        raise RequestError(
            f"--until {written!r} is no date (2024-12-31, to its end in UTC) and no datetime (2024-12-31T12:00Z)."
        ) from error
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
