"""The set-based statements: many partitions in, one row per partition out. Text only; nothing runs here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from airflow_backfill_provider.errors import WarehouseError
from airflow_backfill_provider.spec.metric import Metric, MetricKind
from airflow_backfill_provider.warehouses.base import PLACE, SIDE, SampleOf, Target, Tolerance
from airflow_backfill_provider.warehouses.clocks import UTC_DATE, UTC_TIMESTAMP, Clock, ColumnKind, Shown
from airflow_backfill_provider.warehouses.relational.dialect import Dialect
from airflow_backfill_provider.warehouses.relational.flags import Flags
from airflow_backfill_provider.windows import Partition, Window

_ONE_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Piece:
    """Some partitions of some table: ``table`` is its SQL name, or a query in brackets."""

    dialect: Dialect
    table: str
    partition_by: str
    type: str
    """Of the partition column."""
    clock: Clock
    partitions: tuple[Partition, ...]

    @classmethod
    def of(cls, dialect: Dialect, target: Target, table: str, partitions: Sequence[Partition]) -> Piece:
        """Partitions of a table that has the target's columns."""
        types = {column.name: column.type for column in target.columns}
        return cls(dialect, table, target.partition_by, types[target.partition_by], target.clock, tuple(partitions))

    @property
    def column(self) -> str:
        """The partition column of ``r``, as SQL."""
        return f"r.{self.dialect.spelling.quote(self.partition_by)}"

    @property
    def predicate(self) -> str:
        """Holds for exactly the rows of the partitions."""
        return self.dialect.spelling.within(self.dialect.ordered(self.column, self.clock), self.partitions, self.clock)


class Buckets:
    """Gives each row the value or number of its partition.

    Where each partition is one value of the column (a day on DATE or ``yyyymmdd``, a month on ``yyyymm``, a value of a
    list), that is the column itself, which groups fastest. UTC days of a timestamp are its date, where the engine's cast
    to a date gives the day. Windows of one length on a grid of instants, such as hours, are counted from the first: the
    text does not grow with them. Other windows are numbered by their bounds.
    """

    def __init__(self, partitions: Sequence[Partition], pieces: Sequence[Piece]) -> None:
        self._partitions = tuple(sorted(partitions))
        self._numbered = False
        self._step: timedelta | None = None
        clocks = {piece.clock for piece in pieces}
        only = [clock.only_value(partition) for clock in clocks for partition in self._partitions]
        if len(clocks) == 1 and None not in only:
            self._keys: dict[Any, str] = dict(zip(only, (one.key for one in self._partitions), strict=True))
        elif (
            clocks <= {UTC_DATE, UTC_TIMESTAMP}
            and all(map(_is_utc_day, partitions))
            and all(piece.dialect.casts_to_day(piece.type) for piece in pieces)
        ):
            self._keys = {partition.window.start.date(): partition.key for partition in self._partitions}
        elif (step := _even_step(self._partitions, pieces)) is not None:
            self._step = step
            self._keys = {
                (partition.window.start - self._partitions[0].window.start) // step: partition.key
                for partition in self._partitions
            }
        else:
            self._numbered = True
            self._keys = {number: partition.key for number, partition in enumerate(self._partitions)}

    @property
    def keys(self) -> Mapping[Shown, str]:
        """Every bucket and the key of the partition that it stands for."""
        return self._keys

    def key(self, bucket: Shown) -> str:
        """The key of the partition that a row's bucket stands for.

        :raises WarehouseError: the partition column holds a value that no partition has, such as 20240231.
        """
        if (key := self._keys.get(bucket)) is None:
            raise WarehouseError(
                f"The partition column holds {bucket!r}, which is not written as column_format says, so it belongs to no "
                "partition. Mend these rows, or correct column_format in the spec."
            )
        return key

    def select(self, piece: Piece, columns: Sequence[str]) -> str:
        """The rows of the piece with their bucket as ``b``, and these SQL expressions over ``r`` after it."""
        table = f"{piece.table} AS r"
        if self._step is not None:
            bucket = _steps(piece, self._partitions[0], self._step) or ""
        elif self._numbered:
            spelling = piece.dialect.spelling
            bounds = [spelling.instant(partition.window.start, piece.clock) for partition in self._partitions]
            bucket, table = piece.dialect.numbered(table, piece.dialect.ordered(piece.column, piece.clock), bounds)
        else:
            # The days of a timestamp in UTC are the one case in which a bucket is not the value itself.
            bucket = f"CAST({piece.column} AS DATE)" if piece.clock == UTC_TIMESTAMP else piece.column
        return f"SELECT {', '.join([f'{bucket} AS b', *columns])} FROM {table} WHERE {piece.predicate}"

    def select_all(self, pieces: Sequence[Piece], columns: Sequence[str]) -> str:
        """The rows of every piece, one after the other."""
        return " UNION ALL ".join(self.select(piece, columns) for piece in pieces)


