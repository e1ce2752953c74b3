"""What a Delta table may have that delta-rs cannot write, or that rows read through Arrow could not keep."""

from __future__ import annotations

from collections.abc import Iterator

from deltalake import DeltaTable
from deltalake.schema import ArrayType, MapType, PrimitiveType, StructType

WRITABLE = frozenset(
    {"appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants", "timestampNtz"}
)
"""Writer features that delta-rs honours; of generated columns only their absence."""
_IDENTITY_VERSION = 6
"""Of the protocol before features had names."""
_TYPES = frozenset("boolean byte short integer long float double string binary date timestamp timestamp_ntz".split())
_NOT_WRITTEN = {
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
    "delta.columnMapping.physicalName": "column mapping",
    "CURRENT_DEFAULT": "a column default",
}


def obstacles(table: DeltaTable) -> Iterator[str]:
    """Each feature of the table that a backfill could not keep its promises on, by name."""
    protocol, metadata = table.protocol(), table.metadata()
    named = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    for feature in sorted(named - WRITABLE):
        yield f"the table feature {feature}"
    if protocol.min_writer_version == _IDENTITY_VERSION:
        yield f"writer version {_IDENTITY_VERSION} (identity columns)"
    configuration = metadata.configuration
    if configuration.get("delta.appendOnly", "false").lower() == "true":
        yield "delta.appendOnly = true (no row may ever be replaced)"
    if (mode := configuration.get("delta.columnMapping.mode", "none")) != "none":
        yield f"delta.columnMapping.mode = {mode}"
    for field in table.schema().fields:
        for key, feature in _NOT_WRITTEN.items():
            if key in field.metadata:
                yield f"{feature} ({field.name})"
        if unreadable := _unreadable(field.type):
            yield f"the column {field.name} of type {unreadable}"
        if field.name in metadata.partition_columns and field.type == PrimitiveType("binary"):
            yield f"the partition column {field.name} of type binary"


def _unreadable(kind: object) -> str | None:
    """The first type in it that DuckDB does not read through Arrow unchanged."""
    match kind:
        case ArrayType():
            return _unreadable(kind.element_type)
        case MapType():
            return _unreadable(kind.key_type) or _unreadable(kind.value_type)
        case StructType():
            return next(filter(None, (_unreadable(field.type) for field in kind.fields)), None)
        case PrimitiveType():
            return None if kind.type in _TYPES or kind.type.startswith("decimal(") else kind.type
        case _:
            return str(kind)
