"""What a catalog says of a table: where it is, its columns, and what its partition column tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.warehouses.base import Column
from airflow_backfill_provider.warehouses.clocks import Clock, Reading
from airflow_backfill_provider.warehouses.relational.dialect import Dialect
from airflow_backfill_provider.warehouses.sql import STANDARD, Spelling

_NAMED_AT_MOST = 10


@dataclass(frozen=True)
class Place:
    """Where a table or view is; names in the catalog's own spelling."""

    database: str
    """Empty where a connection sees one database only."""
    schema: str
    name: str
    is_view: bool
    spelling: Spelling = STANDARD

    @property
    def sql(self) -> str:
        """Its name as SQL, with every part."""
        return self.beside(self.schema, self.name)

    def beside(self, *names: str) -> str:
        """A schema of its database, or a table of one, as SQL."""
        return self.spelling.quote_path(*([self.database] if self.database else []), *names)

    @property
    def short_sql(self) -> str:
        """Its name as SQL, as a person writes it in this warehouse."""
        return self.spelling.quote_path(self.schema, self.name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def has_odd_name(self) -> bool:
        """Whether a dot in its name hides where one part ends."""
        return "." in self.schema or "." in self.name


def no_table(name: str, there: Sequence[Place]) -> SpecError:
    """The error that there is no table of this name; it names what exists, the closest first."""
    names = [str(place) for place in there]
    near = get_close_matches(name, names, n=_NAMED_AT_MOST, cutoff=0.5) or names[:_NAMED_AT_MOST]
    return SpecError(f"There is no table {name!r}; there is {', '.join(near) or 'none at all'}.")


@dataclass(frozen=True)
class Table:
    """A table or view and its columns."""

    place: Place
    columns: tuple[Column, ...]

    @property
    def column_names(self) -> tuple[str, ...]:
        """Every column that is not computed by the table itself."""
        return tuple(column.name for column in self.columns if not column.generated)

    def column(self, name: str) -> Column:
        """The column of that name; in any case, where no column has just this spelling.

        :raises SpecError: there is none.
        """
        for same in (str, str.lower):
            for column in self.columns:
                if same(column.name) == same(name):
                    return column
        raise SpecError(f"{self.place} has no column {name!r}; it has {', '.join(c.name for c in self.columns)}.")

    def stored(self, name: str) -> Column:
        """The column of that name, which rows can be found by.

        :raises SpecError: there is none, or the table computes it.
        """
        column = self.column(name)
        if column.generated:
            raise SpecError(
                f"{self.place}.{column.name} is a generated column; a partition or key column must be stored."
            )
        return column

    def clock(self, dialect: Dialect, partition_by: str, reading: Reading) -> Clock:
        """How the partition column tells which partition a row is in.

        :raises SpecError: its type has no clock, or does not go with the reading.
        """
        column = self.column(partition_by)
        kind = dialect.column_kind(column.type)
        if kind is None:
            raise SpecError(
                f"{self.place} cannot be partitioned by {column.name}: a column of type {column.type} is "
                f"not supported yet. Supported: {dialect.partition_types}."
            )
        try:
            return reading.clock(kind)
        except SpecError as error:
            raise SpecError(f"{self.place} cannot be partitioned by {column.name} ({column.type}): {error}.") from error