def _even_step(partitions: Sequence[Partition], pieces: Sequence[Piece]) -> timedelta | None:
    """The one length of the windows, when all begin a whole number of it apart and every piece's engine can count it."""
    if not partitions or not all(isinstance(partition.span, Window) for partition in partitions):
        return None
    first = partitions[0].window
    step = first.end - first.start
    even = all(
        one.window.end - one.window.start == step and not (one.window.start - first.start) % step for one in partitions
    )
    counted = all(_shows_instants(piece.clock) and _steps(piece, partitions[0], step) for piece in pieces)
    return step if even and counted else None


def _shows_instants(clock: Clock) -> bool:
    """Whether equally long windows lie equally far apart in what the column shows."""
    return clock.kind is ColumnKind.TIMESTAMPTZ or clock == UTC_TIMESTAMP


def _steps(piece: Piece, first: Partition, step: timedelta) -> str | None:
    bound = piece.dialect.spelling.instant(first.window.start, piece.clock)
    return piece.dialect.steps(piece.column, piece.type, bound, step)


def fingerprints(dialect: Dialect, buckets: Buckets, pieces: Sequence[Piece], columns: Sequence[str]) -> str:
    """``b, rows, digest`` of every partition that has a row."""
    rows = buckets.select_all(pieces, [f"{dialect.row_hash(columns)} AS h"])
    return f"SELECT b, count(*), CAST(sum(h) AS {dialect.text_type}) FROM ({rows}) AS p GROUP BY b"


def measures(buckets: Buckets, pieces: Sequence[Piece], metrics: Sequence[Metric], flags: Flags) -> str:
    """``b`` and one value for each metric, of every partition that has a row."""
    quote = pieces[0].dialect.spelling.quote
    names = _columns(metrics, flags)
    aliases = {name: f"c{number}" for number, name in enumerate(names)}
    picks = [f"r.{quote(name)} AS {alias}" for name, alias in aliases.items()]
    rows = buckets.select_all(_flagged(pieces, flags), picks)
    values = [measure(metric, aliases, flags) for metric in metrics]
    return f"SELECT {', '.join(['b', *values])} FROM ({rows}) AS p GROUP BY b"


def measures_together(pieces: Sequence[Piece], metrics: Sequence[Metric], flags: Flags) -> str:
    """One row with one value for each metric, of the rows of all pieces together."""
    quote = pieces[0].dialect.spelling.quote
    names = {name: f"r.{quote(name)}" for name in _columns(metrics, flags)}
    values = ", ".join(measure(metric, names, flags) for metric in metrics)
    first, *others = _flagged(pieces, flags)
    if not others:
        return f"SELECT {values} FROM {first.table} AS r WHERE {first.predicate}"
    picks = ", ".join(names.values()) or "1"
    rows = " UNION ALL ".join(
        f"SELECT {picks} FROM {piece.table} AS r WHERE {piece.predicate}" for piece in (first, *others)
    )
    return f"SELECT {values} FROM ({rows}) AS r"


def _flagged(pieces: Sequence[Piece], flags: Flags) -> list[Piece]:
    return [replace(piece, table=flags.table(piece.table)) for piece in pieces]


def _columns(metrics: Sequence[Metric], flags: Flags) -> list[str]:
    return list(dict.fromkeys(name for metric in metrics for name in (*metric.columns, *flags.names(metric))))


