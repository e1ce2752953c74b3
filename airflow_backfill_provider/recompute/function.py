"""A transform that is a Python function of the team."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from airflow_backfill_provider.column_fit import ColumnFit
from airflow_backfill_provider.errors import BackfillError, CodeFailed, TransformRefused
from airflow_backfill_provider.recompute.base import PlannedEra
from airflow_backfill_provider.recompute.code import CodeRecomputer
from airflow_backfill_provider.recompute.context import PartitionContext
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.transforms import PythonTransform
from airflow_backfill_provider.transform import names_of
from airflow_backfill_provider.warehouses.base import (
    Landing,
    Recompute,
    Target,
    Versions,
    Warehouse,
)
from airflow_backfill_provider.windows import Partition, describe


class PythonRecomputer(CodeRecomputer):
    """Calls the function once per partition; see :class:`~airflow_backfill_provider.recompute.Recomputer`."""

    def __init__(self, spec: BackfillSpec, transform: PythonTransform) -> None:
        super().__init__(transform)
        self._spec, self._function_of = spec, transform
        module = transform.python.partition(":")[0]
        self.unproven = (
            f"What {transform.python} reads is not known: the versions of its sources are not pinned, and nothing can be said "
            "of its columns and bounds before it runs.",
            f"Of the code, the text of {module} is part of the plan; a change in what it imports is not noticed.",
            f"What {transform.python} writes to other tables and systems is not seen; published rows of the partitions and of "
            "those beside them are looked at before and after each call.",
        )

    def text(self, first: Partition) -> str:
        return self._function_of.source

    def fits(self, era: PlannedEra, target: Target, warehouse: Warehouse) -> tuple[ColumnFit, ...]:
        if why := warehouse.capabilities.takes_no_code:
            raise TransformRefused(f"transform.python {self._function_of.python}: {why} Nothing was staged.")
        return ()

    def recompute(self, partitions: Sequence[Partition], interval: Partition, versions: Versions) -> Recompute:
        names = names_of(self._function_of, interval)

        def fill(landing: Landing) -> None:
            self._call(PartitionContext(self._spec.target.table, names, landing), landing, describe(partitions))

        return Recompute(tuple(partitions), fill=fill, keep_unmatched=self._spec.publish.keep_unmatched)

    def _call(self, context: PartitionContext, landing: Landing, what: str) -> None:
        function = self._function()
        try:
            rows = function(context)
        except BackfillError:
            raise
        except Exception as error:
            raise CodeFailed(
                f"{self._function_of.python} raised {type(error).__name__} for {what}: {error}. Nothing of it was kept."
            ) from error
        if rows is not None:
            landing.add(rows)

    def _function(self) -> Callable[[PartitionContext], Any]:
        module, _, name = self._function_of.python.partition(":")
        try:
            found = getattr(import_module(module), name)
        except Exception as error:
            raise CodeFailed(
                f"{self._function_of.python} cannot be imported: {type(error).__name__}: {error}. Nothing was staged."
            ) from error
        if not callable(found):
            raise TransformRefused(f"{self._function_of.python} is a {type(found).__name__}, not a function.")
        return found  # type: ignore[no-any-return]
