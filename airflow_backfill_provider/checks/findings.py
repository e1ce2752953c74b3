"""What was found about the rows that are judged: the input of every verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from airflow_backfill_provider.spec.metric import ROWS, Metric, Scalar

Measured = Mapping[Metric, Scalar | Exception]
"""Values by metric; in place of a value, the error that measuring it raised."""


class Diff(Protocol):
    """Old against new rows, matched by key."""

    @property
    def old(self) -> int: ...
    @property
    def new(self) -> int: ...
    @property
    def identical(self) -> int: ...
    @property
    def changed(self) -> int: ...
    @property
    def added(self) -> int: ...
    @property
    def removed(self) -> int: ...
    @property
    def old_null_keys(self) -> int: ...
    @property
    def new_null_keys(self) -> int: ...
    @property
    def old_duplicate_keys(self) -> int: ...
    @property
    def new_duplicate_keys(self) -> int: ...


class Constraint(Protocol):
    """What the published table itself demands of its rows."""

    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def columns(self) -> Sequence[str]: ...
    @property
    def expression(self) -> str: ...
    @property
    def where(self) -> str: ...


@dataclass(frozen=True)
class Side:
    """Rows that staged ones are compared with."""

    measured: Measured
    told: str = ""
    """Which they are, where the comparison's name does not say it."""


@dataclass(frozen=True)
class Findings:
    """About one partition, or about the range as a whole."""

    key: str | None
    """The partition's; ``None`` for the range."""
    staged: Measured
    baseline: Measured
    source: Measured
    diff: Diff
    sql_failures: Mapping[str, int | Exception] = field(default_factory=dict)
    """For each ``sql`` check by name the rows its query returned, or the engine's error."""
    others: Mapping[str, Side] = field(default_factory=dict)
    """The last good backfill, and each other table by its name."""

    def side(self, name: str) -> Side:
        """The rows that staged ones are compared with; nothing measured where there are none."""
        own = {"baseline": Side(self.baseline), "source": Side(self.source)}
        return {**own, **self.others}.get(name, Side({}))

    @property
    def rows_new(self) -> int | None:
        """Staged rows."""
        return count(self.staged, ROWS)

    @property
    def rows_old(self) -> int | None:
        """Published rows."""
        return count(self.baseline, ROWS)


def count(measured: Measured, metric: Metric | None) -> int | None:
    """A metric that counts; ``None`` when it was not measured."""
    value = None if metric is None else measured.get(metric)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def failure(measured: Measured, *metrics: Metric | None) -> Exception | None:
    """The error that measuring one of the metrics raised."""
    found = (measured.get(metric) for metric in metrics if metric is not None)
    return next((value for value in found if isinstance(value, Exception)), None)