def measure(metric: Metric, names: dict[str, str], flags: Flags) -> str:
    """The aggregate of one metric; ``names`` maps its columns and flags to their SQL names."""
    columns = [names[name] for name in metric.columns]
    own = [names[name] for name in flags.names(metric)]
    where = own[:1] if metric.where else []
    rows = _where("count(*)", where)
    match metric.kind:
        case MetricKind.ROWS:
            return rows
        case MetricKind.NULLS:
            return f"{rows} - {_where(f'count({columns[0]})', where)}"
        case MetricKind.DUPLICATES if len(columns) == 1:
            # count(DISTINCT x) leaves NULL out, which is one more distinct value here.
            distinct, present = (_where(f"count({word}{columns[0]})", where) for word in ("DISTINCT ", ""))
            return f"{rows} - {distinct} - CAST({rows} > {present} AS INTEGER)"
        case MetricKind.DUPLICATES:
            return f"{rows} - {_where(f'count(DISTINCT {_row(columns)})', where)}"
        case MetricKind.OUTSIDE_VALUES:
            values = ", ".join(flags.comparable(value, metric.columns[0]) for value in metric.values)
            return _where("count(*)", [*where, f"{columns[0]} NOT IN ({values})"])
        case MetricKind.OUTSIDE_RANGE:
            low, high = ("<", ">") if metric.inclusive else ("<=", ">=")
            outside = [
                f"{columns[0]} {sign} {flags.comparable(bound, metric.columns[0])}"
                for sign, bound in ((low, metric.min_value), (high, metric.max_value))
                if bound is not None
            ]
            return _where("count(*)", [*where, f"({' OR '.join(outside)})"])
        case MetricKind.UNTRUE | MetricKind.ORPHANS:
            return _where("count(*)", [*where, own[-1]])
        case MetricKind.COUNT_DISTINCT:
            return _where(f"count(DISTINCT {columns[0]})", where)
        case MetricKind.SUM | MetricKind.MIN | MetricKind.MAX:
            return _where(f"{metric.kind}({columns[0]})", where)


def _row(columns: Sequence[str]) -> str:
    return f"({', '.join(columns)})"


def _where(aggregate: str, conditions: Sequence[str]) -> str:
    return f"{aggregate} FILTER (WHERE {' AND '.join(conditions)})" if conditions else aggregate


def row_counts(buckets: Buckets, pieces: Sequence[Piece]) -> str:
    """``b, rows`` of every partition that has a row."""
    return f"SELECT b, count(*) FROM ({buckets.select_all(pieces, [])}) AS p GROUP BY b"


def differences(
    dialect: Dialect,
    buckets: Buckets,
    target: Target,
    compared: Sequence[str],
    old: Sequence[Piece],
    new: Sequence[Piece],
) -> str:
    """``b, pairs, with old, with new, identical, old digest, new digest`` of every partition that has a row.

    A *pair* is a row of the full join: old and new row of one key, or a row alone. Rows are joined by bucket and key
    with ``=``, so a row with a NULL in its key is alone. The digests are those of the rows where each is in one pair.
    """
    quote = dialect.spelling.quote
    keys = [f"k{number}" for number in range(len(target.key))]
    picks = [f"r.{quote(name)} AS {key}" for name, key in zip(target.key, keys, strict=True)]
    sides = [buckets.select_all(pieces, [*picks, f"{dialect.row_hash(compared)} AS h"]) for pieces in (old, new)]
    match = " AND ".join(f"o.{name} = n.{name}" for name in ("b", *keys))
    return (
        "SELECT coalesce(o.b, n.b) AS b, count(*), count(o.h), count(n.h), count(*) FILTER (WHERE o.h = n.h), "
        f"CAST(sum(o.h) AS {dialect.text_type}), CAST(sum(n.h) AS {dialect.text_type}) "
        f"FROM ({sides[0]}) AS o FULL JOIN ({sides[1]}) AS n ON {match} GROUP BY 1"
    )


