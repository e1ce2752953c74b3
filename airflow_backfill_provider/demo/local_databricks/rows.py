"""What a statement returned, as an Arrow table."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pyarrow
from pyspark.sql import DataFrame, Row
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, TimestampType

_OVER = "CommandResult"


def fetched(frame: DataFrame) -> pyarrow.Table:
    """The rows; of a command, which has run already, without a job that would fetch them once more."""
    if not frame.columns:
        return pyarrow.table({})
    if frame._jdf.queryExecution().commandExecuted().getClass().getSimpleName() != _OVER:
        return frame.toArrow()
    fields = frame.schema.fields
    rows = [
        {field.name: _value(value, field.dataType) for field, value in zip(fields, row, strict=True)}
        for row in frame.collect()
    ]
    return pyarrow.Table.from_pylist(rows, schema=to_arrow_schema(frame.schema, timezone="UTC"))


def _value(value: Any, kind: DataType) -> Any:
    """As Arrow takes it."""
    match value:
        case dict():
            return list(value.items())
        case Row():
            return value.asDict(recursive=True)
        case _ if value is not None and isinstance(kind, TimestampType):
            return value.astimezone(UTC)  # it is in this process's zone, and does not say so
        case _:
            return value
