"""Rows that code returned, whatever they came as, one by one in the order of a table's columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from airflow_backfill_provider.errors import WarehouseError

_TAKEN = "mappings by column name, a pandas or polars data frame, or an Arrow table"


def values_of(rows: Any, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The values of each row in the order of these columns, whose names may be written in another case.

    What a data frame has as NaN or NaT is None.

    :raises WarehouseError: they are no rows, or a column is missing, too much or there twice.
    """
    for row in _mappings(rows):
        if not isinstance(row, Mapping):
            raise _no_rows(row)
        if row.keys() != set(columns):
            row = _renamed(row, columns)
        yield tuple(row[name] for name in columns)


def _mappings(rows: Any) -> Iterable[Any]:
    if isinstance(rows, str | bytes | Mapping):
        raise _no_rows(rows)
    if hasattr(rows, "schema"):  # Arrow's or polars'
        _refuse_repeated(rows.schema.names if hasattr(rows.schema, "names") else rows.schema)
    if hasattr(rows, "to_pylist"):  # an Arrow table or a batch of one
        return rows.to_pylist()  # type: ignore[no-any-return]
    if hasattr(rows, "read_next_batch"):  # a reader of batches
        return (row for batch in rows for row in batch.to_pylist())
    if hasattr(rows, "iter_rows"):  # polars
        return rows.iter_rows(named=True)  # type: ignore[no-any-return]
    if hasattr(rows, "itertuples"):  # pandas
        names = [str(name) for name in rows.columns]
        _refuse_repeated(names)
        frame = rows.astype(object).where(rows.notna(), None)
        return (dict(zip(names, values, strict=True)) for values in frame.itertuples(index=False, name=None))
    if not isinstance(rows, Iterable):
        raise _no_rows(rows)
    return rows


def _renamed(row: Mapping[Any, Any], columns: Sequence[str]) -> dict[str, Any]:
    _refuse_repeated(row)
    given = {str(name).casefold(): name for name in row}
    missing = [name for name in columns if name.casefold() not in given]
    surplus = sorted(given.keys() - {name.casefold() for name in columns})
    if missing or surplus:
        raise WarehouseError(
            f"The code must return each column once and nothing else; missing: {', '.join(missing) or 'none'}; not in the "
            f"table: {', '.join(str(given[name]) for name in surplus) or 'none'}. Nothing was kept."
        )
    return {name: row[given[name.casefold()]] for name in columns}


def _refuse_repeated(names: Iterable[Any]) -> None:
    """:raises WarehouseError: a column is there twice, in whatever case, so that one of its values would be lost."""
    counts = Counter(str(name).casefold() for name in names)
    if repeated := [name for name, times in counts.items() if times > 1]:
        raise WarehouseError(
            f"The code must return each column once and nothing else; more than once: {', '.join(repeated)}. Nothing was kept. "
            "Drop or rename the others."
        )


def _no_rows(found: Any) -> WarehouseError:
    return WarehouseError(
        f"The code returned {type(found).__name__}, and rows are needed: {_TAKEN}; or nothing, when it wrote to "
        "context.staging_table. Nothing was kept."
    )