def changes_by_column(
    buckets: Buckets,
    target: Target,
    compared: Sequence[str],
    old: Sequence[Piece],
    new: Sequence[Piece],
    tolerance: Tolerance,
) -> str:
    """``b`` and, for each column, the rows matched by key whose value of it differs by more than its tolerance."""
    quote = old[0].dialect.spelling.quote
    keys = [f"k{number}" for number in range(len(target.key))]
    picks = [f"r.{quote(name)} AS {key}" for name, key in zip(target.key, keys, strict=True)]
    picks += [f"r.{quote(name)} AS c{number}" for number, name in enumerate(compared)]
    sides = [buckets.select_all(pieces, picks) for pieces in (old, new)]
    match = " AND ".join(f"o.{name} = n.{name}" for name in ("b", *keys))
    allowed = {name.casefold(): limit for name, limit in tolerance.items()}
    counts = [
        f"count(*) FILTER (WHERE {_differ(f'o.c{number}', f'n.c{number}', allowed.get(name.casefold()))})"
        for number, name in enumerate(compared)
    ]
    return f"SELECT {', '.join(['o.b', *counts])} FROM ({sides[0]}) AS o JOIN ({sides[1]}) AS n ON {match} GROUP BY o.b"


def sample(
    dialect: Dialect,
    buckets: Buckets,
    target: Target,
    what: SampleOf,
    old: Sequence[Piece],
    new: Sequence[Piece],
) -> str:
    """The place of a key, ``old`` or ``new``, and the columns under their names: the rows of the keys with the least hash."""
    quote = dialect.spelling.quote
    keys = [f"k{number}" for number in range(len(target.key))]
    values = [f"c{number}" for number in range(len(what.columns))]
    picks = [f"r.{quote(name)} AS {alias}" for name, alias in zip(target.key, keys, strict=True)]
    picks += [f"r.{quote(name)} AS {alias}" for name, alias in zip(what.columns, values, strict=True)]
    picks += [f"{dialect.row_hash(target.compared(what.exclude))} AS h", f"{dialect.row_hash(target.key)} AS kh"]
    sides = [buckets.select_all(pieces, picks) for pieces in (old, new)]
    match = " AND ".join(f"o.{name} = n.{name}" for name in ("b", *keys))
    both = ", ".join(f"o.{name} AS o{name}, n.{name} AS n{name}" for name in ("h", *values))
    # Limited before it is numbered: numbering alone would sort every row that differs, with all its columns.
    found = (
        f"SELECT row_number() OVER (ORDER BY d.kh, d.h) AS place, d.* FROM (SELECT coalesce(o.kh, n.kh) AS kh, "
        f"coalesce(o.h, n.h) AS h, {both} FROM ({sides[0]}) AS o FULL JOIN ({sides[1]}) AS n ON {match} "
        f"WHERE o.h IS DISTINCT FROM n.h ORDER BY 1, 2 LIMIT {what.limit}) AS d"
    )
    shown = ", ".join(
        f"CASE WHEN s.side = 'old' THEN f.o{alias} ELSE f.n{alias} END AS {quote(name)}"
        for name, alias in zip(what.columns, values, strict=True)
    )
    return (
        f"SELECT CAST(f.place AS INTEGER) AS {quote(PLACE)}, s.side AS {quote(SIDE)}{', ' if shown else ''}{shown} "
        f"FROM ({found}) AS f CROSS JOIN (SELECT 'old' AS side UNION ALL SELECT 'new' AS side) AS s "
        f"WHERE CASE WHEN s.side = 'old' THEN f.oh ELSE f.nh END IS NOT NULL"
    )


def sampled(dialect: Dialect, table: str, what: SampleOf) -> str:
    """Every row of a sample as text, key by key, the old row before the new one."""
    quote = dialect.spelling.quote
    names = ", ".join(f"CAST({quote(name)} AS {dialect.text_type})" for name in (PLACE, SIDE, *what.columns))
    return f"SELECT {names} FROM {table} ORDER BY {quote(PLACE)}, {quote(SIDE)} DESC"


