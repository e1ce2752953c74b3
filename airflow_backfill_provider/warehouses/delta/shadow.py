"""A copy of part of the published table under a root of its own, where a publish is rehearsed."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow
from deltalake import DeltaTable, write_deltalake

_CHECK = "delta.constraints."


def copy_definition(
    published: DeltaTable, uri: str, rows: pyarrow.RecordBatchReader, options: Mapping[str, str] | None
) -> None:
    """Make a table there with the columns, the partitioning and the constraints of the published one, and fill it."""
    found = published.metadata()
    stored = dict(options) if options else None
    table = DeltaTable.create(uri, published.schema(), partition_by=found.partition_columns, storage_options=stored)
    write_deltalake(table, rows, mode="append")
    checks = {name.removeprefix(_CHECK): text for name, text in found.configuration.items() if name.startswith(_CHECK)}
    for name, text in checks.items():
        table.alter.add_constraint({name: text})
