"""Writing a stage: rows are landed and proved in DuckDB, then kept in one commit of the attempt's own Delta table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from deltalake import DeltaTable, write_deltalake

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.warehouses.base import Recompute, StagedPartition, Target
from airflow_backfill_provider.warehouses.delta.dialect import DIALECT
from airflow_backfill_provider.warehouses.delta.errors import translated
from airflow_backfill_provider.warehouses.delta.root import Root
from airflow_backfill_provider.warehouses.delta.session import OWN, DeltaSession, Pinned
from airflow_backfill_provider.warehouses.delta.storage import QUICKLY, Storage
from airflow_backfill_provider.warehouses.duckdb.stage import RowsByName
from airflow_backfill_provider.warehouses.relational.added import absent, with_absent
from airflow_backfill_provider.warehouses.relational.stage import Lands
from airflow_backfill_provider.warehouses.relational.statements import Buckets
from airflow_backfill_provider.warehouses.sql import quote, quote_all, shown_literal, text_literal
from airflow_backfill_provider.windows import Partition, describe

KEY = "safe_backfill_partition"
"""The column that a stage is partitioned by, so that writing a partition again replaces just its files."""
_LANDED = f"{OWN}.main.safe_backfill_landed"
_ABSENT = ("", "__HIVE_DEFAULT_PARTITION__")
"""Texts that Delta reads as NULL where they are the value of a partition column."""


class DeltaStage(RowsByName[DeltaSession]):
    """One batch attempt's stage: a Delta table of its own, made by the first write that keeps something."""

    def __init__(
        self,
        root: Root,
        storage: Storage,
        session: DeltaSession,
        target: Target,
        location: str,
        method: str,
        stored: Callable[[str], str],
        landing: Lands,
    ) -> None:
        super().__init__(DIALECT, session, _LANDED, target, location, method, stored, landing)
        self._root = root
        self._storage = storage
        self._table: DeltaTable | None = None
        self._committed = False

    @property
    def is_empty(self) -> bool:
        return not self._committed

    def write(self, *recomputes: Recompute) -> tuple[StagedPartition, ...]:
        with translated("Making room"):
            self._session.run(f"DROP TABLE IF EXISTS {_LANDED}")
            self.create()
        partitions = [partition for recompute in recomputes for partition in recompute.partitions]
        again = not self._tried.isdisjoint(partitions)
        staged = super().write(*recomputes)
        with translated(f"Keeping {describe(partitions)}"):
            self._commit(partitions, again=again)
        return staged

    @contextmanager
    def _writing(self, what: str) -> Iterator[None]:
        # No transaction: what lands is in memory and thrown away before the next write.
        with translated(what):
            yield
            self._refuse_unkeepable()

    def _text(self, recompute: Recompute) -> str:
        self._session.read_at(recompute.versions)
        text = super()._text(recompute)
        unplanned = sorted(self._session.versions.keys() - recompute.versions.keys())
        if recompute.versions and unplanned:
            raise WarehouseError(
                f"The SQL of {describe(recompute.partitions)} reads {', '.join(unplanned)}, which the SQL of the first "
                "partition does not, so the plan says no version of it. Nothing was kept. Name the same tables in the SQL "
                "of every partition."
            )
        return text

    def _published(self) -> str:
        """The latest version, whatever version of it the SELECT reads."""
        pinned = self._target_table
        there = [field.name for field in pinned.table.schema().fields]
        return with_absent(pinned.sql, absent(self._target, there), DIALECT.spelling)

    @property
    def _target_table(self) -> Pinned:
        place = self._root.locate(self._target.table)
        return self._session.pin_stored(self._root.uri(place.schema, place.name))

    def _refuse_unkeepable(self) -> None:
        """:raises WarehouseError: a value could not be read back from the target once it was published."""
        types = {column.name: column.type for column in self._target.columns}
        values = ", ".join(map(text_literal, _ABSENT))
        for name in self._target_table.table.metadata().partition_columns:
            if not DIALECT.is_text(types.get(name)):
                continue
            ((rows,),) = self._session.run(f"SELECT count(*) FROM {_LANDED} WHERE {quote(name)} IN ({values})")
            if rows:
                raise WarehouseError(
                    f"{rows} rows have an empty {name} (or {_ABSENT[1]}), and {self._target.table} is partitioned by {name}: "
                    f"Delta would keep NULL instead. Nothing was kept. Write NULL, or another text, in the SQL."
                )

    def _commit(self, partitions: Sequence[Partition], *, again: bool) -> None:
        """Keep what landed; ``again`` says that something of these partitions may have been kept before."""
        uri = self._storage.uri(self.location)
        with self._session.rows(self._keyed(partitions)) as rows:
            if not self._committed and not self._root.is_table(uri):
                self._storage.create(self.location, rows, partition_by=[KEY])
                self._committed = True
                return
            # After a failed commit a handle may not be what the log says.
            table, self._table = self._table or self._storage.open(self.location), None
            over: dict[str, Any] = {"mode": "append"}
            if again:
                keys = ", ".join(text_literal(partition.key) for partition in partitions)
                over = {"mode": "overwrite", "predicate": f"{quote(KEY)} IN ({keys})"}
            write_deltalake(table, rows, writer_properties=QUICKLY, **over)
            self._table = table
        self._committed = True

    def _keyed(self, partitions: Sequence[Partition]) -> str:
        """A SELECT of what landed, with the key of each row's partition."""
        names = self._target.column_names
        piece = self._piece(partitions)
        buckets = Buckets(partitions, [piece])
        landed = buckets.select(piece, [f"r.{quote(name)} AS c{number}" for number, name in enumerate(names)])
        keys = ", ".join(f"({shown_literal(bucket)}, {text_literal(key)})" for bucket, key in buckets.keys.items())
        picks = ", ".join(f"p.c{number} AS {quote(name)}" for number, name in enumerate(names))
        return (
            f"SELECT {picks}, k.key AS {quote(KEY)} FROM ({landed}) AS p JOIN (VALUES {keys}) AS k(b, key) ON p.b = k.b"
        )


def copied(target: Target, table: str, predicate: str) -> str:
    """A SELECT of the rows of the published table that a backup keeps."""
    return f"SELECT {quote_all(target.column_names)} FROM {table} AS r WHERE {predicate}"
