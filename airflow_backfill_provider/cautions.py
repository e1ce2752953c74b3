"""What a plan warns of: true of the spec, the table or the range, and no reason to refuse."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.plan import written_trial
from airflow_backfill_provider.resolution import Skipped
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.unfit_rows import of_one_row
from airflow_backfill_provider.warehouses.base import Capabilities, ChildSwap, Target
from airflow_backfill_provider.windows import Partition


def general_cautions(spec: BackfillSpec, partitions: Sequence[Partition], skipped: Sequence[Skipped]) -> list[str]:
    cautions = []
    if not spec.trial.enabled:
        cautions.append(
            "trial.enabled is false: nothing shows that a second run gives the same rows, or that the undo works."
        )
    elif spec.trial.partition is not None and written_trial(spec) not in partitions:
        cautions.append(
            f"trial.partition {spec.trial.partition} is not in the range: the partition with the most published rows is tried."
        )
    if spec.publish.unit != "range":
        cautions.append(
            f"publish.unit {spec.publish.unit}: each {spec.publish.unit} is published in a commit of its own, so the range is "
            "a mixture of new and old rows from the first commit to the last, and stays one when a later commit is refused."
        )
    if spec.compute.max_concurrency > 5:
        cautions.append(f"max_concurrency {spec.compute.max_concurrency} is above 5: watch the live pipeline.")
    if not spec.checks and not spec.comparisons:
        cautions.append("The spec has neither checks nor compare: only the built-in guards stand before the publish.")
    live = [skip.key for skip in skipped if skip.reason.startswith("not over")]
    if live:
        cautions.append(f"{len(live)} partitions are not over yet and left out: {', '.join(live[:3])}.")
    return cautions


def live_cautions(live: Sequence[str], spec: BackfillSpec) -> list[str]:
    if not live:
        return []
    return [
        f"{', '.join(live[:3])} {'is' if len(live) == 1 else 'are'} still being written: claimed, read and staged after all others. Runs "
        f"that hold a guard of {spec.target.table} wait from then until the publish; what anyone else writes there meanwhile makes "
        "the publish refuse (TargetMoved)."
    ]


def column_cautions(spec: BackfillSpec) -> list[str]:
    """New columns of which nobody said what a missing value means, and defaults of which nobody said why they are right."""
    cautions = []
    if silent := [name for name in spec.new_columns if name not in spec.schema_gate.columns]:
        cautions.append(
            f"Nothing says what it means that {', '.join(silent)} has no value: declare schema.columns.{silent[0]}.null_means, "
            "unknown, unavailable or default."
        )
    cautions += [
        f"schema.columns.{name}: a default stands where the value is not known, and readers cannot tell it from a real one. Say "
        "why that is right (because: …), or leave NULL there."
        for name, column in spec.schema_gate.columns.items()
        if column.null_means == "default" and column.because is None
    ]
    return cautions


def row_cautions(spec: BackfillSpec, target: Target) -> list[str]:
    """Which rows are left out, where any may be.

    :raises SpecError: the table demands nothing of a row, so that none could be left out.
    """
    if spec.schema_gate.mode != "discard_rows":
        return []
    demanded = ", ".join(constraint.text for constraint in of_one_row(target))
    if not demanded:
        raise SpecError(
            f"schema.mode discard_rows leaves out rows that break a CHECK or a NOT NULL of {target.table}, which has neither. Give "
            "the table the constraint, or leave the rows out in the SQL."
        )
    return [
        f"schema.mode discard_rows leaves out rows that break {demanded} of {target.table}, at most {spec.schema_gate.max_discarded:,} "
        "of the range. To count them every partition is computed once more."
    ]


def swap_cautions(target: Target) -> list[str]:
    version = target.version
    if version is None:
        return []
    return [
        f"view_swap costs the whole table, not the range: {version.table} has {version.rows:,} rows, which are written once more "
        "and kept until the old version expires.",
        f"A pipeline that writes {version.table} by name writes rows that nobody reads once {target.table} shows another table.",
        *version.not_carried,
    ]


def child_cautions(swap: ChildSwap | None) -> list[str]:
    if swap is None:
        return []
    return [
        f"swap exchanges {len(swap.children)} partitions of the table ({', '.join(swap.children[:3])}"
        f"{', …' if len(swap.children) > 3 else ''}). Meanwhile nobody can read the table either, for about "
        f"{swap.locked_for.total_seconds():.2f} s; how long it was is in the result.",
        *swap.losses,
    ]


def host_cautions(spec: BackfillSpec, capabilities: Capabilities, spans_hosts: str) -> list[str]:
    if not (capabilities.one_host and spans_hosts):
        return []
    return [
        f"{capabilities.engine} works on one host: the queue {spec.compute.queue} must be served by a worker there alone."
    ]
