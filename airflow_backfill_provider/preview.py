"""A plan in words: what `safe-backfill plan` and `mode: plan` print. The same object is what a run executes."""

from __future__ import annotations

from airflow_backfill_provider.plan import Plan
from airflow_backfill_provider.spec.quantities import write_duration
from airflow_backfill_provider.steps.gates import who_is_asked
from airflow_backfill_provider.windows import Window

_SHOWN = 20


def preview(plan: Plan) -> str:
    """The whole plan as text."""
    if not plan.partitions:
        skipped = "\n".join(f"  {skip.key}: {skip.reason}" for skip in plan.skipped)
        return f"Nothing to do for {plan.target.table}: no partition is left in the range.\n{skipped}"
    batches = plan.batches()
    publish, version = plan.spec.publish, plan.target.version
    lines = [
        f"Plan of {plan.spec.name} for {plan.target.table} on {plan.engine}",
        f"  intent      {plan.intent_hash[:12]}   plan {plan.plan_hash[:12]}   backfill {plan.backfill_id}",
        *_which(plan),
        f"  batches     {len(batches)} tasks of up to {max(len(batch.keys) for batch in batches)} partitions, "
        f"at most {plan.spec.compute.max_concurrency} at once in pool {plan.spec.compute.pool}",
        *(
            [f"  budget      at most {', '.join(budgets)}; about {plan.expected_rows:,} rows are expected"]
            if (budgets := plan.spec.compute.budgets)
            else []
        ),
        *([f"  trial       {plan.trial_partition.key}, before the others"] if plan.spec.trial.enabled else []),
        f"  asked       {who_is_asked(plan)}",
        *([f"  live        {', '.join(one.key for one in plan.live)}: staged last"] if plan.live else []),
        *([f"  control     {', '.join(plan.control)}: recomputed, compared, never published"] if plan.control else []),
        f"  rows        {plan.baseline_rows:,} published now"
        + (f", {sum(plan.source_rows.values()):,} in the source" if plan.source_rows else ""),
        *(
            [f"  cutoff      of {plan.spec.source.table}, rows with {plan.arrived}"]
            if plan.spec.source and plan.arrived
            else []
        ),
        *(
            [
                f"  sources     {', '.join(f'{name} at version {number}' for name, number in plan.source_versions.items())}"
            ]
            if plan.source_versions
            else []
        ),
        f"  storage     at the peak two copies of the range: about {2 * plan.baseline_rows:,} rows in staging and backup"
        + (
            f", and until the old version expires another {version.rows:,} rows: the whole table again"
            if version
            else ""
        ),
        f"  mechanism   {publish.mechanism}: {publish.commits}",
        (
            f"  write-block about {plan.write_block.total_seconds():,.1f} s in the longest commit, in which nobody else can write the table"
            if plan.replaced_per_second is not None
            else "  write-block none: others go on writing the table during the commit"
        ),
        *(
            [
                f"  view        shows {version.table}; all of its {version.rows:,} rows are copied, or recomputed in the range"
            ]
            if version
            else []
        ),
        f"  inverse     rollback__{plan.spec.name} {publish.way_back}, "
        f"kept until {write_duration(plan.spec.rollback.keep_for)} after the publish",
    ]
    if plan.range_found is not None:
        lines += [f"  boundary    {boundary}" for boundary in plan.range_found.boundaries]
    if plan.affected:
        lines.append(f"  affected    {sum(plan.affected.values()):,} published rows ({plan.spec.range.affected_when})")
    if plan.skipped:
        lines.append(f"  left out    {', '.join(f'{skip.key} ({skip.reason})' for skip in plan.skipped[:5])}")
    lines.append("The five questions")
    lines += [
        f"  {answer.question} [{'written' if answer.written else 'default'}]\n      {answer.answer}"
        for answer in plan.answers
    ]
    lines.append("Schema")
    changed = [f"  {fit}" for fit in plan.schema_section if fit.is_changed]
    alike = {fit.name for fit in plan.schema_section} - {fit.name for fit in plan.schema_section if fit.is_changed}
    lines += [*changed, f"  {len(alike)} columns land as the type they are computed as"]
    lines.append("Constraints of the table, checked on the staged rows")
    lines += [f"  {constraint.name}: {constraint.text}" for constraint in plan.target.constraints] or ["  none"]
    lines.append("Warnings")
    lines += [f"  - {warning}" for warning in plan.warnings] or ["  none"]
    lines.append("Not proven")
    lines += [f"  - {sentence}" for sentence in plan.not_proven]
    for era in plan.eras:
        of_file = f" ({era.file} for {era.partitions} partitions: {era.label})" if plan.spec.transform.stretches else ""
        lines.append(f"{era.title}{of_file}")
        lines += [f"    {line}" for line in era.text.splitlines()]
    return "\n".join(lines)


def _which(plan: Plan) -> list[str]:
    first, last = plan.partitions[0], plan.partitions[-1]
    target = plan.spec.target
    if not (isinstance(first.span, Window) and isinstance(last.span, Window)):
        shown = ", ".join(plan.keys[:_SHOWN]) + (" …" if len(plan.keys) > _SHOWN else "")
        return [f"  partitions  {len(plan.partitions)} values of {plan.target.partition_by}: {shown}"]
    bounds = f"[{first.span.start:%Y-%m-%dT%H:%M:%SZ}, {last.span.end:%Y-%m-%dT%H:%M:%SZ})"
    return [
        f"  partitions  {len(plan.partitions)} of one {target.grain} in {target.timezone}: {first.key} … {last.key}",
        f"  bounds      {bounds} UTC, half-open",
    ]
