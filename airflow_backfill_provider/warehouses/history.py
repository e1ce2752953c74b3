"""What the log of a Delta table says against recomputing from it or publishing to it.

Rows that were changed in place, versions that go, receipts that go.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

_IN_PLACE = {
    "UPDATE": ("numUpdatedRows", "num_updated_rows"),
    "DELETE": ("numDeletedRows", "num_deleted_rows"),
    "MERGE": (
        "numTargetRowsUpdated",
        "numTargetRowsDeleted",
        "num_target_rows_updated",
        "num_target_rows_deleted",
    ),
    "RESTORE": (),
}
"""What changes rows that were there, and the metrics that say of how many."""
_LOG = "delta.logRetentionDuration"
_RETENTIONS = {"delta.deletedFileRetentionDuration": timedelta(days=7), _LOG: timedelta(days=30)}
"""How long what an earlier version needs is kept, and the default of Delta."""
_UNITS = {"week": "weeks", "day": "days", "hour": "hours", "minute": "minutes", "second": "seconds"}
_LENGTH = re.compile(r"(\d+)\s+(week|day|hour|minute|second)s?\b")


@dataclass(frozen=True)
class Commit:
    """One commit of a table."""

    version: int
    at: datetime
    operation: str
    metrics: Mapping[str, Any]
    predicate: str
    """Of the rows that it was meant for, as the log writes it; empty where it says none."""

    @property
    def is_in_place(self) -> bool:
        """Whether it changed or removed rows that were there."""
        if (names := _IN_PLACE.get(self.operation)) is None:
            return False
        known = [int(self.metrics[name]) for name in names if name in self.metrics]
        # A commit that only drops whole files may not count their rows.
        return not known or any(known) or self.operation == "DELETE"


def changed_in_place(table: str, commits: Iterable[Commit], since: datetime | None, version: int) -> list[str]:
    """A sentence when the table's rows were changed after ``since``, up to the version that is read; else nothing."""
    found = sorted(
        (one for one in commits if one.is_in_place and one.version <= version and (since is None or one.at > since)),
        key=lambda one: one.version,
    )
    if not found:
        return []
    counts = ", ".join(f"{number} {operation}" for operation, number in Counter(c.operation for c in found).items())
    last = found[-1]
    where = f" ({last.predicate})" if last.predicate else ""
    return [
        f"{table} was updated in place since the range first ran: {counts}, the last at version {last.version} of "
        f"{last.at:%Y-%m-%d %H:%M} UTC{where}. A recompute cannot show history as it was where these rows are read."
    ]


def soon_gone(table: str, properties: Mapping[str, str], needed: timedelta) -> list[str]:
    """A sentence for each retention that may end before a run that takes so long has read the version it is pinned to."""
    found = []
    for name in _RETENTIONS:
        kept = _kept(properties, name)
        if kept is not None and kept < needed:
            found.append(
                f"{table} keeps what its earlier versions need for {_words(kept)} ({name}), and the run may take {_words(needed)}: "
                "once that is over, VACUUM can take away the version that is read. Raise it before the run."
            )
    return found


def receipts_soon_gone(table: str, properties: Mapping[str, str], needed: timedelta) -> list[str]:
    """A sentence when the table's log, and the receipts in it, may end before the way back of a publish does."""
    kept = _kept(properties, _LOG)
    if kept is None or kept >= needed:
        return []
    return [
        f"{table} keeps its log for {_words(kept)} ({_LOG}), and the way back is kept for {_words(needed)}: from then on the table "
        "no longer tells what was published, and a rollback goes by the ledger and by what the range holds. Raise it before the run."
    ]


def sent_to_streams(table: str, properties: Mapping[str, str]) -> list[str]:
    """What a publish is to those who read a table as a stream, a sentence each. No table knows them."""
    said = [
        f"Who reads {table} as a stream is not known. At the commit of a publish, which takes rows away, a Spark stream ends with an "
        "error; with skipChangeCommits it goes on and never gets the new rows, with ignoreChanges it gets rows again that it had."
    ]
    if properties.get("delta.enableChangeDataFeed", "").casefold() == "true":
        said.append(
            f"{table} has a change data feed (delta.enableChangeDataFeed): to its readers a replacement is one version in which every "
            "row of the range is deleted and those that land are inserted, also where a row stays the same."
        )
    return said


def _kept(properties: Mapping[str, str], name: str) -> timedelta | None:
    return _length(properties[name]) if name in properties else _RETENTIONS[name]


def _length(interval: str) -> timedelta | None:
    """``interval 7 days`` as a length; None of what is not written so."""
    parts = _LENGTH.findall(interval.lower())
    return timedelta(**{_UNITS[unit]: int(number) for number, unit in parts}) if parts else None


def _words(length: timedelta) -> str:
    hours = length / timedelta(hours=1)
    return f"{hours / 24:g} days" if hours % 24 == 0 else f"{hours:g} hours"
