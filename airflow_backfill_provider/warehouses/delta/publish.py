"""Publishing into a Delta table: proved at one version and committed from that version, or not at all.

A commit of somebody else in between is let by when it leaves the range alone; otherwise delta-rs refuses ours, and all of
it is proved again at the latest version.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from airflow_backfill_provider.errors import PublishRefused, SpecError
from airflow_backfill_provider.warehouses.base import Column, Fingerprint, Publication, Receipt, Target
from airflow_backfill_provider.warehouses.delta import predicate, receipts
from airflow_backfill_provider.warehouses.delta.catalog import find_table, refuse_unwritable
from airflow_backfill_provider.warehouses.delta.dialect import DIALECT
from airflow_backfill_provider.warehouses.delta.root import Root
from airflow_backfill_provider.warehouses.delta.session import DeltaSession
from airflow_backfill_provider.warehouses.relational.added import absent
from airflow_backfill_provider.warehouses.relational.replacement import Replacement, count_rows
from airflow_backfill_provider.warehouses.relational.statements import Piece
from airflow_backfill_provider.windows import Partition


@dataclass(frozen=True)
class Held:
    """What partitions of a table were found to hold at one version, which nobody can change any more."""

    table_id: str
    version: int
    target: Target
    partitions: frozenset[Partition]
    marks: Mapping[str, Fingerprint]

    def known(self, table: DeltaTable, target: Target, partitions: Collection[Partition]) -> bool:
        """Whether it tells what the partitions hold in the table that is open."""
        here = (str(table.metadata().id), table.version(), target)
        return here == (self.table_id, self.version, self.target) and self.partitions.issuperset(partitions)


class Conflict(Exception):
    """Somebody else committed something that the range may be in; the next attempt sees it."""


def publish(
    root: Root,
    session: DeltaSession,
    target: Target,
    publication: Publication,
    landing: Sequence[Piece],
    attempt: str,
    held: Held | None,
) -> Receipt:
    """Prove everything at the version that the session has pinned, and commit from there.

    :param held: what was read of the range already; read again when it was at another version.

    :raises Conflict: nothing was written.
    """
    table = find_table(root, session, target.table)
    handle = session.pin(table.place).table
    try:
        refuse_unwritable(handle, target.table)
    except SpecError as exc:
        raise PublishRefused(str(exc)) from exc
    replacement = Replacement(DIALECT, session, table, target, publication, landing)
    replacement.refuse_other_columns()
    replacement.refuse_moved(held.marks if held and held.known(handle, target, publication.partitions) else None)
    replacement.refuse_unvalidated()
    replacement.refuse_repeated_keys()
    publication.confirm()
    conflict: CommitFailedError | None = None
    try:
        commit(
            session,
            handle,
            target,
            publication,
            replacement.landing_rows(),
            attempt,
            absent(target, table.column_names),
        )
    except CommitFailedError as exc:
        conflict = exc
    # The log decides: an answer that was lost looks like a conflict, with ourselves.
    receipt = receipts.of_attempt(root.open(root.uri(table.place.schema, table.place.name)), attempt)
    if receipt is None:
        raise Conflict(str(conflict)) from conflict
    return receipt


def commit(
    session: DeltaSession,
    handle: DeltaTable,
    target: Target,
    publication: Publication,
    select: str,
    attempt: str,
    lacking: Sequence[Column],
) -> None:
    """Replace the range in one commit that holds the receipt too, and the columns that the table lacks."""
    deleted, inserted = count_rows(publication.before), count_rows(publication.after)
    with session.rows(select) as rows:
        write_deltalake(
            handle,
            _commented(rows, lacking) if lacking else rows,
            mode="overwrite",
            schema_mode="merge" if lacking else None,
            predicate=predicate.within(target.partition_by, publication.partitions, target.clock),
            commit_properties=receipts.commit_properties(publication, attempt, deleted, inserted),
        )


def _commented(rows: pyarrow.RecordBatchReader, added: Sequence[Column]) -> pyarrow.RecordBatchReader:
    """The same rows, with the comments that a Delta table keeps of its columns."""
    comments = {column.name: {"comment": column.added} for column in added}
    schema = pyarrow.schema([field.with_metadata(comments.get(field.name)) for field in rows.schema])
    batches = (pyarrow.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in rows)
    return pyarrow.RecordBatchReader.from_batches(schema, batches)
