"""The files of a table that lie in a range as a whole, which can be copied without reading a row of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from urllib.parse import unquote

import pyarrow
from deltalake import DeltaTable
from deltalake.transaction import AddAction
from pyarrow import types

from airflow_backfill_provider.warehouses.delta.dataset import file_values

FILE = "safe_backfill_file"
"""The column that numbers the files."""


@dataclass(frozen=True)
class WholeFile:
    """A file of a table, all of whose rows have these values in the columns that the table is partitioned by."""

    path: str
    """Below the table's folder."""
    size: int
    rows: int
    values: Mapping[str, str | None]

    def added_as(self, path: str) -> AddAction:
        """What the log of another table says of a copy of it."""
        now = int(time.time() * 1000)
        return AddAction(path, self.size, self.values, now, True, json.dumps({"numRecords": self.rows}))


def files_with(
    table: DeltaTable, column: str, within: Callable[[pyarrow.Table], Sequence[int]]
) -> list[WholeFile] | None:
    """The files whose value of the column is in the range; None when a file does not have one value of it.

    :param within: gets a table of the column and of :data:`FILE`, and tells which files those are.
    """
    partitioned_by = table.metadata().partition_columns
    schema = pyarrow.schema(table.schema().to_arrow())
    adds = pyarrow.table(table.get_add_actions())
    paths, sizes, rows = (adds[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
    if (
        column not in partitioned_by
        or not all(_is_plain(schema.field(name).type) for name in partitioned_by)
        or None in rows
        or any("://" in path or path.startswith("/") for path in paths)  # of another table, by a shallow clone
    ):
        return None
    values = dict(file_values(adds, schema))
    chosen = within(pyarrow.table({column: values[column], FILE: pyarrow.array(range(len(paths)), pyarrow.int64())}))
    texts = {name: list(map(_text, values[name].to_pylist())) for name in partitioned_by}
    return [
        WholeFile(unquote(paths[file]), sizes[file], rows[file], {name: texts[name][file] for name in partitioned_by})
        for file in chosen
    ]


def _is_plain(kind: pyarrow.DataType) -> bool:
    """Whether a value of the type has one spelling in the log."""
    return bool(types.is_date(kind) or types.is_integer(kind) or types.is_string(kind) or types.is_large_string(kind))


def _text(value: date | int | str | None) -> str | None:
    """A value as the log spells it."""
    return None if value is None else str(value)
