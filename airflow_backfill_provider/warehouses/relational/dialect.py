"""Where engines that speak SQL differ, as far as the statements of this package go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

from airflow_backfill_provider.warehouses.clocks import Clock, ColumnKind
from airflow_backfill_provider.warehouses.sql import Spelling

EMPTY_DIGEST = "0"
"""The digest of no rows."""


class Dialect(Protocol):
    """One engine's spelling. Every method gives SQL text; nothing runs."""

    @property
    def name(self) -> str:
        """Its name in sqlglot."""
        ...

    @property
    def spelling(self) -> Spelling:
        """How it writes names and values."""
        ...

    @property
    def text_type(self) -> str:
        """The type that any value can be cast to, to be read as text."""
        ...

    @property
    def partition_types(self) -> str:
        """The types that a partition column may have, for a message."""
        ...

    @property
    def overriding(self) -> str:
        """What makes an INSERT take the values given for columns that the table would number itself."""
        ...

    def column_kind(self, column_type: str) -> ColumnKind | None:
        """What kind of partition column a type makes; None when it makes none."""
        ...

    def is_text(self, column_type: str | None) -> bool:
        """Whether a column of the type is compared with text, so that numbers must be written as text."""
        ...

    def casts_to_day(self, column_type: str) -> bool:
        """Whether a timestamp of the type, cast to DATE, gives the day it lies in."""
        ...

    def ordered(self, column: str, clock: Clock) -> str:
        """The partition column as it is compared with bounds; the order of text must not hang on a locale."""
        ...

    def row_hash(self, columns: Sequence[str], alias: str = "r.") -> str:
        """64 bits that stand for a row's values.

        Where an engine combines the hashes of columns linearly, a sum of them misses values swapped between rows. The
        hash of that hash is not linear, whatever the version.
        """
        ...

    def steps(self, column: str, column_type: str, first: str, step: timedelta) -> str | None:
        """How many whole steps a timestamp lies after the first, exactly; None where the engine cannot tell for the type.

        :param first: as a literal of the column's type.
        """
        ...

    def numbered(self, table: str, column: str, bounds: Sequence[str]) -> tuple[str, str]:
        """The number of the last bound that is not above the column, from 0; and the table to select it from.

        :param table: what to select from, with its alias ``r``.
        :param bounds: ascending, as literals of the column's type.
        """
        ...

    def semi_join(self, left: str, rights: Sequence[str], names: Sequence[str]) -> str:
        """The rows of the left side (alias ``r``) whose columns of these names are a row of a right side, as a FROM."""
        ...

    def is_worth_a_span(self, column_type: str) -> bool:
        """Whether a join on a column of the type is quicker when the least and greatest value that can match are said."""
        ...


class CatalogDialect(Dialect, Protocol):
    """An engine whose catalog can be asked by a SELECT."""

    def count_schemas(self, database: str, schema: str) -> str:
        """How many schemas have exactly this name: 1 or 0, whoever may use them."""
        ...

    def count_tables(self, database: str, schema: str, name: str) -> str:
        """How many tables have exactly this name: 1 or 0, whoever may read them."""
        ...
