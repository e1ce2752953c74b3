"""Old against new rows, matched by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_backfill_provider.checks.answer import Answer
from airflow_backfill_provider.checks.findings import Diff
from airflow_backfill_provider.checks.outcome import Outcome
from airflow_backfill_provider.checks.wording import UNIQUE_KEY, expected_of_row_diff
from airflow_backfill_provider.spec.comparisons import CompareRows


def judge_row_diff(listed: CompareRows | None, key: str | None, diff: Diff) -> Outcome:
    """Whether keys allow a row diff, and whether it lies in the bounds; ``None`` when the spec lists none."""
    comparison = listed or CompareRows()
    answer = Answer("row_diff", "row_diff", key, comparison.severity)
    if diff.new_null_keys or diff.new_duplicate_keys:
        # No severity softens it: these rows are about to be published.
        return replace(answer, severity="error").fail(
            UNIQUE_KEY,
            _key_faults("staged", diff.new_null_keys, diff.new_duplicate_keys),
            "key not unique in the staged rows: mend the SQL, or target.key in the spec",
        )
    if diff.old_null_keys or diff.old_duplicate_keys:
        found = _key_faults("published", diff.old_null_keys, diff.old_duplicate_keys)
        if listed is None:
            return replace(answer, severity="warn").fail(
                UNIQUE_KEY,
                found,
                "the published rows repeat or lack keys, so rows could not be matched; the staged rows do neither",
            )
        return answer.fail(
            UNIQUE_KEY,
            found,
            "the published rows repeat or lack keys, so rows cannot be matched; to correct exactly that, remove "
            "row_diff from compare, and bound row_count or sum instead",
        )
    counts = {"added": diff.added, "removed": diff.removed, "changed": diff.changed}
    beyond = [name for name, limit in comparison.limits.items() if counts[name] > limit]
    found = ", ".join(f"{count} {name}" for name, count in counts.items())
    detail = f"too many {' and '.join(beyond)}" if beyond else "both empty" if diff.old == diff.new == 0 else ""
    return answer.of(not beyond, expected_of_row_diff(comparison), found, detail)


def with_columns(outcome: Outcome, diff: Diff, changes: Mapping[str, int]) -> Outcome:
    """The outcome with what changed, by column; a column that differs in every matched row may be a volatile one."""
    matched = diff.identical + diff.changed
    named = ", ".join(f"{name} in {count}" for name, count in sorted(changes.items(), key=lambda one: -one[1]))
    parts = [outcome.detail, f"of {matched} matched rows changed: {named}"]
    everywhere = [name for name, count in changes.items() if count == matched]
    if everywhere:
        parts.append(
            f"100 % of the matched rows differ in {', '.join(everywhere)}: if that is meant to differ each time, as a "
            f"load time does, compare without it: exclude_columns: [{', '.join(everywhere)}]"
        )
    return replace(outcome, detail="; ".join(part for part in parts if part))


def _key_faults(side: str, absent: int, repeated: int) -> str:
    return f"{repeated} {side} rows repeat a key, {absent} lack one"
