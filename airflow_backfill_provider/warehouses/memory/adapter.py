"""A warehouse inside this process, with every guard of a real one: for unit tests of specs, checks and steps.

    warehouse = MemoryWarehouse({"analytics.orders": {"order_id": "BIGINT NOT NULL", "order_date": "DATE"}})
    warehouse.insert("analytics.orders", [{"order_id": 1, "order_date": date(2024, 1, 1)}])

Column names are compared as written, except that staged columns find the target's whatever their case.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from threading import RLock
from typing import Any

from airflow_backfill_provider.errors import (
    PartitionOverrun,
    PublishRefused,
    SpecError,
    StageChanged,
    TargetMoved,
    TransformRefused,
    WarehouseError,
)
from airflow_backfill_provider.spec.metric import Metric, Scalar
from airflow_backfill_provider.warehouses.base import (
    AFTERWARDS,
    NO_TOLERANCE,
    PLACE,
    SIDE,
    Action,
    Backup,
    Capabilities,
    ChildSwap,
    Column,
    Constraint,
    ConstraintKind,
    Fingerprint,
    KeyConflicts,
    OutsideRows,
    Publication,
    Published,
    Receipt,
    Recompute,
    RowDiff,
    Rows,
    Running,
    Sample,
    SampleOf,
    Shadow,
    Source,
    Staged,
    StagedPartition,
    StorageItem,
    Target,
    Tell,
    Tolerance,
    Version,
    Versions,
    only_value,
    untold,
)
from airflow_backfill_provider.warehouses.clocks import AS_TYPED, Clock, ColumnKind, Reading
from airflow_backfill_provider.warehouses.code_rows import values_of
from airflow_backfill_provider.warehouses.later_columns import later, later_column_filled
from airflow_backfill_provider.warehouses.memory.measure import (
    Keyed,
    changes_by_column,
    diff_rows,
    flags,
    key_conflict_queries,
    keyed,
    measure_rows,
    metric_query,
)
from airflow_backfill_provider.warehouses.memory.rows import (
    METHOD,
    cut,
    fingerprint,
    in_order,
    land_row,
    with_nothing,
)
from airflow_backfill_provider.warehouses.memory.select import DIALECT, Row, Select, Table
from airflow_backfill_provider.warehouses.memory.values import lossless, parse_type
from airflow_backfill_provider.warehouses.memory.views import Views
from airflow_backfill_provider.warehouses.views import (
    refuse_newer_version,
    require_table,
    require_view,
    version_name,
)
from airflow_backfill_provider.windows import Partition, describe, merge

_EXAMPLES = 5
_VERSION = "version:"
"""How the location of an old version starts; the rest is its name."""
_KINDS = {
    "DATE": ColumnKind.DATE,
    "TIMESTAMP": ColumnKind.TIMESTAMP,
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT"), ColumnKind.INTEGER),
    "VARCHAR": ColumnKind.TEXT,
}


@dataclass
class _Aside:
    """A stage or a backup: tables by partition key."""

    kind: str
    backfill_id: str
    partitions: dict[str, Table] = field(default_factory=dict)
    modified_at: datetime = field(default_factory=lambda: datetime.now(UTC))


class MemoryWarehouse:
    """Tables in Python, given as ``{"schema.name": {"column": "TYPE [NOT NULL]"}}``; safe to share between threads.

    A table's rows are one immutable value, so that a reader sees a write wholly or not at all.
    """

    def __init__(self, tables: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._lock = RLock()
        self._tables: dict[str, Table] = {}
        self._views = Views()
        self._asides: dict[str, _Aside] = {}
        self._receipts: dict[str, tuple[Receipt, ...]] = {}
        self._serial = count(1)
        for name, columns in (tables or {}).items():
            self.create_table(name, columns)

    def create_table(
        self,
        name: str,
        columns: Mapping[str, str],
        rows: Iterable[Sequence[Any]] = (),
        constraints: Iterable[Constraint] = (),
    ) -> None:
        """Make the table, or make it anew; ``NOT NULL`` columns have their constraint already.

        :raises ValueError: a type is not known, or a value does not fit its column.
        """
        described = []
        for column, text in columns.items():
            type_ = text.upper().removesuffix(" NOT NULL")
            parse_type(type_)
            described.append(Column(column, type_, nullable=type_ == text.upper()))
        filled = [_filled(name, column.name) for column in described if not column.nullable]
        with self._lock:
            self._tables[name] = Table(tuple(described), constraints=(*constraints, *filled))
            self.set_rows(name, rows)

    def create_view(self, name: str, select: str) -> None:
        """Make the view, or make it anew; only one that shows all of one table can be read.

        :raises ValueError: a table has the name.
        """
        with self._lock:
            if name in self._tables:
                raise ValueError(f"{name} is a table")
            self._views.create(name, select)

    def insert(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows; a column left out is NULL.

        :raises ValueError: there is no such column, or a value does not fit its column; no row is added.
        """
        with self._lock:
            names = [column.name for column in self._own(name).columns]
            added = []
            for row in rows:
                if surplus := [column for column in row if column not in names]:
                    raise ValueError(f"{name} has no column {', '.join(surplus)}; it has {', '.join(names)}")
                added.append([row.get(column) for column in names])
            self.set_rows(name, [*self._own(name).rows, *added])

    def set_rows(self, name: str, rows: Iterable[Sequence[Any]]) -> None:
        """Make these the rows of the table, values in the order of its columns.

        :raises ValueError: a value does not fit its column, or the rows break a constraint.
        """
        with self._lock:
            table = self._own(name)
            landed = tuple(land_row(table.columns, row) for row in rows)
            _refuse_broken(name, landed_table := replace(table, rows=landed))
            self._tables[name] = landed_table

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Every row of the table."""
        table = self._table(name)
        return [dict(zip((column.name for column in table.columns), row, strict=True)) for row in table.rows]

    def query(self, select: str) -> list[Row]:
        """Run a SELECT over the tables, and over stages and backups as ``"location/key"``.

        :raises WarehouseError: it cannot be bound, or failed.
        """
        return list(Select.bind(select, self._readable()).run())

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            engine=METHOD,
            mechanisms=frozenset({"replace_partitions", "merge", "view_swap"}),
            dialect=DIALECT,
            rows_per_second=50_000,
            replaced_per_second=50_000,
            one_host=True,
            takes_nothing_from_elsewhere="The in-memory warehouse is in its process alone.",
            unproven=("The in-memory warehouse ends with its process, and no other process can see it.",),
        )

    def describe(self, table: str, partition_by: str, key: Sequence[str], reading: Reading = AS_TYPED) -> Target:
        version = None
        holder = table
        if table in self._views:
            holder = self._views.shown_by(table)
            if holder not in self._tables:
                raise SpecError(f"{table} is a view of {holder}, which is no table.")
            others = [name for name in self._views.readers(holder) if name != table]
            left_behind = (
                f"The view {name} reads {holder} by name and goes on showing the old version." for name in others
            )
            version = Version(holder, len(self._tables[holder].rows), tuple(left_behind))
        if holder not in self._tables:
            raise SpecError(f"There is no table {table!r}; there are {', '.join(sorted(self._tables)) or 'none'}.")
        found = self._tables[holder]
        names = [column.name for column in found.columns]
        for name in (partition_by, *key):
            if name not in names:
                raise SpecError(f"{table} has no column {name!r}; it has {', '.join(names)}.")
        clock = self._clock(table, partition_by, reading)
        return Target(table, partition_by, clock, tuple(key), found.columns, found.constraints, version)

    def select_columns(self, select: str) -> tuple[Column, ...]:
        try:
            return Select.bind(select, self._visible()).columns
        except WarehouseError as error:
            raise TransformRefused(str(error)) from error

    def reader_cautions(self, target: Target) -> tuple[str, ...]:
        return ()

    def upkeep(self, target: Target, *, deleted: int) -> tuple[str, ...]:
        return ()

    def growth_cautions(self, target: Target) -> tuple[str, ...]:
        return ()

    def lossless(self, source_type: str, target_type: str) -> bool:
        return lossless(source_type, target_type)

    def aliases(self, target: Target, names: Sequence[str]) -> tuple[str, ...]:
        holder = target.version.table if target.version else target.table
        found = {holder, *self._views.over(holder)} - {target.table}
        return tuple(name for name in names if name in found)

    def source_versions(self, selects: Sequence[str], tables: Sequence[str]) -> dict[str, int]:
        return {}

    def require_versions(self, versions: Versions) -> None:
        """No version is kept."""

    def source_cautions(self, versions: Versions, *, since: datetime | None, needed: timedelta) -> tuple[str, ...]:
        return ()

    def receipt_cautions(self, target: Target, *, needed: timedelta) -> tuple[str, ...]:
        return ()

    def fingerprint(self, target: Target, rows: Rows, partitions: Sequence[Partition]) -> dict[str, Fingerprint]:
        return {
            key: fingerprint(in_order(table, target.column_names))
            for key, table in self._split(target, rows, partitions).items()
        }

    def measure(
        self, target: Target, rows: Rows, partitions: Sequence[Partition], metrics: Sequence[Metric]
    ) -> dict[str, dict[Metric, Scalar]]:
        return {
            key: {metric: measure_rows(table, metric, self._related(metrics)) for metric in metrics}
            for key, table in self._split(target, rows, partitions).items()
        }

    def measure_together(
        self, target: Target, rows: Rows, partitions: Sequence[Partition], metrics: Sequence[Metric]
    ) -> dict[Metric, Scalar]:
        if not partitions:
            return {metric: metric.nothing for metric in metrics}
        together = _joined(list(self._split(target, rows, partitions).values()))
        return {metric: measure_rows(together, metric, self._related(metrics)) for metric in metrics}

    def metric_sql(self, target: Target, rows: Rows, partitions: Sequence[Partition], metric: Metric) -> str:
        match rows:
            case Published():
                tables, partition_by, clock = [target.table], target.partition_by, target.clock
            case Source(table, partition_by, reading):
                tables, clock = [table], self._clock(table, partition_by, reading)
                if rows.where:
                    both = [f"({condition})" for condition in (rows.where, metric.where) if condition]
                    metric = replace(metric, where=" AND ".join(both))
            case Staged(staged):
                tables = [
                    _address(entry.location, entry.partition.key) for entry in staged if entry.partition in partitions
                ]
                partition_by, clock = target.partition_by, target.clock
            case Backup(location):
                tables = [_address(location, partition.key) for partition in partitions]
                partition_by, clock = target.partition_by, target.clock
        return metric_query(tables, partition_by, clock, partitions, metric)

    def count_rows(self, target: Target, staged: Staged, query: str, *, where: str = "") -> int:
        stage = _joined(list(self._split(target, staged, [entry.partition for entry in staged.partitions]).values()))
        if where:
            stage = _only(stage, where)
        return len(Select.bind(query, {**self._visible(), "stage": stage}).run())

    def one_value(self, target: Target, staged: Staged, query: str) -> Scalar:
        return only_value(
            Select.bind(query, {**self._visible(), AFTERWARDS: self._afterwards(target, staged)}).run()[:2]
        )

    def compare(
        self, target: Target, old: Rows, new: Rows, partitions: Sequence[Partition], *, exclude: Sequence[str] = ()
    ) -> dict[str, RowDiff]:
        names = target.compared(exclude)
        return {key: diff_rows(*sides) for key, sides in self._sides(target, old, new, partitions, names)}

    def changed_columns(
        self,
        target: Target,
        old: Rows,
        new: Rows,
        partitions: Sequence[Partition],
        *,
        exclude: Sequence[str] = (),
        tolerance: Tolerance = NO_TOLERANCE,
    ) -> dict[str, dict[str, int]]:
        names = target.compared(exclude)
        return {
            key: changes_by_column(names, *sides, tolerance)
            for key, sides in self._sides(target, old, new, partitions, names)
        }

    def _sides(
        self, target: Target, old: Rows, new: Rows, partitions: Sequence[Partition], names: Sequence[str]
    ) -> Iterator[tuple[str, tuple[Keyed, Keyed]]]:
        before, after = self._split(target, old, partitions), self._split(target, new, partitions)
        for partition in partitions:
            sides = before[partition.key], after[partition.key]
            yield partition.key, (keyed(sides[0], target.key, names), keyed(sides[1], target.key, names))

    def moved_keys(
        self, target: Target, old: Rows, new: Rows, partitions: Sequence[Partition]
    ) -> dict[tuple[str, str], int]:
        before, after = self._split(target, old, partitions), self._split(target, new, partitions)
        was, now = (
            [(name, key) for name, table in side.items() for key in set(in_order(table, target.key)) if None not in key]
            for side in (before, after)
        )
        came = defaultdict(list)
        for name, key in now:
            came[key].append(name)
        return dict(Counter((left, name) for left, key in was for name in came[key] if name != left))

    def keep_sample(
        self, target: Target, backfill_id: str, old: Rows, new: Rows, partitions: Sequence[Partition], what: SampleOf
    ) -> Sample:
        if not partitions:
            raise WarehouseError("No partition was given, so there is nothing to keep a sample of.")
        compared = target.compared(what.exclude)
        differing: list[tuple[str, list[tuple[str, Row]]]] = []
        shown = zip(
            self._sides(target, old, new, partitions, compared),
            self._sides(target, old, new, partitions, what.columns),
            strict=True,
        )
        for (_, (before, after)), (_, values) in shown:
            was, now = dict(before), dict(after)
            kept = [(side, dict(rows)) for side, rows in zip(("old", "new"), values, strict=True)]
            differing += [
                (fingerprint([key]).digest, [(side, rows[key]) for side, rows in kept if key in rows])
                for key in {**was, **now}
                if was.get(key) != now.get(key)
            ]
        rows = tuple(
            (str(place), side, *(None if value is None else str(value) for value in row))
            for place, (_, sides) in enumerate(sorted(differing)[: what.limit], start=1)
            for side, row in sides
        )
        location = self._set_aside("sample", backfill_id, "rows")
        names = (PLACE, SIDE, *what.columns)
        self._keep(location, "", Table(tuple(Column(name, "VARCHAR") for name in names), rows))
        return Sample(location, rows)

    def outside_rows(self, target: Target) -> OutsideRows:
        return OutsideRows(in_order(self._table(target.table), (target.partition_by,)).count((None,)))

    def key_conflicts(self, target: Target, staged: Staged, *, no_new_keys: bool = False) -> KeyConflicts:
        partitions = [entry.partition for entry in staged.partitions]
        tables = self._split(target, staged, partitions).values()
        keys = Counter(key for table in tables for key in in_order(table, target.key) if None not in key)
        published = self._table(target.table)
        gone = _in_any(target, published, partitions)
        kept = {key for key, is_gone in zip(in_order(published, target.key), gone, strict=True) if not is_gone}
        outside = [key for key in keys if key in kept]
        repeated = [] if no_new_keys else [key for key, times in keys.items() if times > 1]
        examples = dict.fromkeys((outside + repeated)[:_EXAMPLES])
        named = (", ".join(f"{name}={value}" for name, value in zip(target.key, key, strict=True)) for key in examples)
        return KeyConflicts(len(outside), len(repeated), tuple(named))

    def key_conflict_sql(self, target: Target, staged: Staged) -> tuple[str, str]:
        tables = [_address(entry.location, entry.partition.key) for entry in staged.partitions]
        return key_conflict_queries(tables, target, [entry.partition for entry in staged.partitions])

    @contextmanager
    def open_stage(self, target: Target, backfill_id: str, label: str, tell: Tell = untold) -> Iterator[MemoryStage]:
        yield MemoryStage(self, target, self._set_aside("stage", backfill_id, label))

    def take_over(
        self, target: Target, backfill_id: str, running: Running, partitions: Sequence[Partition]
    ) -> tuple[StagedPartition, ...]:
        return ()

    def back_up(
        self, target: Target, backfill_id: str, partitions: Sequence[Partition], *, label: str
    ) -> tuple[Backup, dict[str, Fingerprint]]:
        tables = self._split(target, Published(), partitions)
        backup = Backup(self._set_aside("backup", backfill_id, label))
        self._asides[backup.location].partitions.update(tables)
        return backup, self.fingerprint(target, backup, partitions)

    @contextmanager
    def open_shadow(self, target: Target, backfill_id: str, partitions: Sequence[Partition]) -> Iterator[Shadow]:
        location = self._set_aside("shadow", backfill_id, "trial")
        copied = self._split(target, Published(), partitions)
        self._asides[location].partitions.update(copied)
        shadow = MemoryWarehouse()
        shadow._asides, shadow._serial = self._asides, self._serial
        holder = target.version.table if target.version is not None else target.table
        found = self._table(target.table)
        names = [column.name for column in found.columns]
        shadow._tables[holder] = replace(found, rows=tuple(in_order(_joined(list(copied.values())), names)))
        if target.version is not None:
            shadow._views.create(target.table, f"SELECT * FROM {holder}")
        try:
            yield Shadow(shadow, target)
        finally:
            self.drop(location)

    def replace_partitions(self, target: Target, publication: Publication) -> Receipt:
        require_table(target)
        return self._publish(target, publication, _all_rows, self._keep_in_place)

    def merge(self, target: Target, publication: Publication) -> Receipt:
        def differing(old: Sequence[Row], new: Sequence[Row]) -> tuple[int, int]:
            known = [row for row in in_order(Table(target.columns, tuple(old)), target.key) if None not in row]
            if len(set(known)) < len(known):
                raise PublishRefused(f"Published rows of {target.table} share a key, so a merge cannot match them.")
            return (Counter(old) - Counter(new)).total(), (Counter(new) - Counter(old)).total()

        require_table(target)
        return self._publish(target, publication, differing, self._keep_in_place)

    def swap_view(self, target: Target, publication: Publication) -> Receipt:
        require_view(target)
        publishes = publication.action is Action.PUBLISH
        return self._publish(target, publication, _all_rows, self._keep_beside if publishes else self._turn_back)

    def plan_swap(self, target: Target, partitions: Sequence[Partition]) -> ChildSwap:
        raise SpecError(
            f"{target.table}: memory tables have no partitions that can be exchanged. Set publish.swap: false."
        )

    def fill_children(self, target: Target, backfill_id: str, staged: Staged) -> Backup:
        raise PublishRefused(f"{target.table}: memory tables have no partitions that can be exchanged.")

    def swap_children(self, target: Target, publication: Publication) -> Receipt:
        raise PublishRefused(f"{target.table}: memory tables have no partitions that can be exchanged.")

    def _keep_in_place(self, target: Target, receipt: Receipt, table: Table) -> None:
        self._tables[target.table] = table

    def _keep_beside(self, target: Target, receipt: Receipt, table: Table) -> None:
        """Make it a new version of the view."""
        schema, dot, _ = self._views.shown_by(target.table).rpartition(".")
        name = f"{schema}{dot}{version_name(target.table.rpartition('.')[2], receipt.backfill_id)}"
        if name in self._tables:
            raise PublishRefused(f"The new version of {target.table} would be {name}, which exists already.")
        self._tables[name] = table
        self._views.move(target.table, name, receipt)

    def _turn_back(self, target: Target, receipt: Receipt, table: Table) -> None:
        """Show the version before again when it is this very table, or else keep it in place."""
        refuse_newer_version(target, receipt.backfill_id, self.receipts(target))
        before = self._views.replaced_by(target.table, receipt.backfill_id)
        earlier = self._tables.get(before) if before is not None else None
        if before is not None and earlier is not None and _same(earlier, table):
            self._views.move(target.table, before, receipt)
        else:
            self._tables[self._views.shown_by(target.table)] = table

    def _publish(
        self,
        target: Target,
        publication: Publication,
        count_rows: Callable[[Sequence[Row], Sequence[Row]], tuple[int, int]],
        keep: Callable[[Target, Receipt, Table], None],
    ) -> Receipt:
        partitions, keys = publication.partitions, tuple(partition.key for partition in publication.partitions)
        publication.refuse_incomplete(METHOD)
        with self._lock:
            table = self._described(target)
            since = later(target, table.columns) if publication.action is not Action.PUBLISH else ()
            if tuple(column for column in table.columns if column not in since) != target.columns:
                raise PublishRefused(f"{target.table} has other columns than when the plan was made. Plan again.")
            moved = _differences(publication.before, self.fingerprint(target, Published(), partitions))
            if moved:
                raise TargetMoved(
                    f"{target.table} moved since the plan was made (rows expected, found): {moved}.", moved
                )
            landing = self._split(target, publication.rows, partitions)
            changed = _differences(publication.after, self.fingerprint(target, publication.rows, partitions))
            if changed:
                raise StageChanged(
                    f"What would land is not what was validated (rows expected, found): {changed}.", changed
                )
            gone = _in_any(target, table, partitions)
            went = [row for row, is_gone in zip(table.rows, gone, strict=True) if is_gone]
            counts = [
                (
                    column.name,
                    sum(value is not None for (value,) in in_order(replace(table, rows=tuple(went)), [column.name])),
                )
                for column in since
            ]
            if filled := [(name, rows) for name, rows in counts if rows]:
                raise later_column_filled(target, filled)
            kept = [row for row, is_gone in zip(table.rows, gone, strict=True) if not is_gone]
            if not publication.keys_may_repeat:
                _refuse_repeated_keys(target, Table(table.columns, tuple(kept)), landing.values())
            names = tuple(column.name for column in table.columns)
            added = [row for staged in landing.values() for row in in_order(with_nothing(staged, since), names)]
            try:
                _refuse_broken(target.table, published := replace(table, rows=(*kept, *added)))
            except ValueError as error:
                raise PublishRefused(f"The staged rows break a constraint; nothing was written: {error}") from error
            deleted, inserted = count_rows(went, added)
            publication.confirm()
            earlier = self._receipts.get(target.table, ())
            receipt = Receipt(
                sequence=len(earlier) + 1,
                backfill_id=publication.backfill_id,
                action=publication.action,
                plan_hash=publication.plan_hash,
                keys=keys,
                deleted=deleted,
                inserted=inserted,
                committed_at=datetime.now(UTC),
            )
            keep(target, receipt, published)
            self._receipts[target.table] = (*earlier, receipt)
            return receipt

    def receipts(self, target: Target) -> tuple[Receipt, ...]:
        return self._receipts.get(target.table, ())

    def storage(self) -> tuple[StorageItem, ...]:
        with self._lock:
            asides = [
                StorageItem(
                    aside.backfill_id, aside.kind, location, _size(aside.partitions.values()), aside.modified_at
                )
                for location, aside in self._asides.items()
            ]
            versions = [
                StorageItem(moved.backfill_id, "version", _VERSION + name, _size([self._tables[name]]), moved.at)
                for name, moved in self._views.left().items()
                if name in self._tables
            ]
            return (*asides, *versions)

    def drop(self, location: str) -> None:
        with self._lock:
            self._asides.pop(location, None)
            name = location.removeprefix(_VERSION)
            if name == location or name not in self._views.left():
                return
            if found := self._views.readers(name):
                raise WarehouseError(f"{name} is read by {', '.join(found)}, so it was not dropped.")
            self._tables.pop(name, None)

    def cancel(self) -> None:
        """Nothing to end: no call waits for anything but one lock, and each is over in a moment."""

    def close(self) -> None:
        """Nothing to let go of: the tables stay until the object goes."""

    def _table(self, name: str) -> Table:
        """The table, or the one that the view shows."""
        with self._lock:
            return self._own(self._views.shown_by(name) if name in self._views else name)

    def _described(self, target: Target) -> Table:
        """The published table with the columns that a publish adds, which are NULL as long as they are not there."""
        table = self._table(target.table)
        there = {column.name.casefold() for column in table.columns}
        lacking = tuple(column for column in target.added if column.name.casefold() not in there)
        return with_nothing(table, lacking)

    def _visible(self) -> dict[str, Table]:
        """Every table, and every view that shows one."""
        with self._lock:
            shown = {view: self._tables[table] for view, table in self._views.plain.items() if table in self._tables}
            return {**self._tables, **shown}

    def _afterwards(self, target: Target, staged: Staged) -> Table:
        """The published table as it would be with these rows in the place of their partitions'."""
        table, partitions = self._described(target), [one.partition for one in staged.partitions]
        if not partitions:
            return table
        landed = _joined(list(self._split(target, staged, partitions).values()))
        gone = _in_any(target, table, partitions)
        kept = tuple(row for row, is_gone in zip(table.rows, gone, strict=True) if not is_gone)
        names = tuple(column.name for column in table.columns)
        return replace(table, rows=(*kept, *in_order(landed, names)))

    def _own(self, name: str) -> Table:
        if name not in self._tables:
            raise WarehouseError(f"There is no table {name!r}; there are {', '.join(sorted(self._tables)) or 'none'}.")
        return self._tables[name]

    def _related(self, metrics: Sequence[Metric]) -> dict[str, Table]:
        return {metric.to_table: self._table(metric.to_table) for metric in metrics if metric.to_table}

    def _clock(self, table: str, partition_by: str, reading: Reading) -> Clock:
        types = {column.name: column.type for column in self._table(table).columns}
        if partition_by not in types:
            raise SpecError(f"{table} has no column {partition_by!r}; it has {', '.join(types)}.")
        if (kind := _KINDS.get(parse_type(types[partition_by])[0])) is None:
            raise SpecError(
                f"{partition_by!r} of {table} is {types[partition_by]}; a partition column is one of {', '.join(_KINDS)}."
            )
        try:
            return reading.clock(kind)
        except SpecError as error:
            raise SpecError(
                f"{table} cannot be partitioned by {partition_by} ({types[partition_by]}): {error}."
            ) from error

    def _readable(self) -> dict[str, Table]:
        with self._lock:
            asides = {
                _address(location, key): table
                for location, aside in self._asides.items()
                for key, table in aside.partitions.items()
            }
            return {**self._visible(), **asides}

    def _set_aside(self, kind: str, backfill_id: str, label: str) -> str:
        with self._lock:
            location = f"memory:{kind}/{backfill_id}/{label}-{next(self._serial)}"
            self._asides[location] = _Aside(kind, backfill_id)
            return location

    def _keep(self, location: str, key: str, table: Table) -> None:
        with self._lock:
            if location not in self._asides:
                raise WarehouseError(f"The stage {location} was dropped. Stage again.")
            self._asides[location].partitions[key] = table
            self._asides[location].modified_at = datetime.now(UTC)

    def _split(self, target: Target, rows: Rows, partitions: Sequence[Partition]) -> dict[str, Table]:
        """The rows of each partition, by key and in the given order."""
        match rows:
            case Published():
                return cut(self._described(target), target.partition_by, target.clock, partitions)
            case Source(table, partition_by, reading):
                found = self._table(table)
                if rows.where:
                    found = _only(found, rows.where)
                return cut(found, partition_by, self._clock(table, partition_by, reading), partitions)
            case Staged(staged):
                locations = {entry.partition.key: entry.location for entry in staged}
            case Backup(location):
                locations = {partition.key: location for partition in partitions}
        try:
            return {key: self._asides[locations[key]].partitions[key] for key in (part.key for part in partitions)}
        except KeyError as error:
            raise WarehouseError(f"{error} is not staged or backed up here; it may have been dropped.") from error


