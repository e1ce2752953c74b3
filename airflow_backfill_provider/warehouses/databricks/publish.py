"""Publishing into a Delta table by one statement, which proves in its own snapshot what it replaces and what lands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from databricks.sql.exc import Error

from airflow_backfill_provider.errors import BackfillError
from airflow_backfill_provider.warehouses.base import Fingerprint, Publication, Receipt, Target
from airflow_backfill_provider.warehouses.databricks import receipts
from airflow_backfill_provider.warehouses.databricks.catalog import find_table
from airflow_backfill_provider.warehouses.databricks.dialect import DIALECT, SPELLING
from airflow_backfill_provider.warehouses.databricks.errors import is_conflict, message
from airflow_backfill_provider.warehouses.databricks.session import Session
from airflow_backfill_provider.warehouses.relational.dialect import EMPTY_DIGEST
from airflow_backfill_provider.warehouses.relational.replacement import Replacement
from airflow_backfill_provider.warehouses.relational.statements import Buckets, Piece, fingerprints
from airflow_backfill_provider.windows import merge

_NOT_PROVEN = "safe_backfill: not what was validated"


class Conflict(Exception):
    """Somebody else committed something that the range may be in; the next attempt sees it."""


def publish(
    session: Session, target: Target, publication: Publication, landing: Sequence[Piece], attempt: str
) -> Receipt:
    """Replace the range in one commit that holds the receipt too; the session's commits carry this attempt's metadata.

    :raises Conflict: nothing was written.
    """
    table = find_table(session, target.table)
    name = table.place.sql
    replacement = Replacement(DIALECT, session, table, target, publication, landing)
    replacement.refuse_other_columns()
    replacement.refuse_repeated_keys()
    publication.confirm()
    error: Exception | None = None
    try:
        session.run(statement(name, target, publication, landing, replacement.landing_rows()))
    except (Error, BackfillError) as exc:
        error = exc
    # The log decides: an answer that was lost looks like a failure.
    receipt = receipts.of_attempt(session, name, attempt)
    if receipt is not None:
        return receipt
    if isinstance(error, Error) and _NOT_PROVEN in str(error):
        replacement.refuse_moved()
        replacement.refuse_unvalidated()
        # Between the statement and these two looks it became again what it was.
        raise Conflict(message(error)) from error
    if isinstance(error, Error) and is_conflict(error):
        raise Conflict(message(error)) from error
    raise error or Conflict(f"The commit is not in the history of {target.table}.")


def statement(name: str, target: Target, publication: Publication, landing: Sequence[Piece], landing_rows: str) -> str:
    """The one INSERT. Its last SELECTs return no row, or end it: when the range is not ``before`` in the snapshot that
    it replaces, or what lands is not ``after``."""
    within = SPELLING.within(
        DIALECT.ordered(SPELLING.quote(target.partition_by), target.clock), merge(publication.partitions), target.clock
    )
    published = Piece.of(DIALECT, target, name, publication.partitions)
    proofs = [
        _unproven(target, publication, [published], publication.before),
        _unproven(target, publication, landing, publication.after),
    ]
    return f"INSERT INTO {name} BY NAME REPLACE WHERE {within} {' UNION ALL '.join([landing_rows, *proofs])}"


def _unproven(
    target: Target, publication: Publication, pieces: Sequence[Piece], expected: Mapping[str, Fingerprint]
) -> str:
    """A SELECT without rows, unless a partition has another fingerprint than expected: then it fails."""
    buckets = Buckets(publication.partitions, pieces)
    names = {key: bucket for bucket, key in buckets.keys.items()}
    values = ", ".join(
        f"({SPELLING.shown_literal(names[key])}, {mark.rows}, {SPELLING.text_literal(mark.digest)})"
        for key, mark in sorted(expected.items())
        if mark.rows
    )
    found = f"({fingerprints(DIALECT, buckets, pieces, target.column_names)}) AS f(b, n, d)"
    if values:
        differing = (
            f"(VALUES {values}) AS e(b, n, d) FULL JOIN {found} ON e.b = f.b "
            f"WHERE coalesce(e.n, 0) <> coalesce(f.n, 0) OR coalesce(e.d, '{EMPTY_DIGEST}') <> coalesce(f.d, '{EMPTY_DIGEST}')"
        )
    else:
        differing = found
    columns = target.column_names
    fails = f"raise_error({SPELLING.text_literal(_NOT_PROVEN)})"
    picks = ", ".join(
        f"{fails if position == 0 else 'NULL'} AS {SPELLING.quote(name)}" for position, name in enumerate(columns)
    )
    return f"SELECT {picks} FROM {differing}"
