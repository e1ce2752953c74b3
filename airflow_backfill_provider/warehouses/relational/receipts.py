"""Receipts: one row for each publish and rollback of a table, written in the commit that holds the rows."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow_backfill_provider.warehouses.base import Action, Publication, Receipt
from airflow_backfill_provider.warehouses.clocks import UTC_TIMESTAMP
from airflow_backfill_provider.warehouses.relational.dialect import CatalogDialect
from airflow_backfill_provider.warehouses.relational.session import Run
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import instant, text_literal

SCHEMA = "safe_backfill"
TABLE = "receipts"
"""Schema and name of the table that holds the receipts, in the database of the published table."""
HOME = SCHEMA, TABLE
_COLUMNS = (
    "table_schema VARCHAR NOT NULL, table_name VARCHAR NOT NULL, sequence BIGINT NOT NULL, "
    "backfill_id VARCHAR NOT NULL, action VARCHAR NOT NULL, plan_hash VARCHAR NOT NULL, "
    "partition_keys VARCHAR[] NOT NULL, deleted BIGINT NOT NULL, inserted BIGINT NOT NULL, "
    "committed_at TIMESTAMP NOT NULL, PRIMARY KEY (table_schema, table_name, sequence)"
)


class Receipts:
    """The receipts of one published table."""

    def __init__(self, dialect: CatalogDialect, run: Run, place: Place, home: tuple[str, str] = HOME) -> None:
        self._dialect = dialect
        self._run = run
        self._place = place
        self._home = home
        self._schema = place.beside(home[0])
        self._name = place.beside(*home)
        self._own = f"table_schema = {text_literal(place.schema)} AND table_name = {text_literal(place.name)}"

    def read(self) -> tuple[Receipt, ...]:
        """Every receipt of the table, oldest first; empty when the receipt table does not exist."""
        if not self._exists():
            return ()
        return tuple(
            Receipt(
                sequence, backfill_id, Action(action), plan_hash, tuple(keys), deleted, inserted, at.replace(tzinfo=UTC)
            )
            for sequence, backfill_id, action, plan_hash, keys, deleted, inserted, at in self._run(
                "SELECT sequence, backfill_id, action, plan_hash, partition_keys, deleted, inserted, committed_at "
                f"FROM {self._name} WHERE {self._own} ORDER BY sequence"
            )
        )

    def create(self) -> None:
        """Make the table of receipts; silent when it exists."""
        if not self._exists():
            ((schemas,),) = self._run(self._dialect.count_schemas(self._place.database, self._home[0]))
            # A role that may not make schemas may not say IF NOT EXISTS either, though one was made for it.
            if not schemas:
                self._run(f"CREATE SCHEMA IF NOT EXISTS {self._schema}")
            self._run(f"CREATE TABLE IF NOT EXISTS {self._name} ({_COLUMNS})")

    def write(self, publication: Publication, deleted: int, inserted: int) -> Receipt:
        """Write the next receipt; for a transaction that no other publisher of the table can be in."""
        self.create()
        ((sequence,),) = self._run(f"SELECT coalesce(max(sequence), 0) + 1 FROM {self._name} WHERE {self._own}")
        receipt = Receipt(
            sequence=sequence,
            backfill_id=publication.backfill_id,
            action=publication.action,
            plan_hash=publication.plan_hash,
            keys=tuple(partition.key for partition in publication.partitions),
            deleted=deleted,
            inserted=inserted,
            committed_at=datetime.now(UTC),
        )
        values = {
            "table_schema": text_literal(self._place.schema),
            "table_name": text_literal(self._place.name),
            "sequence": str(receipt.sequence),
            "backfill_id": text_literal(receipt.backfill_id),
            "action": text_literal(receipt.action),
            "plan_hash": text_literal(receipt.plan_hash),
            "partition_keys": f"ARRAY[{', '.join(text_literal(key) for key in receipt.keys)}]",
            "deleted": str(deleted),
            "inserted": str(inserted),
            "committed_at": instant(receipt.committed_at, UTC_TIMESTAMP),
        }
        self._run(f"INSERT INTO {self._name} ({', '.join(values)}) VALUES ({', '.join(values.values())})")
        return receipt

    def _exists(self) -> bool:
        ((tables,),) = self._run(self._dialect.count_tables(self._place.database, *self._home))
        return bool(tables)
