"""The five questions that every plan answers, each answer marked as written by the team or left to a default."""

from __future__ import annotations

from airflow_backfill_provider.checks.wording import expected_of_row_diff
from airflow_backfill_provider.spec.checks import Frozen
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.quantities import write_duration
from airflow_backfill_provider.spec.request import Request


class Answer(Frozen):
    """One of the five questions with its answer."""

    question: str
    answer: str
    written: bool
    """False when a default answers."""


def answers(spec: BackfillSpec, request: Request) -> tuple[Answer, ...]:
    """The five answers, in the order of the questions."""
    compute, publish = spec.compute, spec.publish
    asked = (
        ", ".join(request.partitions[:3]) or f"{request.start_date} to {request.end_date or 'the last that is over'}"
    )
    checks = [entry.kind for entry in (*spec.checks, *spec.compare)]
    validation = [f"{len(checks)} written: {', '.join(checks)}"] if checks else []
    validation += by_kind(spec)
    if spec.control_partitions:
        validation.append(
            f"control period: {len(spec.control_partitions)} partitions must come out as they are published"
        )
    return (
        Answer(
            question="Which range, on what evidence?",
            answer=f"{asked}; {request.reason or 'no reason was given'}",
            written=bool(request.reason),
        ),
        Answer(
            question="Is the re-run safe?",
            answer=f"each partition is recomputed from {spec.transform.in_words} into staging; "
            f"rows are identified by {', '.join(spec.target.key)}; a replaced range converges when run again; "
            f"{'one partition is tried first: staged twice, published and rolled back on a copy' if spec.trial.enabled else 'no trial'}",
            written=True,
        ),
        Answer(
            question="Where does the compute go?",
            answer=f"connection {compute.conn_id}, pool {compute.pool}, at most {compute.max_concurrency} at once, "
            f"{int(compute.statement_timeout.total_seconds())} s a statement",
            written="max_concurrency" in compute.model_fields_set or "pool" in compute.model_fields_set,
        ),
        Answer(
            question="How do we validate?",
            answer="; ".join(validation) or "only the built-in guards",
            written=bool(checks),
        ),
        Answer(
            question="How do we publish, and undo?",
            answer=f"{publish.mechanism}, {publish.commits}; undo by rollback__{spec.name}, which {publish.way_back}, "
            f"kept until {write_duration(spec.rollback.keep_for)} after the publish",
            written="publish" in spec.model_fields_set or "rollback" in spec.model_fields_set,
        ),
    )


def by_kind(spec: BackfillSpec) -> list[str]:
    """What the spec's kind adds to what is written."""
    added = [f"{entry.kind} ({expected_of_row_diff(entry)})" for entry in spec.default_comparisons]
    sentences = [f"kind {spec.kind} adds {', '.join(added)}"] if added else []
    if spec.kind == "first_load":
        sentences.append("kind first_load: nothing is published in the range yet")
    return sentences


def strict_violations(spec: BackfillSpec, request: Request) -> list[str]:
    """The questions that a default answers."""
    return [answer.question for answer in answers(spec, request) if not answer.written]
