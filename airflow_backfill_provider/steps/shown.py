"""What a person reads before answering: a plan, a trial, or the evidence, in words and numbers.

Markdown of bounded length. Everything that a spec, a request or a person wrote is escaped: it is shown as it is written,
and is no link, image or HTML.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_backfill_provider.checks.outcome import Outcome
from airflow_backfill_provider.ledger.records import Approval, Gate
from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.steps.expectation import in_what_alone
from airflow_backfill_provider.steps.report import Summary
from airflow_backfill_provider.steps.tried import Trial
from airflow_backfill_provider.windows import describe

MOST_CHARACTERS = 8_000
_MOST_OF_ONE = 300
_SHOWN = 10
_SPECIAL = re.compile(r"([\\`*_{}\[\]()<>#+\-!|~&$:@])")
_HASH = 12


def subject(plan: Plan, gate: Gate, content: str) -> str:
    """One line that names what an answer would hold for; the same for the same content."""
    what = {Gate.PLAN: "plan", Gate.REVIEW: "trial", Gate.PUBLISH: "publish"}[gate]
    return f"Backfill {plan.backfill_id} of {plan.spec.name}: approve {what} {content[:_HASH]}?"


def plan_in_words(plan: Plan, asked_for: str, reason: str) -> list[str]:
    """What would be done, to how much, how it would be checked and undone, and what the plan warns of."""
    how = {answer.question: answer.answer for answer in plan.answers}
    facts = [
        f"Rebuild **{len(plan.keys):,} partitions** of {written(plan.target.table)}, {written(describe(plan.partitions))}, on {plan.engine}",
        f"Asked for by {written(asked_for)}: {written(reason) or 'no reason was given'}",
        f"{plan.baseline_rows:,} rows are published now"
        + (f", the source has {sum(plan.source_rows.values()):,}" if plan.source_rows else ""),
        f"Computed by {', '.join(written(era.file) for era in plan.eras[:_SHOWN])}",
        *(written(how[question]) for question in list(how)[2:]),
    ]
    if plan.skipped:
        facts.append(f"{len(plan.skipped):,} partitions are left out, such as {written(plan.skipped[0].key)}")
    return [*_list(facts), *_section("The plan warns", plan.warnings), *_section("Not proven", plan.not_proven)]


def trial_in_words(plan: Plan, trial: Trial) -> list[str]:
    """What the trial found."""
    before = plan.baseline[trial.partition].rows
    return _list(
        [
            f"Partition {written(trial.partition)} was computed twice, and both runs gave the same rows",
            f"{before:,} rows are published, {trial.rows:,} would take their place",
            written(str(trial.rehearsal)),
        ]
    )


def evidence_in_words(summary: Summary, evidence: Mapping[str | None, Sequence[Mapping[str, Any]]]) -> list[str]:
    """What would change, and what the checks said."""
    outcomes = [Outcome.from_json(entry) for found in evidence.values() for entry in found if "verdict" in entry]
    verdicts = Counter(str(outcome.verdict) for outcome in outcomes)
    moved = [f"{written(move.key)}: {move.rows:,} rows differ" for move in summary.moved]
    facts = [
        f"{summary.rows_old:,} published rows would become {summary.rows_new:,}: "
        f"{summary.differing('changed'):,} changed, {summary.differing('added'):,} added, "
        f"{summary.differing('removed'):,} removed",
        f"{len(summary.moved):,} of {len(summary.plan.keys):,} partitions differ",
        f"Checks: {', '.join(f'{count:,} {verdict}' for verdict, count in sorted(verdicts.items())) or 'none'}",
        f"Trial: {written(str(summary.trial)) if summary.trial else 'none passed under this plan'}",
    ]
    if alone := summary.expectation.alone:
        facts.append(
            f"{len(alone):,} partitions more differ {written(in_what_alone(summary.plan))}, which is not compared"
        )
    if summary.unmatched:
        facts.append(f"Rows of {summary.unmatched:,} partitions could not be matched by key")
    warned = [f"{outcome.partition or 'range'}: {outcome.name}" for outcome in outcomes if outcome.verdict == "warn"]
    return [
        *_list(facts),
        *_section("The partitions that move most", moved, escaped=True),
        *_section("Changed although nothing was to change", [str(one) for one in summary.expectation.changed]),
        *_section("Checks that warn", warned),
        *_section("Not proven", summary.plan.not_proven),
    ]


def who_may_answer(approvers: Sequence[str], requesters: Sequence[str], *, four_eyes: bool, waits: str) -> list[str]:
    """The rules of the answer."""
    may = f"{', '.join(written(user) for user in approvers)}" if approvers else "whoever may answer for this DAG"
    rules = [f"May approve: {may}"]
    if four_eyes:
        asked = ", ".join(written(user) for user in sorted(requesters))
        rules.append(f"Four eyes: {asked} asked for it, so an approval by {asked} does not count")
    rules.append(f"Without an answer within {waits} it is rejected")
    return ["", "**The answer**", "", *_list(rules)]


def changes_since(earlier: Approval, before: Plan, now: Plan) -> list[str]:
    """What an earlier answer was about that is not so any more."""
    changed = list(_changes(before, now)) or ["it is staged again from the start"]
    said = f"{str(earlier.decision).replace('_', ' ')} by {earlier.decided_by}"
    return _section(f"Since revision {earlier.question.revision} was {said}", changed)


def _changes(before: Plan, now: Plan) -> Iterator[str]:
    for name in BackfillSpec.model_fields:
        if getattr(before.spec, name) != getattr(now.spec, name):
            yield f"the spec's {name} changed"
    if moved := [key for key in now.keys if before.baseline.get(key) != now.baseline[key]]:
        yield f"the published rows of {len(moved):,} partitions moved: {_some(moved)}"
    if moved := [key for key, rows in now.source_rows.items() if before.source_rows.get(key) != rows]:
        yield f"the source's rows of {len(moved):,} partitions moved: {_some(moved)}"
    if before.source_versions != now.source_versions:
        yield "the sources are read at other versions"
    if before.target != now.target:
        yield "the published table is declared otherwise"


def body(*parts: Sequence[str], end: Sequence[str]) -> str:
    """The parts as one text, cut before the end where it is too long."""
    last = "\n".join(end)
    text = "\n".join(line for part in parts for line in part)
    room = MOST_CHARACTERS - len(last) - 1
    if len(text) > room:
        cut = "\n\n… cut here; `airflow safe-backfill status` and the log of scope_partitions have all of it\n"
        text = text[: room - len(cut)] + cut
    return f"{text}\n{last}"


def written(text: str) -> str:
    """Somebody's text on one line, cut, and with no meaning in Markdown."""
    line = " ".join(text.split())
    line = line if len(line) <= _MOST_OF_ONE else f"{line[: _MOST_OF_ONE - 1]}…"
    return _SPECIAL.sub(r"\\\1", line).replace("www.", "www\\.")


def _section(title: str, entries: Sequence[str], *, escaped: bool = False) -> list[str]:
    if not entries:
        return []
    shown = [entry if escaped else written(entry) for entry in entries[:_SHOWN]]
    if left_out := len(entries[_SHOWN:]):
        shown.append(f"and {left_out:,} more")
    return ["", f"**{written(title)}**", "", *_list(shown)]


def _list(entries: Sequence[str]) -> list[str]:
    return [f"- {entry}" for entry in entries]


def _some(keys: Sequence[str]) -> str:
    return ", ".join(keys[:5]) + (", …" if len(keys) > 5 else "")
