"""Writing a stage: partitions of one batch attempt, in a table that no other attempt writes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from airflow_backfill_provider.errors import PartitionOverrun, WarehouseError
from airflow_backfill_provider.warehouses.base import (
    AFTERWARDS,
    Column,
    Fill,
    Fingerprint,
    Recompute,
    StagedPartition,
    Target,
)
from airflow_backfill_provider.warehouses.relational.dialect import EMPTY_DIGEST, Dialect
from airflow_backfill_provider.warehouses.relational.session import Session
from airflow_backfill_provider.warehouses.relational.statements import Piece
from airflow_backfill_provider.warehouses.sql import quote
from airflow_backfill_provider.windows import Partition, describe, merge

_Session = TypeVar("_Session", bound=Session)
Lands = Callable[[Target, Fill], AbstractContextManager[str]]
"""Runs code on a new landing; the context has the landing's table, as SQL that the stage's session can read."""


def stored_columns(columns: Sequence[Column]) -> list[str]:
    """The columns that can be written, as the target's types and without its constraints, which checks report."""
    return [f"{quote(column.name)} {column.type}" for column in columns if not column.generated]


@dataclass(frozen=True)
class Landed:
    """What one SELECT came to in the stage."""

    rows: int
    """All that it returned."""
    marks: Mapping[Partition, Fingerprint]
    """Of those among them that lie in its own partitions; without the partitions that got none."""

    @property
    def overran(self) -> bool:
        """Whether rows lie outside its partitions."""
        return sum(mark.rows for mark in self.marks.values()) != self.rows


