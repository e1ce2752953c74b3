"""The tables that a partitioned table is made of, and which of them hold exactly the partitions of a plan."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.warehouses.base import Target
from airflow_backfill_provider.warehouses.clocks import Clock, ColumnKind
from airflow_backfill_provider.warehouses.postgres.session import Session
from airflow_backfill_provider.warehouses.relational.tables import Place
from airflow_backfill_provider.warehouses.sql import text_literal
from airflow_backfill_provider.windows import Partition, Window, describe, merge

_VALUE = r"MINVALUE|MAXVALUE|E?'(?:[^']|'')*'|[0-9.]+"
_RANGE = re.compile(rf"\AFOR VALUES FROM \(({_VALUE})\) TO \(({_VALUE})\)\Z", re.DOTALL)
_LIST = re.compile(r"\AFOR VALUES IN \((.*)\)\Z", re.DOTALL)
_ENDLESS = {"MINVALUE", "MAXVALUE", "'infinity'", "'-infinity'"}
_NAMED_AT_MOST = 5
_NOT_ALIKE = {"p": "is partitioned itself", "f": "is a foreign table"}


@dataclass(frozen=True)
class Child:
    """One table of a partitioned one."""

    oid: int
    place: Place
    kind: str
    """PostgreSQL's letter: ``r`` for a table."""
    bound: str
    """As ATTACH PARTITION takes it: ``FOR VALUES FROM ('2024-01-01') TO ('2024-02-01')``, or ``DEFAULT``."""
    holds: str
    """SQL over its columns that is true for exactly the rows it may have."""


