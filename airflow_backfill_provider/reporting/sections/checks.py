"""What was checked: what failed first, then warnings, then every check with its counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from airflow_backfill_provider.checks.outcome import Outcome, Verdict
from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.reporting.tables import Cell, Table

SHOWN = 25
"""Failures, and likewise warnings, that the page lists."""
TEXT_AT_MOST = 600
"""Characters of each text on the page."""
FILE = "checks.csv"
_WITH_KEYS = frozenset({"key_outside_range", "key_repeated"})
"""Kinds whose detail may quote values of rows, which one that an earlier version of the provider judged does unasked."""


def checks(facts: Facts) -> Section:
    """Every verdict."""
    failed = [one for one in facts.outcomes if one.failed]
    warned = [one for one in facts.outcomes if one.verdict is Verdict.WARN]
    by_check: dict[tuple[str, str, str], Counter[Verdict]] = {}
    for one in facts.outcomes:
        scope = "each partition" if one.partition is not None else "whole range"
        by_check.setdefault((one.name, scope, one.expected), Counter())[one.verdict] += 1
    content = {
        "failed": [_shown(one, facts) for one in failed[:SHOWN]],
        "failed_count": len(failed),
        "warned": [_shown(one, facts) for one in warned[:SHOWN]],
        "warned_count": len(warned),
        "by_check": [
            {"name": name, "scope": scope, "expected": _cut(expected), "counts": found}
            for (name, scope, expected), found in by_check.items()
        ],
        "verdicts": tuple(Verdict),
        "file": FILE,
    }
    header = ("partition", "kind", "check", "verdict", "severity", "expected", "found", "detail", "sql")
    return Section("checks", "Checks", content, {FILE: Table(header, _rows(facts))})


def _rows(facts: Facts) -> Iterator[list[Cell]]:
    for one in facts.outcomes:
        where = one.partition if one.partition is not None else "whole range"
        yield [
            where,
            one.kind,
            one.name,
            str(one.verdict),
            one.severity,
            one.expected,
            one.actual,
            _detail(one, facts),
            one.sql,
        ]


def _shown(one: Outcome, facts: Facts) -> dict[str, str]:
    return {
        "partition": one.partition if one.partition is not None else "whole range",
        "name": _cut(one.name),
        "verdict": str(one.verdict),
        "expected": _cut(one.expected),
        "actual": _cut(one.actual),
        "detail": _cut(_detail(one, facts)),
        "sql": _cut(one.sql or ""),
    }


def _detail(one: Outcome, facts: Facts) -> str:
    return "" if one.kind in _WITH_KEYS and not facts.plan.spec.samples_in_report else one.detail


def _cut(text: str) -> str:
    return text if len(text) <= TEXT_AT_MOST else f"{text[: TEXT_AT_MOST - 1]}…"
