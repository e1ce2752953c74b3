"""How far a backfill is, as its ledger tells it: bars on a terminal, a line per change otherwise."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from airflow_backfill_provider.errors import LedgerError
from airflow_backfill_provider.ledger.states import PartitionState
from airflow_backfill_provider.ledger.store import Ledger

STAGES: Mapping[str, frozenset[PartitionState]] = {
    "staged": frozenset(
        {PartitionState.STAGED, PartitionState.REJECTED, PartitionState.VALIDATED, PartitionState.PUBLISHED}
    ),
    "validated": frozenset({PartitionState.VALIDATED, PartitionState.PUBLISHED}),
    "published": frozenset({PartitionState.PUBLISHED}),
}
"""What is shown, and the partition states that count for it: who is further has been there."""
_SECONDS_PER_LINE = 3.0


class BackfillProgress:
    """Shows one backfill until it is closed; call :meth:`look` as often as wanted."""

    def __init__(self, ledger: Ledger, backfill_id: str, total: int, console: Console) -> None:
        self._ledger = ledger
        self._backfill_id = backfill_id
        self._total = total
        self._console = console
        self._started = time.monotonic()
        self._last_line = 0.0
        self._shown: dict[str, int] = {}
        self._bars: dict[str, TaskID] = {}
        self._display = Progress(
            TextColumn("  {task.description:<10}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        self._display.start()
        self._bars = {stage: self._display.add_task(stage, total=self._total) for stage in STAGES}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.look()
        self._display.stop()

    def look(self) -> None:
        """Read the ledger and show what changed; before the plan is made there is nothing to show."""
        counts = self._counts()
        if counts == self._shown:
            return
        if self._console.is_terminal:
            for stage, done in counts.items():
                self._display.update(self._bars[stage], completed=done)
        elif not self._worth_a_line(counts):
            return
        else:
            parts = "   ".join(f"{stage} {done:>3} of {self._total}" for stage, done in counts.items())
            self._console.print(f"  {time.monotonic() - self._started:5.1f} s   {parts}", highlight=False)
            self._last_line = time.monotonic()
        self._shown = counts

    def _worth_a_line(self, counts: Mapping[str, int]) -> bool:
        """A stage was finished, or the last line is a while ago."""
        finished = any(done == self._total != self._shown.get(stage) for stage, done in counts.items())
        return finished or time.monotonic() - self._last_line >= _SECONDS_PER_LINE

    def _counts(self) -> dict[str, int]:
        try:
            counts = self._ledger.counts(self._backfill_id)
        except LedgerError:
            # Not planned yet, or a writer holds the file: the next look will tell.
            return self._shown
        return {stage: sum(counts.get(state, 0) for state in states) for stage, states in STAGES.items()}
