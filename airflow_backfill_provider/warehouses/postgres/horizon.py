"""Proving that a range still holds the rows that were seen in it, without reading what they hold.

A row of a heap is never changed in place: an UPDATE writes a new one, and each bears the number of the transaction that
wrote it. Numbers are given in order, and what a snapshot does not see was written by a transaction that was running at
that time, or began later. So when every row of the range has a number below that of the oldest transaction that was
running, all of them were seen; and when they are as many as were seen, none is missing.
"""

from __future__ import annotations

from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.relational.statements import Piece
from airflow_backfill_provider.warehouses.sql import text_literal


class Horizon:
    """The oldest transaction that was running when this was made; everything that ended before is seen from then on.

    It holds within one transaction of the session, in which the rows of the table were read after it was made.
    """

    def __init__(self, session: Session, table: str) -> None:
        self._session = session
        self._table = table
        # Rows bear the lower 32 bits, which come round; of two that are close, age() tells the younger.
        ((self._oldest,),) = session.run(
            "SELECT (pg_snapshot_xmin(pg_current_snapshot())::text::numeric % 4294967296)::text"
        )
        self._heaps = self._find_heaps()

    def proves(self, published: Piece, rows: int) -> bool:
        """Whether the range surely holds just the rows that were seen in it, which were so many.

        For a session that keeps every writer out of the table. ``False`` says nothing: somebody may have written, a
        transaction elsewhere may be running for long, or the rows may bear no numbers.
        """
        # Another table under the same name, or another partition, may bring rows that are old.
        if self._heaps is None or self._find_heaps() != self._heaps:
            return False
        oldest = f"(SELECT age({text_literal(self._oldest)}::xid))"
        ((found, young),) = self._session.run(
            f"SELECT count(*), count(*) FILTER (WHERE age(r.xmin) <= {oldest}) "
            f"FROM {published.table} AS r WHERE {published.predicate}"
        )
        return bool(found == rows and not young)

    def _find_heaps(self) -> list[tuple[int, int]] | None:
        """The table and every partition of it, and the files they are in; None when PostgreSQL does not keep the rows itself."""
        table = f"{text_literal(self._table)}::regclass"
        tables = self._session.run(
            "SELECT c.oid, c.relfilenode, c.relkind = 'p' OR a.amname = 'heap' FROM pg_catalog.pg_class AS c "
            "LEFT JOIN pg_catalog.pg_am AS a ON a.oid = c.relam "
            f"WHERE c.oid = {table} OR c.oid IN (SELECT relid FROM pg_partition_tree({table})) ORDER BY 1"
        )
        if not all(kept for _, _, kept in tables):
            return None
        return [(oid, file) for oid, file, _ in tables]