class StageTable(ABC, Generic[_Session]):
    """One batch attempt's stage; see :class:`airflow_backfill_provider.warehouses.base.StageWriter`.

    ``rows`` is its table, which has the target's columns that can be written.
    """

    def __init__(
        self,
        dialect: Dialect,
        session: _Session,
        rows: str,
        target: Target,
        location: str,
        method: str,
        stored: Callable[[str], str],
        landing: Lands,
    ) -> None:
        """``stored`` gives the table of another stage, as SQL that this session can read."""
        self.location = location
        self._landing = landing
        self._stored = stored
        self._dialect = dialect
        self._session = session
        self._rows = rows
        self._target = target
        self._method = method
        self._tried: set[Partition] = set()
        self._kept: set[Partition] = set()

    @abstractmethod
    def _writing(self, what: str) -> AbstractContextManager[None]:
        """One transaction that reads the warehouse and writes the stage; ``what`` starts the sentence of an error."""

    @abstractmethod
    def _published(self) -> str:
        """The published table, as SQL."""

    @abstractmethod
    def _land(self, selects: Sequence[tuple[Sequence[Partition], str]]) -> list[Landed]:
        """Insert the rows of each SELECT by name, and hold them to the partitions beside it.

        :raises: the engine's error, or ours, naming a column that is missing or too much.
        """

    @abstractmethod
    def _every_row_and(self, table: str, rest: str) -> str:
        """A SELECT of the rows of the table, and of those of another SELECT that has the target's columns."""

    @property
    def is_empty(self) -> bool:
        """Whether no partition was kept."""
        return not self._kept

    def write(self, *recomputes: Recompute) -> tuple[StagedPartition, ...]:
        """Run the SELECTs and keep their rows; see :class:`StageWriter`."""
        with ExitStack() as landings:
            return self._keep([self._selecting(recompute, landings) for recompute in recomputes])

    def _selecting(self, recompute: Recompute, landings: ExitStack) -> Recompute:
        """The SELECT of what code landed, once it has run; any other as it is."""
        if recompute.fill is None:
            return recompute
        rows = landings.enter_context(self._landing(self._target, recompute.fill))
        return replace(recompute, select=f"SELECT * FROM {rows}", fill=None)

    def _keep(self, recomputes: Sequence[Recompute]) -> tuple[StagedPartition, ...]:
        partitions = tuple(partition for recompute in recomputes for partition in recompute.partitions)
        with self._writing(f"Staging {describe(partitions)}"):
            texts = [self._text(recompute) for recompute in recomputes]
            # Also after an error: it may have come when the rows were committed already.
            if again := self._tried.intersection(partitions):
                self._session.run(f"DELETE FROM {self._rows} AS r WHERE {self._piece(sorted(again)).predicate}")
            self._tried.update(partitions)
            marks = dict.fromkeys(partitions, Fingerprint(0, EMPTY_DIGEST, self._method))
            selects = [
                (recompute.partitions, self._with_unmatched(recompute, text))
                for recompute, text in zip(recomputes, texts, strict=True)
            ]
            for recompute, text, landed in zip(recomputes, texts, self._land(selects), strict=True):
                if landed.overran:
                    raise self._overrun(recompute, text)
                marks.update(landed.marks)
        self._kept.update(partitions)
        return tuple(StagedPartition(partition, self.location, marks[partition]) for partition in partitions)

    def _text(self, recompute: Recompute) -> str:
        if (text := self._session.one_select(recompute.select)) is None:
            raise WarehouseError(
                f"Staging {describe(recompute.partitions)} needs one SELECT statement and nothing else."
            )
        if not recompute.over:
            return text
        return (
            f"WITH {quote(AFTERWARDS)} AS (\n{self._afterwards(recompute.over)}\n) SELECT * FROM (\n{text}\n) AS rerun"
        )

    def _afterwards(self, staged: Sequence[StagedPartition]) -> str:
        """A SELECT of the published table as it would be with these rows in the place of their partitions'."""
        names = ", ".join(f"r.{quote(name)}" for name in self._target.column_names)
        places: dict[str, list[Partition]] = {}
        for entry in staged:
            places.setdefault(entry.location, []).append(entry.partition)
        replaced = [entry.partition for entry in staged]
        kept = Piece.of(self._dialect, self._target, self._published(), replaced)
        selects = [f"SELECT {names} FROM {kept.table} AS r WHERE {kept.predicate} IS NOT TRUE"]
        for location, partitions in places.items():
            table = self._rows if location == self.location else self._stored(location)
            landed = Piece.of(self._dialect, self._target, table, partitions)
            selects.append(f"SELECT {names} FROM {landed.table} AS r WHERE {landed.predicate}")
        return " UNION ALL ".join(selects)

    def _with_unmatched(self, recompute: Recompute, text: str) -> str:
        """The SELECT, and the published rows whose key it does not return."""
        if not recompute.keep_unmatched:
            return text
        published = Piece.of(self._dialect, self._target, self._published(), recompute.partitions)
        names = ", ".join(f"r.{quote(name)}" for name in self._target.column_names)
        match = " AND ".join(f"f.{quote(name)} = r.{quote(name)}" for name in self._target.key)
        unmatched = (
            f"SELECT {names} FROM {published.table} AS r "
            f"WHERE {published.predicate} AND NOT EXISTS (SELECT 1 FROM fresh AS f WHERE {match})"
        )
        return f"WITH fresh AS MATERIALIZED (\n{text}\n) {self._every_row_and('fresh', unmatched)}"

    def _overrun(self, recompute: Recompute, select: str) -> PartitionOverrun:
        """Which rows they are: alone in the table, within the transaction that is about to be rolled back."""
        self._session.run(f"DELETE FROM {self._rows}")
        (landed,) = self._land([(recompute.partitions, select)])
        piece = self._piece(recompute.partitions)
        stray = f"{piece.column} IS NOT NULL AND NOT {piece.predicate}"
        ((absent, strays, low, high),) = self._session.run(
            f"SELECT count(*) FILTER (WHERE {piece.column} IS NULL), count(*) FILTER (WHERE {stray}), "
            f"CAST(min({piece.column}) FILTER (WHERE {stray}) AS VARCHAR), "
            f"CAST(max({piece.column}) FILTER (WHERE {stray}) AS VARCHAR) FROM {self._rows} AS r"
        )
        span = f", from {low} to {high}" if strays else ""
        spans = ", ".join(map(str, merge(recompute.partitions)))
        return PartitionOverrun(
            f"{describe(recompute.partitions)} cannot be staged: {strays} of its {landed.rows} rows lie outside {spans}{span}, "
            f"and {absent} have no {self._target.partition_by}. Nothing was kept. Bound the SQL by "
            f"{recompute.partitions[0].span.template_names} on that column."
        )

    def _piece(self, partitions: Sequence[Partition]) -> Piece:
        return Piece.of(self._dialect, self._target, self._rows, partitions)
