"""How the columns that a transform yields land in the target's: by name, each unchanged or refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.spec.checks import Frozen
from airflow_backfill_provider.warehouses.base import Column, Target


class ColumnFit(Frozen):
    """One column of the target and what the transform yields for it."""

    name: str
    yields: str
    """The type in the transform's result."""
    lands_as: str
    """The type in the target."""

    @property
    def is_changed(self) -> bool:
        """Whether values land as another type than they were computed as."""
        return self.yields != self.lands_as

    def __str__(self) -> str:
        return f"{self.name}: {self.yields} lands as {self.lands_as}"


def surplus(target: Target, produced: Sequence[Column]) -> tuple[Column, ...]:
    """The columns that the transform yields and the target has no place for."""
    writable = {column.name.casefold() for column in target.columns if not column.generated}
    return tuple(column for column in produced if column.name.casefold() not in writable)


def fit(
    target: Target,
    produced: Sequence[Column],
    lossless: Callable[[str, str], bool],
    file: str,
    *,
    discard_columns: bool = False,
) -> tuple[ColumnFit, ...]:
    """The columns in the target's order; ``file`` names the transform in messages.

    :param discard_columns: those that the target has no place for are left out.

    :raises TransformRefused: some are missing, new, there twice, or would lose values; it names them all.
    """
    writable = {column.name.casefold(): column for column in target.columns if not column.generated}
    given = {column.name.casefold(): column for column in produced}
    names = [column.name for column in produced]
    problems = []
    if twice := sorted({name for name in names if names.count(name) > 1}):
        problems.append(f"produced twice: {', '.join(twice)}")
    if missing := [column.name for name, column in writable.items() if name not in given]:
        problems.append(f"missing: {', '.join(missing)}")
    extra = [f"{column.name} ({column.type})" for column in surplus(target, produced)]
    if extra and not discard_columns:
        problems.append(
            f"not in the target: {', '.join(extra)}; add the column to the table first, drop it here, leave it out by "
            "schema.mode: discard_columns, or let the publish add it by schema.mode: evolve and new_columns"
        )
    fits = [
        ColumnFit(name=column.name, yields=given[name].type, lands_as=column.type)
        for name, column in writable.items()
        if name in given
    ]
    if lossy := [
        f"{one.name} ({one.yields} into {one.lands_as})" for one in fits if not lossless(one.yields, one.lands_as)
    ]:
        problems.append(f"would lose values: {', '.join(lossy)}; cast them in the SQL")
    if problems:
        raise TransformRefused(
            f"The transform's columns ({file}) do not fit {target.table}. "
            + "; ".join(problems)
            + ". Nothing was staged."
        )
    return tuple(fits)