def moved_keys(buckets: Buckets, target: Target, old: Sequence[Piece], new: Sequence[Piece]) -> str:
    """The old ``b``, the new one, and how many keys are in the first of the old rows and in the other of the new ones."""
    quote = old[0].dialect.spelling.quote
    keys = [f"k{number}" for number in range(len(target.key))]
    picks = [f"r.{quote(name)} AS {key}" for name, key in zip(target.key, keys, strict=True)]
    sides = [buckets.select_all(pieces, picks) for pieces in (old, new)]
    match = " AND ".join(f"o.{name} = n.{name}" for name in keys)
    count = f"count(DISTINCT ({', '.join(f'n.{name}' for name in keys)}))"
    return f"SELECT o.b, n.b, {count} FROM ({sides[0]}) AS o JOIN ({sides[1]}) AS n ON {match} WHERE o.b <> n.b GROUP BY o.b, n.b"


def _differ(old: str, new: str, tolerance: Decimal | None) -> str:
    unlike = f"{old} IS DISTINCT FROM {new}"
    if tolerance is None:
        return unlike
    # A NULL, or NaN beside a number, is never close.
    return f"{unlike} AND NOT coalesce(abs({old} - {new}) <= {tolerance:f}, FALSE)"


def key_faults(buckets: Buckets, pieces: Sequence[Piece], key: Sequence[str]) -> str:
    """``b, rows with a NULL in the key, rows too many for their key`` of every partition that has a row."""
    quote = pieces[0].dialect.spelling.quote
    rows = buckets.select_all(pieces, [f"r.{quote(name)} AS k{number}" for number, name in enumerate(key)])
    names = [f"k{number}" for number in range(len(key))]
    absent = " OR ".join(f"{name} IS NULL" for name in names)
    return (
        f"SELECT b, count(*) FILTER (WHERE {absent}), count(*) FILTER (WHERE NOT ({absent})) "
        f"- count(DISTINCT ({', '.join(names)})) FILTER (WHERE NOT ({absent})) FROM ({rows}) AS p GROUP BY b"
    )


def staged_keys(pieces: Sequence[Piece], key: Sequence[str]) -> list[str]:
    """By piece, a SELECT of the key columns of every row, as they are named, without rows that have a NULL among them."""
    quote = pieces[0].dialect.spelling.quote
    names = ", ".join(f"r.{quote(name)}" for name in key)
    present = " AND ".join(f"r.{quote(name)} IS NOT NULL" for name in key)
    return [f"SELECT {names} FROM {piece.table} AS r WHERE {present} AND {piece.predicate}" for piece in pieces]


def key_span(dialect: Dialect, pieces: Sequence[Piece], key: Sequence[str], column: str) -> str:
    """The least and the greatest staged value of one column of the key, as text; NULL when there is no key."""
    name = f"k.{dialect.spelling.quote(column)}"
    keys = " UNION ALL ".join(staged_keys(pieces, key))
    low, high = (f"CAST({end}({name}) AS {dialect.text_type})" for end in ("min", "max"))
    return f"SELECT {low}, {high} FROM ({keys}) AS k"


def keys_outside(
    dialect: Dialect, pieces: Sequence[Piece], published: Piece, key: Sequence[str], within: Sequence[str] = ()
) -> str:
    """Each distinct staged key that the published table also has outside the range.

    :param within: what holds for every row of ``r`` that has a staged key.
    """
    quote = dialect.spelling.quote
    # A NULL partition value is outside every range.
    beyond = " AND ".join([f"({published.predicate}) IS NOT TRUE", *within])
    both = dialect.semi_join(f"{published.table} AS r", staged_keys(pieces, key), key)
    return f"SELECT DISTINCT {', '.join(f'r.{quote(name)}' for name in key)} FROM {both} WHERE {beyond}"


def keys_repeated(pieces: Sequence[Piece], key: Sequence[str]) -> str:
    """Each distinct key that is staged more than once."""
    quote = pieces[0].dialect.spelling.quote
    names = ", ".join(quote(name) for name in key)
    keys = " UNION ALL ".join(staged_keys(pieces, key))
    return f"SELECT {names} FROM ({keys}) AS k GROUP BY {names} HAVING count(*) > 1"


def _is_utc_day(partition: Partition) -> bool:
    window = partition.window
    midnight = window.start.astimezone(UTC).time() == datetime.min.time()
    return midnight and window.end - window.start == _ONE_DAY