@dataclass(frozen=True)
class Family:
    """A partitioned table and its children."""

    place: Place
    is_child: bool
    """Whether the table is itself a partition of another one."""
    strategy: str
    """PostgreSQL's letter: ``r`` for RANGE, ``l`` for LIST, ``h`` for HASH."""
    columns: int
    column: str | None
    """The first column that it is partitioned by; None for an expression."""
    type: str
    collation: str
    default: Child | None
    children: tuple[Child, ...]
    """Without the DEFAULT one."""

    @classmethod
    def read(cls, session: Session, place: Place) -> Family:
        """The table as the catalog has it now.

        :raises SpecError: it is not partitioned by PostgreSQL.
        """
        oid = f"{text_literal(place.sql)}::regclass"
        found = session.run(
            "SELECT c.relispartition, p.partstrat, p.partnatts, a.attname, format_type(a.atttypid, a.atttypmod), l.collname "
            "FROM pg_catalog.pg_partitioned_table AS p JOIN pg_catalog.pg_class AS c ON c.oid = p.partrelid "
            "LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0] "
            f"LEFT JOIN pg_catalog.pg_collation AS l ON l.oid = p.partcollation[0] WHERE p.partrelid = {oid}"
        )
        if not found:
            raise _refused(place, "it is not partitioned by PostgreSQL, so it has no partitions to exchange")
        ((is_child, strategy, columns, column, kind, collation),) = found
        every = [
            Child(number, Place("", schema, name, is_view=False), letter, bound, holds)
            for number, schema, name, letter, bound, holds in session.run(
                "SELECT c.oid, n.nspname, c.relname, c.relkind, pg_get_expr(c.relpartbound, c.oid), "
                "pg_get_partition_constraintdef(c.oid) FROM pg_catalog.pg_inherits AS i "
                "JOIN pg_catalog.pg_class AS c ON c.oid = i.inhrelid "
                f"JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE i.inhparent = {oid} "
                "AND NOT i.inhdetachpending ORDER BY c.oid"
            )
        ]
        default = next((child for child in every if child.bound == "DEFAULT"), None)
        children = tuple(child for child in every if child is not default)
        return cls(place, is_child, strategy, columns, column, kind or "", collation or "", default, children)

    def covering(self, session: Session, target: Target, partitions: Sequence[Partition]) -> tuple[Child, ...]:
        """The children that hold the partitions and nothing else, in the order of their bounds.

        :raises SpecError: there are none such: a child holds more than the plan, or a part of the plan has no child.
        """
        if self.columns != 1 or self.column != target.partition_by or self.strategy not in "rl":
            raise _refused(self.place, f"it is not partitioned by RANGE or LIST of {target.partition_by} alone")
        if self.strategy == "r":
            chosen = self._stretches(session, target.clock, partitions)
        else:
            chosen = self._values(session, target.clock, partitions)
        if odd := [child for child in chosen if child.kind != "r"]:
            raise _refused(self.place, f"its partition {odd[0].place} {_NOT_ALIKE.get(odd[0].kind, 'is no table')}")
        return tuple(chosen)

    def _stretches(self, session: Session, clock: Clock, partitions: Sequence[Partition]) -> list[Child]:
        if not all(isinstance(partition.span, Window) for partition in partitions):
            raise _refused(self.place, "it is partitioned by RANGE, and grain list plans single values")
        if clock.kind is ColumnKind.TEXT and self.collation not in ("C", "POSIX"):
            raise _refused(
                self.place, f'the order of its partitions hangs on the collation {self.collation}; "C" is needed'
            )
        bounds = self._bounds(session)
        chosen: list[Child] = []
        for span in merge(partitions):
            assert isinstance(span, Window)
            low: Any = clock.show(span.start)
            high: Any = clock.show(span.end)
            within = sorted(
                (child for child, (start, end) in bounds.items() if _below(start, high) and _below(low, end)),
                key=lambda child: (bounds[child][0] is not None, bounds[child][0]),
            )
            for child in within:
                start, end = bounds[child]
                if start is None or end is None or start < low or end > high:
                    raise _refused(
                        self.place,
                        f"its partition {child.place} holds {_short(child.bound)}, and the plan from {low} to {high} has "
                        "only a part of it. Plan whole partitions",
                    )
            reached = low
            for child in within:
                if bounds[child][0] != reached:
                    break
                reached = bounds[child][1]
            if reached != high:
                raise self._without_child(f"{reached} and after, before {high}")
            chosen += within
        return chosen

    def _values(self, session: Session, clock: Clock, partitions: Sequence[Partition]) -> list[Child]:
        planned = {clock.only_value(partition) for partition in partitions}
        if None in planned:
            raise _refused(
                self.place, f"it is partitioned by LIST, and {describe(partitions)} is not one value for each partition"
            )
        listed = {child: set(values) for child, values in self._listed(session)}
        chosen = [child for child in self.children if listed[child] & planned]
        for child in chosen:
            if surplus := listed[child] - planned:
                raise _refused(
                    self.place,
                    f"its partition {child.place} also holds {_some(surplus)}, which the plan has not. Plan whole partitions",
                )
        if absent := planned - set().union(*(listed[child] for child in chosen)):
            raise self._without_child(_some(absent))
        return sorted(chosen, key=lambda child: sorted(map(str, listed[child])))

    def _bounds(self, session: Session) -> dict[Child, tuple[Any, Any]]:
        """Lower and upper bound of each child as values of the column; None where there is no end."""
        if not self.children:
            return {}
        pairs = []
        for child in self.children:
            if (match := _RANGE.match(child.bound)) is None:
                raise _refused(self.place, f"the bound of its partition {child.place} cannot be read: {child.bound}")
            pairs.append(", ".join(_as_literal(value) for value in match.groups()))
        values = ", ".join(f"({number}, {pair})" for number, pair in enumerate(pairs))
        rows = session.run(
            f"SELECT CAST(low AS {self.type}), CAST(high AS {self.type}) FROM (VALUES {values}) AS b (n, low, high) ORDER BY n"
        )
        return {child: (low, high) for child, (low, high) in zip(self.children, rows, strict=True)}

    def _listed(self, session: Session) -> list[tuple[Child, list[Any]]]:
        listed = []
        for child in self.children:
            if (match := _LIST.match(child.bound)) is None:
                raise _refused(self.place, f"the bound of its partition {child.place} cannot be read: {child.bound}")
            ((values,),) = session.run(f"SELECT CAST(ARRAY[{match[1]}] AS {self.type}[])")
            listed.append((child, values))
        return listed

    def _without_child(self, what: str) -> SpecError:
        if self.default is None:
            return _refused(self.place, f"it has no partition for {what}. Make it first")
        return _refused(
            self.place, f"rows of {what} are in its DEFAULT partition {self.default.place}. Make a partition for them"
        )


def _refused(place: Place, why: str) -> SpecError:
    return SpecError(f"publish.swap cannot exchange partitions of {place}: {why}; or set publish.swap: false.")


def _as_literal(value: str) -> str:
    if value in _ENDLESS:
        return "NULL"
    return value if value.endswith("'") else text_literal(value)


def _below(low: Any, high: Any) -> bool:
    """Whether the lower bound lies below the upper one; None is no end."""
    return low is None or high is None or low < high


def _short(bound: str) -> str:
    return bound.removeprefix("FOR VALUES ")


def _some(values: set[Any]) -> str:
    named = sorted(map(str, values))
    more = len(named) - _NAMED_AT_MOST
    return ", ".join(named[:_NAMED_AT_MOST]) + (f" and {more} more" if more > 0 else "")
