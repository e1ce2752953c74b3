"""`safe-backfill stale`: published partitions whose source moved since, or that something overwrote."""

from __future__ import annotations

import shlex
from argparse import Namespace

from airflow_backfill_provider.cli.failure import plain_errors
from airflow_backfill_provider.connections import open_ledger, warehouse_for
from airflow_backfill_provider.steps.stale import find_stale


def stale(args: Namespace) -> None:
    """Print a line for each, and the request that recomputes them; with ``--fail`` it ends with status 1 when there is one."""
    with plain_errors(), open_ledger() as ledger:
        found = find_stale(ledger, args.name, warehouse_for)
    for one in found.stale:
        print(one)
    if not found.stale:
        print(f"None of {found.looked_at} published partitions of {args.name} is stale.")
        return
    print(f"{len(found.stale)} of {found.looked_at} published partitions are stale. To recompute them:")
    for request in found.requests:
        print(f"airflow dags trigger backfill__{args.name} --conf {shlex.quote(request)}")
    if args.fail:
        raise SystemExit(1)
