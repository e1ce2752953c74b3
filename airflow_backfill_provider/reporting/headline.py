"""The sentence the page leads with, made from the numbers: what, which range, how much changed, and who sees it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_backfill_provider.checks.outcome import Verdict
from airflow_backfill_provider.checks.report_query import KIND
from airflow_backfill_provider.ledger.states import BackfillState, PartitionState
from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.series import Series
from airflow_backfill_provider.reporting.words import counted, listed, number, range_of
from airflow_backfill_provider.steps.expectation import in_what_alone

_NAMED = 2


@dataclass(frozen=True)
class Headline:
    """What a reader of one line must know."""

    badge: str
    """The outcome in a word or two."""
    tone: str
    """``good``, ``bad``, ``open`` or ``undone``."""
    sentence: str
    reach: str
    """Who sees the new rows."""
    why: str
    """The reason on record for the state it is in; may be empty."""


def headline(facts: Facts, measures: tuple[Series, ...]) -> Headline:
    """The page's first lines; claims only what the ledger shows."""
    badge, tone, reach = _reach(facts)
    since = "; all of it was taken back since" if facts.backfill.state is BackfillState.ROLLED_BACK else ""
    sentence = f"{facts.plan.target.table}, {range_of(facts.plan)}: {_extent(facts)}{_so_far(facts)}{_queries(facts)}{_amounts(facts, measures)}{_control(facts)}{since}."
    if facts.plan.request.drill:
        return _drill(facts)
    move = facts.moved_to(facts.backfill.state)
    return Headline(badge, tone, sentence, reach, str(move.detail["reason"]) if move else "")


def _drill(facts: Facts) -> Headline:
    where = f"A drill on {facts.plan.target.table}, {range_of(facts.plan)}"
    reach = "It publishes nothing, whatever it finds; what it staged is dropped at its end."
    end = facts.drill
    if end is None:
        return Headline("drill, going on", "open", f"{where}, goes on.", reach, "")
    badge, tone = ("drill passed", "good") if end.passed else ("drill failed", "bad")
    return Headline(badge, tone, f"{where}: {end}.", reach, end.found if end.passed else "")


def _extent(facts: Facts) -> str:
    """How many rows changed, of how many; only of the partitions of which that is known."""
    known = len(facts.compared) - len(facts.unmatched)
    if not known:
        return "how many rows change is not known, because no partition was compared with what was published"
    where = "" if known == len(facts.lines) else f" (known of {known:,} of {len(facts.lines):,} partitions)"
    changed, added, removed = (facts.differing(what) for what in ("changed", "added", "removed"))
    old = sum(line.rows_old for line in facts.compared if line.compared and line.compared.differing is not None)
    if not changed and not added and not removed:
        return f"none of {counted(old, 'row')} differs from what was published, none is added or removed{where}{_alone(facts)}"
    if not old:
        return (
            f"{counted(added, 'row')} {'added' if facts.wrote_all else 'would be added'} where there were none{where}"
        )
    verb = "changed" if facts.wrote_all else "would change"
    return f"{_or_none(changed)} of {counted(old, 'row')} {verb}, {_or_none(added)} added, {_or_none(removed)} removed{where}{_alone(facts)}"


def _alone(facts: Facts) -> str:
    """Where rows differ in nothing that is compared, and still differ."""
    count = len(facts.expectation.alone)
    if not count:
        return ""
    return f"; {counted(count, 'partition')} {'differs' if count == 1 else 'differ'} {in_what_alone(facts.plan)}, which is not compared"


def _so_far(facts: Facts) -> str:
    """How many partitions are written, while some are and others are not."""
    if not facts.wrote or facts.wrote_all:
        return ""
    return f"; written so far: {len(facts.written):,} of {counted(len(facts.to_write), 'partition')}"


def _queries(facts: Facts) -> str:
    """What the team's own queries say, before and after."""
    asked = [one for one in facts.outcomes if one.kind == KIND and one.verdict is not Verdict.ERROR]
    return "".join(f"; {one.name}: {_grouped(one.actual)} (expected {one.expected})" for one in asked[:_NAMED])


def _grouped(text: str) -> str:
    """The text with its whole numbers as the rest of the page writes them."""
    return re.sub(r"(?<![\d.])\d{4,}", lambda found: f"{int(found[0]):,}", text)


def _control(facts: Facts) -> str:
    """What the control period shows; nothing where there is none, or it was not computed."""
    moved = [key for key, control in facts.control.items() if control is not None and not control.held]
    if moved:
        return f"; but the new SQL changes {counted(len(moved), 'control partition')} as well, which the bug did not affect"
    if facts.control_held:
        return f"; {counted(len(facts.control), 'control partition')}, computed by the new SQL, came out as published"
    return ""


def _or_none(count: int) -> str:
    return f"{count:,}" if count else "none"


def _amounts(facts: Facts, measures: tuple[Series, ...]) -> str:
    """What became of the numbers that the spec watches, as far as they follow for the whole range."""
    whole = [one for one in measures if one.total.delta is not None]
    moved = [one for one in whole if one.total.delta]
    rises, falls = ("rose", "fell") if facts.wrote_all else ("would rise", "would fall")
    parts = [
        f"the {one.name} {rises if (one.total.delta or 0) > 0 else falls} by {number(one.total.moved)}, "
        f"from {number(one.total.old)} to {number(one.total.new)}"
        for one in moved[:_NAMED]
    ]
    if still := [one.name for one in whole if not one.total.delta][:_NAMED]:
        parts.append(f"{listed([f'the {name}' for name in still])} {_stays(facts, len(still))} the same")
    return "".join(f"; {part}" for part in parts)


def _stays(facts: Facts, count: int) -> str:
    return "stayed" if facts.wrote_all else "stays" if count == 1 else "stay"


def _reach(facts: Facts) -> tuple[str, str, str]:
    published = facts.counts.get(PartitionState.PUBLISHED, 0)
    everything = len(facts.lines)
    state = facts.outcome
    match state:
        case BackfillState.PUBLISHED | BackfillState.COMPLETED if not facts.wrote:
            return "nothing to publish", "good", "The published rows were right already, so nothing was written."
        case BackfillState.PUBLISHED | BackfillState.COMPLETED if not facts.verified:
            said = "A person accepted the published range, though it was not shown to hold what was staged."
            return "published, accepted", "open", said
        case BackfillState.PUBLISHED | BackfillState.COMPLETED:
            said = "Published, and read back: every partition of the range holds exactly the rows that were checked."
            return "published", "good", said
        case BackfillState.PUBLISHED_UNVERIFIED:
            said = (
                "Published, but the range was not shown to hold the rows that were checked: look before you trust it."
            )
            return "published, not verified", "bad", said
        case BackfillState.ROLLED_BACK:
            said = "It was published and taken back: readers see the old rows again, as they were backed up."
            return "rolled back", "undone", said
        case BackfillState.PUBLISHING:
            said = "A publish is under way, or was cut off: whether its commit happened, only the table's own receipts say."
            return "publishing", "bad", said
    badge = str(state).replace("_", " ")
    tone = "bad" if state in (BackfillState.FAILED, BackfillState.REJECTED) else "open"
    if published and facts.wrote:
        said = (
            f"Only {published:,} of {everything:,} partitions are published: readers see a mixture of new and old rows."
        )
        return f"{badge}, partly published", "bad", said
    return badge, tone, "Nothing is published: this backfill has written nothing that readers see."