class MemoryLanding:
    """A list of rows; see :class:`airflow_backfill_provider.warehouses.base.Landing`."""

    table = "safe_backfill.landed_rows"

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = tuple(columns)
        self.rows: list[Row] = []

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self._columns)

    @property
    def connection(self) -> Any:
        raise WarehouseError("The in-memory warehouse has no connection; return the rows.")

    def add(self, rows: Any) -> None:
        try:
            self.rows += [land_row(self._columns, values) for values in values_of(rows, self.columns)]
        except ValueError as error:
            raise WarehouseError(f"What the code returned does not fit: {error}. Nothing was kept.") from error

    @property
    def address(self) -> Mapping[str, str]:
        raise WarehouseError("The in-memory warehouse is in its process alone; return the rows.")

    def collect(self, address: Mapping[str, str]) -> None:
        raise WarehouseError("The in-memory warehouse is in its process alone; return the rows.")

    def double(self) -> None:
        self.rows *= 2

    def settle(self) -> None:
        """Nothing: there is no connection to write by."""


class MemoryStage:
    """One batch attempt's stage in a :class:`MemoryWarehouse`."""

    def __init__(self, warehouse: MemoryWarehouse, target: Target, location: str) -> None:
        self.location = location
        self._warehouse = warehouse
        self._target = target

    def write(self, *recomputes: Recompute) -> tuple[StagedPartition, ...]:
        tables = [
            (partition, table) for recompute in recomputes for partition, table in self._tables(recompute).items()
        ]
        for partition, table in tables:
            self._warehouse._keep(self.location, partition.key, table)
        return tuple(
            StagedPartition(partition, self.location, fingerprint(in_order(table, self._target.column_names)))
            for partition, table in tables
        )

    def _tables(self, recompute: Recompute) -> dict[Partition, Table]:
        visible = self._warehouse._visible()
        if recompute.over:
            visible[AFTERWARDS] = self._warehouse._afterwards(self._target, Staged(recompute.over))
        # A stage has no constraint of the target's, so that checks can report what breaks one.
        wanted = tuple(replace(column, nullable=True) for column in self._target.columns if not column.generated)
        if recompute.fill is None:
            query = Select.bind(recompute.select, visible)
        else:
            landing = MemoryLanding(wanted)
            recompute.fill(landing)
            landing.settle()
            query = Select.bind(f"SELECT * FROM {landing.table}", {landing.table: Table(wanted, tuple(landing.rows))})
        found = [column.name.lower() for column in query.columns]
        names = [column.name.lower() for column in wanted]
        if sorted(found) != sorted(names):
            missing = [column.name for column in wanted if column.name.lower() not in found]
            surplus = [column.name for column in query.columns if column.name.lower() not in names]
            raise WarehouseError(
                f"The SELECT must return each column of {self._target.table} once and nothing else; "
                f"missing: {', '.join(missing) or 'none'}; not in the table: {', '.join(surplus) or 'none'}."
            )
        order = [found.index(name) for name in names]
        what = describe(recompute.partitions)
        try:
            rows = tuple(land_row(wanted, [row[index] for index in order]) for row in query.run())
        except ValueError as error:
            raise WarehouseError(f"{what} cannot be staged: {error}.") from error
        table, target = Table(wanted, rows), self._target
        if recompute.keep_unmatched:
            table = replace(table, rows=(*rows, *self._unmatched(recompute.partitions, table)))
        tables = cut(table, target.partition_by, target.clock, recompute.partitions)
        if sum(len(inside.rows) for inside in tables.values()) != len(table.rows):
            values: list[Any] = [value for (value,) in in_order(table, (target.partition_by,))]
            held_ones = _in_any(target, table, recompute.partitions)
            strays = [value for value, held in zip(values, held_ones, strict=True) if value is not None and not held]
            span = f", from {min(strays)} to {max(strays)}" if strays else ""
            raise PartitionOverrun(
                f"{what} cannot be staged: {len(strays)} of its {len(rows)} rows lie outside "
                f"{', '.join(map(str, merge(recompute.partitions)))}{span}, and {values.count(None)} have no "
                f"{target.partition_by}. Nothing was kept. Bound the SQL by "
                f"{recompute.partitions[0].span.template_names} on that column."
            )
        return {partition: tables[partition.key] for partition in recompute.partitions}

    def _unmatched(self, partitions: Sequence[Partition], fresh: Table) -> list[Row]:
        """The published rows of the partitions whose key is not among the fresh ones."""
        target = self._target
        published = self._warehouse._described(target)
        known = set(in_order(fresh, target.key))
        rows = in_order(published, target.column_names)
        held = _in_any(target, published, partitions)
        keys = in_order(published, target.key)
        return [row for row, key, inside in zip(rows, keys, held, strict=True) if inside and key not in known]


