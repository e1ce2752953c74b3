"""Rows that change their partition, or their unit, and a range of which nothing comes out again: signs of another boundary, or
another table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_backfill_provider.checks.answer import Answer
from airflow_backfill_provider.checks.outcome import Outcome

MOVED_ROWS, SAME_TABLE, UNIT_ORDER = "moved_rows", "same_table", "unit_order"
_SHOWN = 5
_AGAIN = "published keys among the staged ones"
_LOOK = "Look whether the SQL is of this table"


def judge_moved(moves: Mapping[tuple[str, str], int]) -> Outcome:
    """Whether each key stays in its partition; a warning, since a row may have been in the wrong one.

    :param moves: how many keys are published in the first partition and staged in the other.
    """
    answer = Answer(MOVED_ROWS, MOVED_ROWS, None, "warn")
    expected = "every key in the partition in which it is published"
    rows = sum(moves.values())
    largest = sorted(moves.items(), key=lambda one: (-one[1], one[0]))
    named = ", ".join(f"{left} to {came} ({count})" for (left, came), count in largest[:_SHOWN])
    more = f" and {len(largest) - _SHOWN} more pairs" if largest[_SHOWN:] else ""
    detail = f"from {named}{more}. A bound of the SQL that is off by a little, or another timezone, moves rows so; a corrected date does too"
    return answer.of(not rows, expected, f"{rows} rows moved" if rows else "none moved", detail if rows else "")


def is_matched(diff: Mapping[str, Any]) -> bool:
    """Whether rows of the partition could be matched by key: none is NULL, and none is there twice on a side."""
    return not any(value for name, value in diff.items() if name.endswith("_keys"))


def judge_target(
    diffs: Sequence[Mapping[str, Any]], *, removal_is_bounded: bool, keeps_unmatched: bool
) -> Outcome | None:
    """Whether any published key comes out again; None where no row is published, or the spec bounds what may be removed.

    Partitions whose rows could not be matched prove nothing and are left out. Neither does a published row that is kept
    because no other took its place: there only one that changed does.

    :param diffs: what was recorded of each partition's rows.
    """
    if removal_is_bounded or not all(_total(diffs, side) for side in ("old", "new")):
        return None
    matched = [diff for diff in diffs if is_matched(diff)]
    left_out = len(diffs) - len(matched)
    aside = f"{left_out} partitions are left out, whose published keys are NULL or repeat" if left_out else ""
    answer = Answer(SAME_TABLE, SAME_TABLE, None, "error")
    old, new, removed, changed, added = (
        _total(matched, what) for what in ("old", "new", "removed", "changed", "added")
    )
    if left_out and not (old and new):
        return answer.warned(_AGAIN, "not known", f"{aside}, and the others have no rows to match. {_LOOK}")
    if keeps_unmatched:
        if changed:
            return answer.passed(_AGAIN, f"{changed} of {old} published keys come out again, changed", aside)
        if not added:
            return None
        why = f"keep_unmatched keeps every published row, so one that comes out as it was is not told from one that is kept, and none of {old} changed"
        return answer.warned(_AGAIN, "not known", "; ".join(filter(None, (why, aside))) + f". {_LOOK}")
    detail = (
        "Wrong target? The SQL may be of another table, or target.key is not what identifies a row in both. If all keys are meant to "
        "change, say how many: compare: [row_diff: {max_removed: …}]"
    )
    holds = removed < old
    found = f"{old - removed} of {old} published keys come out again"
    return answer.of(holds, _AGAIN, found, "; ".join(filter(None, (aside, "" if holds else detail))))


def _total(diffs: Sequence[Mapping[str, Any]], what: str) -> int:
    return sum(diff[what] for diff in diffs)


def judge_units(moves: Mapping[tuple[str, str], int], order: Mapping[str, int], unit: str) -> Outcome:
    """Whether no key moves to a unit that is published earlier, where it would stand twice until its own is.

    :param order: the number of each partition's unit, in the order in which they are published.
    """
    answer = Answer(UNIT_ORDER, UNIT_ORDER, None, "error")
    early = {pair: count for pair, count in sorted(moves.items()) if order[pair[1]] < order[pair[0]]}
    expected = f"no key in an earlier {unit} than the one in which it is published"
    named = ", ".join(f"from {left} to {came} ({count})" for (left, came), count in list(early.items())[:_SHOWN])
    more = f" and {len(early) - _SHOWN} more pairs" if len(early) > _SHOWN else ""
    detail = f"{named}{more}. The publish would stop half-way: publish.unit: range replaces all of it in one commit"
    rows = sum(early.values())
    return answer.of(not early, expected, f"{rows} rows" if early else "none", detail if early else "")
