"""What a backfill tells whoever watches numbers: a duration or a count under a documented name, tagged with the spec's name."""

from __future__ import annotations

from typing import Protocol

STAGED_SECONDS = "safe_backfill.partition.staged_seconds"
"""Duration: what it took to compute and keep one partition; of a group that was computed together, its share."""
STAGED_ROWS = "safe_backfill.partition.staged_rows"
"""Count: rows that were staged."""
CHANGED_ROWS = "safe_backfill.partition.changed_rows"
"""Count: rows that validation found changed, added or removed."""
OUTCOMES = "safe_backfill.partition.outcomes"
"""Count of partitions, tagged ``outcome``: staged, failed, validated, rejected, published, rolled_back."""
THROTTLED_SECONDS = "safe_backfill.throttled_seconds"
"""Duration: how long a backfill waited for others, once it goes on."""


class Metrics(Protocol):
    """Where the numbers go; nothing that goes wrong there ever reaches the backfill."""

    def duration(self, name: str, seconds: float) -> None:
        """Tell one duration."""
        ...

    def count(self, name: str, number: int = 1, *, outcome: str = "") -> None:
        """Add to a count."""
        ...


class Untold:
    """Tells nobody."""

    def duration(self, name: str, seconds: float) -> None: ...

    def count(self, name: str, number: int = 1, *, outcome: str = "") -> None: ...