def _in_any(target: Target, table: Table, partitions: Sequence[Partition]) -> list[bool]:
    """For each row of the table, whether one of the partitions holds it."""
    values: list[Any] = [value for (value,) in in_order(table, (target.partition_by,))]
    tests = [target.clock.holds(partition.span) for partition in partitions]
    return [any(holds(value) for holds in tests) for value in values]


def _filled(table: str, column: str) -> Constraint:
    name = f"{table.rpartition('.')[2]}_{column}_not_null"
    return Constraint(ConstraintKind.NOT_NULL, name, f"NOT NULL({column})", (column,))


def _refuse_broken(name: str, table: Table) -> None:
    for constraint in table.constraints:
        values = in_order(table, constraint.columns)
        match constraint.kind:
            case ConstraintKind.NOT_NULL:
                broken = any(None in row for row in values)
            case ConstraintKind.UNIQUE:
                known = [row for row in values if None not in row]
                broken = len(set(known)) < len(known)
            case ConstraintKind.CHECK:
                broken = not all(flags(table, f"({constraint.expression}) IS NOT FALSE"))
        if broken:
            raise ValueError(f"{name} has the constraint {constraint.name}: {constraint.text}")


def _only(table: Table, where: str) -> Table:
    """The rows for which the expression is true."""
    held = flags(table, where)
    return Table(table.columns, tuple(row for row, flag in zip(table.rows, held, strict=True) if flag))


def _joined(tables: Sequence[Table]) -> Table:
    return Table(tables[0].columns, tuple(row for table in tables for row in table.rows))


def _differences(expected: Mapping[str, Fingerprint], found: Mapping[str, Fingerprint]) -> dict[str, tuple[int, int]]:
    return {key: (expected[key].rows, now.rows) for key, now in found.items() if expected[key] != now}


def _refuse_repeated_keys(target: Target, kept: Table, landing: Iterable[Table]) -> None:
    outside = {key for key in in_order(kept, target.key) if None not in key}
    if any(key in outside for table in landing for key in in_order(table, target.key)):
        raise PublishRefused(f"{target.table} has keys outside the range that would land too.")


def _address(location: str, key: str) -> str:
    return f"{location}/{key}"


def _size(tables: Iterable[Table]) -> int:
    return sum(len(repr(table.rows)) for table in tables)


def _all_rows(old: Sequence[Row], new: Sequence[Row]) -> tuple[int, int]:
    return len(old), len(new)


def _same(one: Table, other: Table) -> bool:
    """Whether two tables hold the same rows in the same columns, in whatever order."""
    return one.columns == other.columns and Counter(one.rows) == Counter(other.rows)
