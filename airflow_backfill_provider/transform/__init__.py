"""From a spec's SQL file to the SELECT that is staged: render, parse, take the write off; and what to be wary of."""

from __future__ import annotations

from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.transform.columns import only, quoted, where
from airflow_backfill_provider.transform.cutoff import cut_off
from airflow_backfill_provider.transform.event_time import EventTime, cut_to_window, held_to_batch
from airflow_backfill_provider.transform.lint import ORDER_DEPENDENT, Finding, lint, unrepeatable
from airflow_backfill_provider.transform.parse import require_query, to_select
from airflow_backfill_provider.transform.render import names_of, render, sql_of
from airflow_backfill_provider.transform.second_run import may_read_table, other_tables, over, reads_table, reordered
from airflow_backfill_provider.windows import Partition

__all__ = [
    "ORDER_DEPENDENT",
    "EventTime",
    "Finding",
    "cut_to_window",
    "held_to_batch",
    "lint",
    "may_read_table",
    "names_of",
    "only",
    "other_tables",
    "over",
    "prepare",
    "quoted",
    "reads_table",
    "render",
    "reordered",
    "require_query",
    "sql_of",
    "to_select",
    "unrepeatable",
    "where",
]


def prepare(spec: BackfillSpec, partition: Partition, dialect: str, arrived: str = "") -> str:
    """The SELECT that recomputes one partition by the file of its era, in the engine's dialect (sqlglot's name for it).

    :param arrived: with ``source.cutoff``, SQL that is true for the rows of the source that may be read.
    :raises TransformRefused: the file cannot be rendered, is not a statement whose write can be redirected, or reads the
        source in a way that cannot be bounded.
    """
    transform = sql_of(spec, partition)
    origin = transform.file or "The SQL"
    select = to_select(render(transform, partition), spec.target.table, dialect, origin)
    if spec.source is None or spec.source.cutoff is None:
        return select
    if not arrived:
        raise ValueError("source.cutoff is set, so the SELECT must be bounded by what had arrived.")
    return cut_off(select, spec.source.table, arrived, dialect, origin)
