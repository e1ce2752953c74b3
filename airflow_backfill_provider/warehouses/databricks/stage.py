"""Writing a stage: each write is one INSERT, which proves on its way that every row lies in its partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from databricks.sql.exc import Error

from airflow_backfill_provider.errors import PartitionOverrun, WarehouseError
from airflow_backfill_provider.warehouses.base import (
    AFTERWARDS,
    Fill,
    Fingerprint,
    Recompute,
    Running,
    StagedPartition,
    Target,
    Tell,
)
from airflow_backfill_provider.warehouses.databricks.catalog import describe_table
from airflow_backfill_provider.warehouses.databricks.dialect import DIALECT, SPELLING
from airflow_backfill_provider.warehouses.databricks.errors import is_name_mismatch, translated
from airflow_backfill_provider.warehouses.databricks.landing import DatabricksLanding
from airflow_backfill_provider.warehouses.databricks.session import Session
from airflow_backfill_provider.warehouses.databricks.statements import Statements
from airflow_backfill_provider.warehouses.databricks.storage import Storage
from airflow_backfill_provider.warehouses.databricks.versions import pin
from airflow_backfill_provider.warehouses.landed import dropped_afterwards
from airflow_backfill_provider.warehouses.relational.dialect import EMPTY_DIGEST
from airflow_backfill_provider.warehouses.relational.statements import Buckets, Piece, fingerprints
from airflow_backfill_provider.windows import Partition, describe, merge

KEY = SPELLING.quote("safe_backfill_partition")
"""The column that a stage is partitioned by, so that writing a partition again replaces just its files."""
_OVERRUN = "safe_backfill: a row lies outside its partition"
_ZONE = "safe_backfill: not in UTC"
_UTC = ("UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "+00:00")


class DatabricksStage:
    """One batch attempt's stage; see :class:`airflow_backfill_provider.warehouses.base.StageWriter`.

    Its table is made by the first write.
    """

    def __init__(
        self,
        session: Session,
        statements: Statements | None,
        tell: Tell,
        storage: Storage,
        target: Target,
        backfill_id: str,
        location: str,
        method: str,
        drop: Callable[[str], None],
    ) -> None:
        """:param statements: the way that rows are written by; without one, by the session.
        :param drop: removes the table of a location, whatever became of the session.
        """
        self._drop = drop
        self.location = location
        self._session = session
        self._statements = statements
        self._tell = tell
        self._storage = storage
        self._target = target
        self._backfill_id = backfill_id
        self._method = method
        self._rows = storage.sql(location)
        self._exists = False
        self._kept: set[Partition] = set()

    @property
    def is_empty(self) -> bool:
        """Whether no partition was kept, for this attempt or the next."""
        return not self._kept

    def write(self, *recomputes: Recompute) -> tuple[StagedPartition, ...]:
        """Run the SELECTs and keep their rows; see :class:`StageWriter`."""
        partitions = tuple(partition for recompute in recomputes for partition in recompute.partitions)
        with ExitStack() as landings, translated(f"Staging {describe(partitions)}"):
            recomputes = tuple(self._selecting(recompute, landings) for recompute in recomputes)
            selects = [(recompute, self._text(recompute)) for recompute in recomputes]
            self._create()
            rows = " UNION ALL ".join(self._keyed(recompute, text) for recompute, text in selects)
            # Never beside what is there: after an error the rows may be committed, and the connector sends a statement again when
            # the connection breaks under it.
            replaced = f"REPLACE WHERE {KEY} IN ({_keys(partitions)})"
            try:
                self._insert(f"INSERT INTO {self._rows} BY NAME {replaced} {rows}", partitions)
            except Error as exc:
                raise self._explained(exc, selects) from exc
            staged = self.filled(partitions)
        self._kept.update(partitions)
        return staged

    def _selecting(self, recompute: Recompute, landings: ExitStack) -> Recompute:
        """The SELECT of what work outside the warehouse landed, once it is done; any other as it is."""
        if recompute.fill is None:
            return recompute
        rows = landings.enter_context(self._landed(recompute.fill))
        return replace(recompute, select=f"SELECT * FROM {rows}", fill=None)

    @contextmanager
    def _landed(self, fill: Fill) -> Iterator[str]:
        """Fill a table that is gone afterwards; the one that was filled, as SQL."""
        location = self._storage.new_location("stage", self._backfill_id, "landing")
        # The session may be cancelled by the time that it is dropped.
        with dropped_afterwards(lambda: self._drop(location)):
            self._storage.create(self._session, location, self._backfill_id, f"({self._columns()}) USING delta")
            found = describe_table(self._session, f"{self._storage.schema}.{location}")
            landing = DatabricksLanding(found.place.sql, self._target)
            fill(landing)
            landing.settle()
            yield landing.filled

    def filled(self, partitions: Sequence[Partition]) -> tuple[StagedPartition, ...]:
        """What the stage holds of each partition."""
        marks = self._fingerprints(partitions)
        return tuple(StagedPartition(partition, self.location, marks[partition.key]) for partition in partitions)

    def _insert(self, sql: str, partitions: Sequence[Partition]) -> None:
        if self._statements is None:
            self._session.run(sql)
            return
        keys = tuple(partition.key for partition in partitions)
        self._statements.run(
            f"{sql} UNION ALL {self._zone_proof()}",
            lambda statement: self._tell(Running(statement, self.location, keys)),
        )
        # It was told, so the next attempt takes it over if this one gets no further.
        self._kept.update(partitions)

    def _zone_proof(self) -> str:
        """A SELECT without rows, unless the statement has another zone than our sessions have: then it fails."""
        nulls = ", ".join("NULL" for _ in self._target.column_names)
        zones = ", ".join(map(SPELLING.text_literal, _UTC))
        return f"SELECT {nulls}, raise_error({SPELLING.text_literal(_ZONE)}) WHERE current_timezone() NOT IN ({zones})"

    def _text(self, recompute: Recompute) -> str:
        if (text := self._session.one_select(recompute.select)) is None:
            raise WarehouseError(
                f"Staging {describe(recompute.partitions)} needs one SELECT statement and nothing else."
            )
        if recompute.versions:
            text, unplanned = pin(text, recompute.versions, self._has_no_version)
            if unplanned:
                raise WarehouseError(
                    f"The SQL of {describe(recompute.partitions)} reads {', '.join(unplanned)}, which the SQL of the first "
                    "partition does not, so the plan says no version of it. Nothing was kept. Name the same tables in the SQL "
                    "of every partition."
                )
        if not recompute.over:
            return text
        name = SPELLING.quote(AFTERWARDS)
        return f"WITH {name} AS (\n{self._afterwards(recompute.over)}\n) SELECT * FROM (\n{text}\n) AS rerun"

    def _afterwards(self, staged: Sequence[StagedPartition]) -> str:
        """A SELECT of the published table as it would be with these rows in the place of their partitions'."""
        names = ", ".join(f"r.{SPELLING.quote(name)}" for name in self._target.column_names)
        kept = Piece.of(DIALECT, self._target, self._published(), [entry.partition for entry in staged])
        selects = [f"SELECT {names} FROM {kept.table} AS r WHERE {kept.predicate} IS NOT TRUE"]
        for location in dict.fromkeys(entry.location for entry in staged):
            there = [entry.partition for entry in staged if entry.location == location]
            landed = Piece.of(DIALECT, self._target, self._storage.sql(location), there)
            selects.append(f"SELECT {names} FROM {landed.table} AS r WHERE {landed.predicate}")
        return " UNION ALL ".join(selects)

    def _published(self) -> str:
        return describe_table(self._session, self._target.table).place.sql

    def _has_no_version(self, name: str) -> bool:
        return not describe_table(self._session, name).is_versioned

    def _create(self) -> None:
        if not self._exists:
            definition = f"({self._columns()}, {KEY} STRING) USING delta PARTITIONED BY ({KEY})"
            self._storage.create(self._session, self.location, self._backfill_id, definition)
            self._exists = True

    def _columns(self) -> str:
        """Those that can be written, as the target's types and without its constraints, which checks report."""
        return ", ".join(f"{SPELLING.quote(c.name)} {c.type}" for c in self._target.columns if not c.generated)

    def _keyed(self, recompute: Recompute, text: str) -> str:
        """The SELECT's rows by name, each with the key of its partition; one that is in none ends the statement."""
        names = self._target.column_names
        picks = ", ".join(f"r.{SPELLING.quote(name)}" for name in names)
        rows = f"(\n{text}\n)"
        # As many columns as the target has, or the union fails; what a name is missing for fails by that name.
        counted = f"(SELECT * FROM {rows} AS s UNION ALL SELECT {', '.join('NULL' for _ in names)} WHERE FALSE)"
        cases = " ".join(
            f"WHEN {Piece.of(DIALECT, self._target, '', [partition]).predicate} THEN {SPELLING.text_literal(partition.key)}"
            for partition in recompute.partitions
        )
        overrun = f"raise_error({SPELLING.text_literal(_OVERRUN)})"
        if recompute.keep_unmatched:
            counted = f"(SELECT {picks} FROM {counted} AS r UNION ALL {self._unmatched(recompute, rows)})"
        return f"SELECT {picks}, CASE {cases} ELSE {overrun} END AS {KEY} FROM {counted} AS r"

    def _unmatched(self, recompute: Recompute, rows: str) -> str:
        """The published rows of the partitions whose key the SELECT, which runs once more for it, does not return."""
        published = Piece.of(DIALECT, self._target, self._published(), recompute.partitions)
        picks = ", ".join(f"r.{SPELLING.quote(name)}" for name in self._target.column_names)
        match = " AND ".join(f"f.{name} = r.{name}" for name in map(SPELLING.quote, self._target.key))
        return f"SELECT {picks} FROM {published.table} AS r LEFT ANTI JOIN {rows} AS f ON {match} WHERE {published.predicate}"

    def _fingerprints(self, partitions: Sequence[Partition]) -> dict[str, Fingerprint]:
        piece = Piece.of(DIALECT, self._target, self._rows, partitions)
        buckets = Buckets(partitions, [piece])
        empty = Fingerprint(0, EMPTY_DIGEST, self._method)
        return {partition.key: empty for partition in partitions} | {
            buckets.key(bucket): Fingerprint(rows, digest, self._method)
            for bucket, rows, digest in self._session.run(
                fingerprints(DIALECT, buckets, [piece], self._target.column_names)
            )
        }

    def _explained(self, error: Exception, selects: Sequence[tuple[Recompute, str]]) -> Exception:
        """The error as a person needs it: which columns do not fit, or which rows lie outside."""
        if is_name_mismatch(error):
            for recompute, text in selects:
                if (unfitting := self._unfitting(text)) is not None:
                    return WarehouseError(
                        f"Staging {describe(recompute.partitions)} failed: {unfitting}. Nothing was kept. Name the columns of "
                        f"{self._target.table} in the SQL."
                    )
        if _ZONE in str(error):
            return WarehouseError(
                "The time zone of the SQL warehouse is not UTC, and a statement of the Statement Execution API cannot set another, "
                "so dates would become other instants. Nothing was kept. Set its parameter TIMEZONE to UTC, or "
                "backfill_statement_api: false in the extra of compute.conn_id."
            )
        if _OVERRUN in str(error):
            for recompute, text in selects:
                if (overrun := self._overrun(recompute, text)) is not None:
                    return overrun
        return error

    def _unfitting(self, text: str) -> str | None:
        found = [str(row[0]) for row in self._session.run(f"DESCRIBE QUERY {text}")]
        there, wanted = ({name.casefold(): name for name in names} for names in (found, self._target.column_names))
        missing = [name for low, name in wanted.items() if low not in there]
        surplus = [name for low, name in there.items() if low not in wanted]
        repeated = sorted({name for name in found if [one.casefold() for one in found].count(name.casefold()) > 1})
        told = {"it lacks": missing, "the table has no": surplus, "it returns twice": repeated}
        return "; ".join(f"{words} {', '.join(names)}" for words, names in told.items() if names) or None

    def _overrun(self, recompute: Recompute, text: str) -> PartitionOverrun | None:
        """Which rows they are, counted by running the SELECT once more."""
        piece = Piece.of(DIALECT, self._target, f"(\n{text}\n)", recompute.partitions)
        stray = f"{piece.column} IS NOT NULL AND NOT {piece.predicate}"
        ((rows, absent, strays, low, high),) = self._session.run(
            f"SELECT count(*), count(*) FILTER (WHERE {piece.column} IS NULL), count(*) FILTER (WHERE {stray}), "
            f"CAST(min({piece.column}) FILTER (WHERE {stray}) AS STRING), "
            f"CAST(max({piece.column}) FILTER (WHERE {stray}) AS STRING) FROM {piece.table} AS r"
        )
        if not absent and not strays:
            return None
        span = f", from {low} to {high}" if strays else ""
        spans = ", ".join(map(str, merge(recompute.partitions)))
        return PartitionOverrun(
            f"{describe(recompute.partitions)} cannot be staged: {strays} of its {rows} rows lie outside {spans}{span}, "
            f"and {absent} have no {self._target.partition_by}. Nothing was kept. Bound the SQL by "
            f"{recompute.partitions[0].span.template_names} on that column."
        )


def _keys(partitions: Sequence[Partition]) -> str:
    return ", ".join(SPELLING.text_literal(partition.key) for partition in partitions)
