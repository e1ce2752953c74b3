"""From a spec's transform to staged rows: the one place that knows what kinds of transform there are."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_backfill_provider.recompute.base import PlannedEra, Recomputer
from airflow_backfill_provider.recompute.context import PartitionContext
from airflow_backfill_provider.recompute.dbt_model import UNPROVEN, with_compiled_model
from airflow_backfill_provider.recompute.elsewhere import Elsewhere, ElsewhereRecomputer, Progress
from airflow_backfill_provider.recompute.function import PythonRecomputer
from airflow_backfill_provider.recompute.select import SqlRecomputer
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.transforms import DbtTransform, ElsewhereTransform, PythonTransform

__all__ = [
    "Elsewhere",
    "PartitionContext",
    "PlannedEra",
    "Progress",
    "Recomputer",
    "recomputer_of",
    "with_compiled_model",
]


def recomputer_of(
    spec: BackfillSpec, dialect: str, arrived: str = "", kept: Sequence[str] = (), fitting: str = ""
) -> Recomputer:
    """What recomputes the spec's partitions.

    :param arrived: with ``source.cutoff``, SQL that is true for the rows of the source that may be read.
    :param kept: the columns that are staged, where the SQL yields others as well; by default all of them.
    :param fitting: SQL that is true for the rows that are staged; by default all of them.
    """
    if isinstance(spec.transform, PythonTransform):
        return PythonRecomputer(spec, spec.transform)
    if isinstance(spec.transform, ElsewhereTransform):
        return ElsewhereRecomputer(spec, spec.transform)
    if isinstance(spec.transform, DbtTransform):
        cautions = spec.transform.compiled.cautions if spec.transform.compiled else ()
        return SqlRecomputer(spec, dialect, arrived, kept, fitting, cautions=cautions, unproven=UNPROVEN)
    return SqlRecomputer(spec, dialect, arrived, kept, fitting)
