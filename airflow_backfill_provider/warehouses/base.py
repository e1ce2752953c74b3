"""What the product asks of an engine: promises, not SQL.

Every promise has one set of contract tests that runs on every engine (``tests/contract``). Guards live inside the
adapter, so that no caller can skip them. The set-based verbs take many partitions and answer per partition from
one statement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Protocol

from airflow_backfill_provider.errors import PublishRefused, WarehouseError
from airflow_backfill_provider.spec.metric import Metric, Scalar
from airflow_backfill_provider.warehouses.clocks import AS_TYPED, Clock, Reading
from airflow_backfill_provider.windows import Partition, merge


@dataclass(frozen=True)
class Capabilities:
    """What an engine can do; read once, when the plan is built, to refuse early."""

    engine: str
    """The engine's name and version, as the plan prints it."""
    mechanisms: frozenset[str]
    dialect: str
    """The name of the engine's SQL dialect in sqlglot."""
    rows_per_second: int
    """A cautious estimate of how many rows one task stages in a second; decides batch sizes, nothing else."""
    replaced_per_second: int | None
    """A cautious estimate of how many rows one commit replaces in a second, while nobody else can write the table; None
    where others go on writing meanwhile."""
    cannot: Mapping[str, str] = field(default_factory=dict)
    """Why a mechanism that other engines have would not be safe here, and what to use instead; by its name, as sentences."""
    one_host: bool = False
    """Every task must run on the host that holds the files."""
    unproven: tuple[str, ...] = ()
    """Sentences the plan prints: what this engine cannot guarantee."""
    takes_no_code: str = ""
    """Why code has no :class:`Landing` here, and what to do instead; empty where it has one."""
    takes_nothing_from_elsewhere: str = ""
    """The same of another process than the one that makes the landing."""


@dataclass(frozen=True)
class Column:
    """One column as the engine describes it."""

    name: str
    type: str
    nullable: bool = True
    hashable: bool = True
    generated: bool = False
    numbered: bool = False
    """The table numbers it itself: an INSERT may be made to keep a value, and no UPDATE can set one."""
    added: str = field(default="", compare=False)
    """Of a column that the table lacks until a publish adds it, the comment that it gets; empty of any other."""


class ConstraintKind(StrEnum):
    """What the table itself demands of its rows."""

    CHECK = "check"
    NOT_NULL = "not_null"
    UNIQUE = "unique"  # also a primary key; rows with a NULL in the columns are not held against each other


@dataclass(frozen=True)
class Constraint:
    """A constraint of the published table, which staged rows are checked against before they are published."""

    kind: ConstraintKind
    name: str
    text: str
    """As the engine writes it: ``CHECK((amount >= 0))``."""
    columns: tuple[str, ...]
    expression: str = ""
    """Of a CHECK, the SQL that no row may make false."""
    where: str = ""
    """SQL of the rows that it holds for; empty for all."""


@dataclass(frozen=True)
class Version:
    """The table that a view shows all rows of, as it was at scope time."""

    table: str
    """Dotted name, as ``Target.table``."""
    rows: int
    """Of the whole table: what a new version copies beside the range."""
    not_carried: tuple[str, ...] = ()
    """What a new version will lack or leave behind, a sentence each."""


@dataclass(frozen=True)
class Target:
    """The published table as it was described at scope time; frozen into the plan."""

    table: str
    """Dotted name as in the spec, ``schema.name``; the adapter quotes each part."""
    partition_by: str
    clock: Clock
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    constraints: tuple[Constraint, ...] = ()
    version: Version | None = None
    """When ``table`` is a view, the table that it shows, whose columns and constraints these are."""

    @property
    def column_names(self) -> tuple[str, ...]:
        """Every column that can be written, in the table's order."""
        return tuple(column.name for column in self.columns if not column.generated)

    @property
    def added(self) -> tuple[Column, ...]:
        """The columns that a publish adds. Wherever the table lacks one, it is NULL in every published row."""
        return tuple(column for column in self.columns if column.added)

    def without(self, columns: Collection[Column]) -> Target:
        """The same target, as long as these columns are not there."""
        return replace(self, columns=tuple(column for column in self.columns if column not in columns))

    def compared(self, exclude: Sequence[str]) -> tuple[str, ...]:
        """The columns whose values a row diff looks at: all that can be written but those excluded, in any case."""
        left_out = {name.casefold() for name in exclude}
        return tuple(name for name in self.column_names if name.casefold() not in left_out)


@dataclass(frozen=True)
class Fingerprint:
    """Row count and a digest of the rows' values: equal exactly when the rows are equal as a bag.

    Comparable only within one ``method`` (engine and version), which stands in it for that reason.
    """

    rows: int
    digest: str
    method: str


@dataclass(frozen=True)
class StagedPartition:
    """Where one partition's staged rows are, and what they were when written."""

    partition: Partition
    location: str
    """The engine's own address of the batch attempt that holds them."""
    fingerprint: Fingerprint


@dataclass(frozen=True)
class Running:
    """A statement that fills a stage and that the engine works on by itself, also when the task that began it is gone."""

    statement: str
    """The engine's own id of it."""
    location: str
    """The stage that its rows land in."""
    keys: tuple[str, ...]
    """The partitions that it fills."""


Tell = Callable[[Running], None]


def untold(running: Running) -> None:
    """Tell nobody that a statement runs."""


@dataclass(frozen=True)
class Published:
    """Rows side: the published table."""


@dataclass(frozen=True)
class Staged:
    """Rows side: staged partitions, wherever each of them is."""

    partitions: tuple[StagedPartition, ...]

    def by_location(self, partitions: Sequence[Partition]) -> dict[str, list[Partition]]:
        """Those of the partitions that are staged, by where."""
        found: dict[str, list[Partition]] = {}
        for entry in self.partitions:
            if entry.partition in partitions:
                found.setdefault(entry.location, []).append(entry.partition)
        return found


@dataclass(frozen=True)
class Backup:
    """Rows side: the pre-publish copy of exactly the affected partitions."""

    location: str


Versions = Mapping[str, int]
"""Versions of tables that the engine can read again later, by the name of the table as the engine writes it."""


@dataclass(frozen=True)
class Source:
    """Rows side: a table that the transform reads, partitioned by a column of its own."""

    table: str
    partition_by: str
    reading: Reading = AS_TYPED
    where: str = ""
    """SQL over the columns of one row; the rows are those for which it is true. Empty: every row."""
    versions: Versions = field(default_factory=dict, hash=False)
    """The version to read, by table; the latest of a table that is not among them."""


Rows = Published | Staged | Backup | Source


@dataclass(frozen=True)
class RowDiff:
    """Old against new rows of one partition, matched by key.

    When the key is NULL or not unique somewhere, a fault count of that side is above zero and the counts from
    ``identical`` to ``removed`` are zero: a row diff over such keys would be nonsense. Otherwise
    ``old == identical + changed + removed`` and ``new == identical + changed + added`` hold.
    """

    old: int
    new: int
    identical: int = 0
    changed: int = 0
    added: int = 0
    removed: int = 0
    old_null_keys: int = 0
    """Old rows with a NULL in the key."""
    new_null_keys: int = 0
    """New rows with a NULL in the key."""
    old_duplicate_keys: int = 0
    """Old rows beyond the first of their key."""
    new_duplicate_keys: int = 0
    """New rows beyond the first of their key."""
    old_fingerprint: Fingerprint | None = field(default=None, compare=False)
    """Of the old rows that were compared; None where rows could not be matched one to one."""
    new_fingerprint: Fingerprint | None = field(default=None, compare=False)
    """Of the new rows that were compared; None as above."""


@dataclass(frozen=True)
class OutsideRows:
    """Rows of the published table that no partition can ever hold, and the bounds of the rest."""

    null_partition: int
    """Rows whose partition column is NULL."""


@dataclass(frozen=True)
class KeyConflicts:
    """Staged keys that would stop being unique in the table once published."""

    outside: int
    """Distinct staged keys that also exist in the published table outside the range."""
    repeated: int
    """Distinct keys that are staged more than once in the range, in one partition or in two."""
    examples: tuple[str, ...] = ()


class Action(StrEnum):
    """What a receipt says was done to a range."""

    PUBLISH = "publish"
    ROLLBACK = "rollback"
    RESTORE = "restore"
    """What a forced rollback overwrote was brought back."""


@dataclass(frozen=True)
class Publication:
    """One replacement of a range: everything the adapter needs to do it or to refuse it."""

    backfill_id: str
    action: Action
    plan_hash: str
    partitions: tuple[Partition, ...]
    rows: Staged | Backup
    before: Mapping[str, Fingerprint]
    """What the published range must still be, by partition key."""
    after: Mapping[str, Fingerprint]
    """What the published range must be once replaced, by partition key."""
    confirm: Callable[[], None] = lambda: None
    """Called inside the transaction, before the receipt; raises when the caller has lost the right to go on."""
    keys_may_repeat: bool = False
    """Let a key land that the table also has outside the range."""

    def refuse_incomplete(self, method: str) -> None:
        """Refuse unless every partition is named exactly once on every side, by fingerprints of this ``method``.

        :raises PublishRefused: naming what is missing or too much.
        """
        keys = sorted(partition.key for partition in self.partitions)
        if not keys:
            raise PublishRefused("No partition was given, so there is nothing to replace.")
        try:
            merge(self.partitions)
        except ValueError as error:
            raise PublishRefused(f"The partitions cannot be replaced together: {error}") from error
        sides = {"before": sorted(self.before), "after": sorted(self.after)}
        if isinstance(self.rows, Staged):
            sides["staged"] = sorted(entry.partition.key for entry in self.rows.partitions)
            if not {entry.partition for entry in self.rows.partitions} <= set(self.partitions):
                raise PublishRefused("A staged partition has another window than the partition of the same key.")
        for side, given in sides.items():
            if given != keys:
                raise PublishRefused(
                    f"{side} is for {', '.join(given) or 'nothing'}, but the range is {', '.join(keys)}."
                )
        for mark in (*self.before.values(), *self.after.values()):
            if mark.method != method:
                raise PublishRefused(
                    f"The fingerprints were made by {mark.method}, and this is {method}: they cannot be compared. "
                    "Plan and stage again with this version."
                )


@dataclass(frozen=True)
class Receipt:
    """An ordered log row, written in the same commit as the data."""

    sequence: int
    backfill_id: str
    action: Action
    plan_hash: str
    keys: tuple[str, ...]
    deleted: int
    inserted: int
    committed_at: datetime
    lock_wait: timedelta | None = field(default=None, compare=False)
    """How long the lock was waited for before that, attempts that did not get it included; known as ``write_block`` is."""
    write_block: timedelta | None = field(default=None, compare=False)
    """How long nobody else could write the table; known where a lock kept them out, to the caller of the publish alone."""
    locked_for: timedelta | None = field(default=None, compare=False)
    """How long nobody could read the table; known where children were exchanged, to the caller of that alone."""


@dataclass(frozen=True)
class ChildSwap:
    """What an exchange of the children of a partitioned table will come to, as seen when it was planned."""

    children: tuple[str, ...]
    """The tables that hold the range and nothing else, by name."""
    losses: tuple[str, ...]
    """What the tables that take their place will lack, a sentence each."""
    reread_per_second: int
    """A cautious estimate of how many rows are held against the baseline in a second, while nobody else can write."""
    locked_for: timedelta
    """A cautious estimate of how long nobody can read the table."""


@dataclass(frozen=True)
class StorageItem:
    """A stage, a sample, a backup, a shadow, spare tables or an old version that exists: for listing and clean-up."""

    backfill_id: str
    """Of an old version, the backfill that pointed the view away from it."""
    kind: str
    """``stage``, ``sample``, ``backup``, ``shadow``, ``spare`` or ``version``."""
    location: str
    bytes: int
    modified_at: datetime
    """Of an old version, when the view was pointed away from it."""


AFTERWARDS = "safe_backfill_afterwards"
"""What a SELECT calls the published table as it would be once staged rows were published."""


class Landing(Protocol):
    """An empty table of one batch attempt, with the target's columns and types and without its constraints, for code that is
    not ours to fill. Nothing of it outlives the write that it was made for."""

    @property
    def table(self) -> str:
        """The table, as SQL of :attr:`connection`.

        :raises WarehouseError: the engine has none that code can write to.
        """
        ...

    @property
    def columns(self) -> tuple[str, ...]:
        """Its columns, in the target's order."""
        ...

    @property
    def connection(self) -> Any:
        """The engine's own connection, opened when it is first asked for, with which the warehouse can be read and the table
        written. What it wrote is committed by whoever made the landing, when the code has returned; code neither begins a
        transaction nor ends one.

        :raises WarehouseError: the engine has none, or the warehouse cannot be opened.
        """
        ...

    def add(self, rows: Any) -> None:
        """Add rows by column name: mappings, or a data frame or an Arrow table.

        :raises WarehouseError: they are something else, a column is missing, too much or there twice, or a value does not fit
            or would become another.
        """
        ...

    @property
    def address(self) -> Mapping[str, str]:
        """What another process is told so that it can put its rows here, by name. What it put there outlives a killed process.

        :raises WarehouseError: the engine has nothing that another process can reach.
        """
        ...

    def collect(self, address: Mapping[str, str]) -> None:
        """Take over what another process put there; the address is this landing's, or that of one whose process was killed.

        :raises WarehouseError: there is nothing, or it does not fit; as :meth:`add`.
        """
        ...

    def double(self) -> None:
        """Have every row that is there once more, as if a join had doubled them: what a drill damages.

        :raises WarehouseError: the engine could not.
        """
        ...

    def settle(self) -> None:
        """Keep what code wrote by :attr:`connection`, once it has returned.

        :raises WarehouseError: the engine could not keep it, because a statement of it failed.
        :raises StrayWrite: it wrote to something else than the table; that was undone.
        """
        ...


Fill = Callable[[Landing], None]
"""Code that is not ours, which fills a landing or raises."""


@dataclass(frozen=True)
class Recompute:
    """One SELECT, or code, and the partitions whose rows it returns."""

    partitions: tuple[Partition, ...]
    select: str = ""
    """Empty when ``fill`` is there."""
    keep_unmatched: bool = False
    """Stage the published rows of the partitions too whose key the SELECT does not return."""
    over: tuple[StagedPartition, ...] = ()
    """With them the SELECT may read :data:`AFTERWARDS`: the published table with these rows in the place of their partitions'."""
    versions: Versions = field(default_factory=dict, hash=False)
    """The version of every table that the SELECT reads; without any, it reads the latest of all."""
    fill: Fill | None = None
    """Fills a landing, whose rows are staged as if a SELECT had returned them."""


@dataclass(frozen=True)
class Shadow:
    """A copy of some partitions of the published table, to rehearse on what is to be done to it."""

    warehouse: Warehouse
    """Knows the shadow by ``target``; stages and backups are the same here as in the warehouse that made it."""
    target: Target


def only_value(rows: Sequence[Sequence[Any]]) -> Scalar:
    """The value of a result that has one row of one column.

    :raises WarehouseError: it has another shape.
    """
    if len(rows) != 1 or len(rows[0]) != 1:
        width = f" of {len(rows[0])} columns" if rows else ""
        count = "no row" if not rows else "1 row" if len(rows) == 1 else "more than 1 row"
        raise WarehouseError(f"The query returns {count}{width}, and one row of one column is needed.")
    value: Scalar = rows[0][0]
    return value


SIDE, PLACE = "safe_backfill_side", "safe_backfill_place"
"""The columns that a sample has beside the target's: ``old`` or ``new``, and which of its keys the row is of, from 1."""


@dataclass(frozen=True)
class SampleOf:
    """What a sample is to hold."""

    limit: int
    """How many keys at most."""
    columns: tuple[str, ...]
    """The target's columns whose values it may hold, in the target's order."""
    exclude: tuple[str, ...] = ()
    """The columns in which rows may differ, as of :meth:`Warehouse.compare`."""


@dataclass(frozen=True)
class Sample:
    """Some of the rows that differ, kept in a table beside the stages."""

    location: str
    rows: tuple[tuple[str | None, ...], ...]
    """Of each key the old row, the new one or both: its place, its side, and the values of its columns as text."""


Tolerance = Mapping[str, Decimal]
"""By column of numbers, how far apart two values may be and still count as equal; the columns' names are in any case."""
NO_TOLERANCE: Tolerance = MappingProxyType({})


class StageWriter(Protocol):
    """One batch attempt's stage. Each :meth:`write` is committed by itself; a killed writer leaves whole
    writes or nothing, and never touches another attempt's rows."""

    location: str

    def write(self, *recomputes: Recompute) -> tuple[StagedPartition, ...]:
        """Run each SELECT and keep its rows as its partitions' staged rows, by column name, as the target's types.

        All of them are kept in one commit, or none. Writing a partition again replaces what was written for it. Code runs
        before anything is kept, one after the other; the error that it raises is raised as it is.

        :raises StrayWrite: code wrote to something else by the connection that it was given; that was undone.
        :raises PartitionOverrun: a row lies outside its SELECT's partitions, or has a NULL partition value.
        :raises WarehouseError: a statement failed, or with versions a SELECT reads a table that has none among them.
        """
        ...


class Warehouse(Protocol):
    """One engine. Open it with :func:`airflow_backfill_provider.warehouses.open_warehouse`; close it after use."""

    @property
    def capabilities(self) -> Capabilities: ...

    def describe(self, table: str, partition_by: str, key: Sequence[str], reading: Reading = AS_TYPED) -> Target:
        """Describe the published table, or the view that shows all of one table; read only.

        :raises SpecError: no such table or column, a view of anything else, a partition column of a type that has no
            clock or does not go with ``reading``, a key or partition column that cannot be hashed. The message names
            what exists.
        """
        ...

    def select_columns(self, select: str) -> tuple[Column, ...]:
        """Name and type of every column a SELECT would return, without running it.

        :raises TransformRefused: the engine cannot bind it; the engine's message is kept.
        """
        ...

    def aliases(self, target: Target, names: Sequence[str]) -> tuple[str, ...]:
        """Which of these dotted names are other names of the target's rows; read only.

        A view that reads the table, also through other views; a partition of it; the table behind a target that is a view.
        What the engine cannot look behind, a function for example, is not among them, nor what is not there.
        """
        ...

    def source_versions(self, selects: Sequence[str], tables: Sequence[str]) -> dict[str, int]:
        """The latest version of every table that one of the SELECTs reads, and of these tables; read only.

        Whoever reads a table at its version later gets the same rows, whatever was written in between. Empty where the
        engine keeps no versions, and without what is no table.
        """
        ...

    def require_versions(self, versions: Versions) -> None:
        """Refuse when a version that :meth:`source_versions` gave cannot be read any more; read only.

        :raises VersionGone: naming the table and the version.
        """
        ...

    def source_cautions(self, versions: Versions, *, since: datetime | None, needed: timedelta) -> tuple[str, ...]:
        """What speaks against recomputing from these versions, a sentence each; read only.

        :param since: when the range first ran; rows that were changed in place before that are no concern. None: at any time.
        :param needed: how long the versions must be there to be read.
        """
        ...

    def receipt_cautions(self, target: Target, *, needed: timedelta) -> tuple[str, ...]:
        """What speaks against finding the receipt of a publish for that long, a sentence each; read only."""
        ...

    def reader_cautions(self, target: Target) -> tuple[str, ...]:
        """Who is sent the changes of the table, and what a publish is to them, a sentence each; read only.

        Empty where nobody is. What the engine cannot know of its readers is said as well.
        """
        ...

    def upkeep(self, target: Target, *, deleted: int) -> tuple[str, ...]:
        """What the table needs once a publish has deleted so many of its rows, a sentence each; read only.

        Empty where an engine takes deleted rows away by itself, or none was deleted.
        """
        ...

    def growth_cautions(self, target: Target) -> tuple[str, ...]:
        """What it takes that a publish adds ``target.added``, a sentence each; read only.

        :raises SpecError: it cannot; the message says what to do instead.
        """
        ...

    def lossless(self, source_type: str, target_type: str) -> bool:
        """Whether a value of the first type lands in a column of the second unchanged, or fails loudly."""
        ...

    def fingerprint(self, target: Target, rows: Rows, partitions: Sequence[Partition]) -> dict[str, Fingerprint]:
        """The fingerprint of each partition, by key, from one statement; an empty partition has rows 0."""
        ...

    def measure(
        self, target: Target, rows: Rows, partitions: Sequence[Partition], metrics: Sequence[Metric]
    ) -> dict[str, dict[Metric, Scalar]]:
        """Every metric of every partition, by key, from one statement; an empty partition has rows 0 and the
        other counts 0; sums, smallest and largest values None.

        :raises WarehouseError: the statement failed, as SQL of the spec may make it; the engine's message is kept.
        """
        ...

    def measure_together(
        self, target: Target, rows: Rows, partitions: Sequence[Partition], metrics: Sequence[Metric]
    ) -> dict[Metric, Scalar]:
        """Every metric of all rows of the partitions together, from one statement; otherwise as :meth:`measure`."""
        ...

    def metric_sql(self, target: Target, rows: Rows, partitions: Sequence[Partition], metric: Metric) -> str:
        """One statement that a person can run to see this metric of these partitions together; for reports."""
        ...

    def count_rows(self, target: Target, staged: Staged, query: str, *, where: str = "") -> int:
        """How many rows the user's ``query`` returns when the name ``stage`` means these staged rows.

        ``where`` leaves only the rows for which it is true.

        :raises WarehouseError: the query failed; the engine's message is kept.
        """
        ...

    def one_value(self, target: Target, staged: Staged, query: str) -> Scalar:
        """The one value that the user's ``query`` returns when :data:`AFTERWARDS` means the published table as it would be.

        That is with these staged rows in the place of their partitions', so without any as it is.

        :raises WarehouseError: the query failed, or returns anything but one row of one column; the engine's message is kept.
        """
        ...

    def compare(
        self, target: Target, old: Rows, new: Rows, partitions: Sequence[Partition], *, exclude: Sequence[str] = ()
    ) -> dict[str, RowDiff]:
        """Match old and new rows by key inside each partition, from one statement.

        Rows of one key are identical when they differ in excluded columns only.
        """
        ...

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
        """By partition, in how many rows matched by key each column differs; columns that never do are left out.

        Two numbers of a column with a tolerance differ when they are further apart than that; a NULL is never close to one.
        For partitions whose keys :meth:`compare` found unique; an answer about others means nothing.
        """
        ...

    def moved_keys(
        self, target: Target, old: Rows, new: Rows, partitions: Sequence[Partition]
    ) -> dict[tuple[str, str], int]:
        """How many keys are in one partition of the old rows and in another of the new ones, by the keys of both; from one
        statement.

        A key that stands more than once in a partition counts once, and one with a NULL in it never.
        """
        ...

    def keep_sample(
        self, target: Target, backfill_id: str, old: Rows, new: Rows, partitions: Sequence[Partition], what: SampleOf
    ) -> Sample:
        """Keep rows of some keys that differ between old and new, in a new table that nobody may read who may not read a stage.

        The keys are those with the least hash, so the same ones each time. For partitions whose keys :meth:`compare` found
        unique; an answer about others means nothing.
        """
        ...

    def outside_rows(self, target: Target) -> OutsideRows:
        """Rows of the published table that belong to no partition."""
        ...

    def key_conflicts(self, target: Target, staged: Staged, *, no_new_keys: bool = False) -> KeyConflicts:
        """Staged keys that would not be unique in the table; exact, over the whole table.

        ``no_new_keys`` says that every staged key was shown to stand in its own partition already, once on each side.
        A repeat in the range would then have been published before, so none is looked for.
        """
        ...

    def key_conflict_sql(self, target: Target, staged: Staged) -> tuple[str, str]:
        """Two statements that list these keys for a person: those outside the range too, and those staged more than once."""
        ...

    def open_stage(
        self, target: Target, backfill_id: str, label: str, tell: Tell = untold
    ) -> AbstractContextManager[StageWriter]:
        """A new stage for one batch attempt, unreadable by consumers and shared with no other attempt.

        ``label`` (letters, digits, ``-``) is for people; the adapter adds what makes the location unique.

        :param tell: hears of each statement that would go on without this task, when it has begun.
        """
        ...

    def take_over(
        self, target: Target, backfill_id: str, running: Running, partitions: Sequence[Partition]
    ) -> tuple[StagedPartition, ...]:
        """Wait for a statement that another attempt began; the partitions that it staged, none when it failed or is unknown.

        The statement runs no more when this returns or raises, unless the connection is lost.
        """
        ...

    def back_up(
        self, target: Target, backfill_id: str, partitions: Sequence[Partition], *, label: str
    ) -> tuple[Backup, dict[str, Fingerprint]]:
        """Copy exactly these partitions of the published table aside, commit, and fingerprint the copy.

        Writes a new location under ``label``, leaving any earlier backup of the same backfill alone.
        """
        ...

    def open_shadow(
        self, target: Target, backfill_id: str, partitions: Sequence[Partition]
    ) -> AbstractContextManager[Shadow]:
        """A table made from the target's definition that holds these partitions as they are published.

        Every promise about the target is kept for it, its receipts are its own, no consumer can read it, and nothing that is
        done to it touches the target or keeps anybody from it. It is gone when the context ends; a killed one is listed in
        :meth:`storage`. References to other tables are not part of it.

        :raises PublishRefused: the published rows do not fit the table's own definition, so no rollback could put them back.
        """
        ...

    def replace_partitions(self, target: Target, publication: Publication) -> Receipt:
        """Replace every row of the partitions with the given rows, by name, in one commit with its receipt.

        Columns of ``target.added`` that the table lacks are added in that commit, each with its comment. Readers see the old rows or the new rows, never a mixture; rows outside the range and rows with a NULL
        partition value are not touched.

        :raises TargetMoved: the range is not ``before``; nothing was written.
        :raises StageChanged: what would land is not ``after``; nothing was written.
        :raises PublishRefused: no partition was given, a key that lands also exists outside the range, or the target is
            a view.
        :raises LockTimeout: the engine's lock was not to be had in time; nothing was written.
        """
        ...

    def merge(self, target: Target, publication: Publication) -> Receipt:
        """As :meth:`replace_partitions`, writing only the rows that differ, matched by key inside the range.

        The receipt counts the old rows that are gone or changed as deleted, and the new or changed ones as inserted.

        :raises: as :meth:`replace_partitions`, and
        :raises PublishRefused: published rows of the range share a key, so they cannot be matched.
        """
        ...

    def swap_view(self, target: Target, publication: Publication) -> Receipt:
        """As :meth:`replace_partitions` for a view: its table is left alone, and the view pointed to another one.

        To publish, a new version is built: every row outside the range as it is, those without a partition value too,
        and the given rows in it. The view is pointed to it in the commit of the receipt.

        To roll back, the view is pointed back to the version that the backfill replaced, when nothing but the range
        tells the two apart. Otherwise that would lose rows; then, or when the old version is gone, the range alone is
        replaced by the given rows in the version that the view shows.

        :raises: as :meth:`replace_partitions`, and
        :raises PublishRefused: the target is no view, or, to roll back, another backfill published a newer version.
        """
        ...

    def plan_swap(self, target: Target, partitions: Sequence[Partition]) -> ChildSwap:
        """Whether whole children of the partitioned table hold exactly these partitions, and which; read only.

        :raises SpecError: they do not, or exchanging them would break something; the message says what was found.
        """
        ...

    def fill_children(self, target: Target, backfill_id: str, staged: Staged) -> Backup:
        """Fill tables that can take the place of the children, and commit; nobody is kept waiting.

        What is returned becomes the backup in the commit of :meth:`swap_children`. There is one for a backfill: what an
        earlier attempt left is used again, or filled anew.

        :raises PublishRefused: the rows break a constraint, or the children cannot be exchanged any more.
        """
        ...

    def swap_children(self, target: Target, publication: Publication) -> Receipt:
        """As :meth:`replace_partitions`, by exchanging whole children for the tables that were filled.

        ``publication.rows`` is what :meth:`fill_children` returned. The children are kept there, unread and unwritten, so
        that the same call rolls back; when they do not fit any more, that replaces the rows instead.

        :raises: as :meth:`replace_partitions`.
        """
        ...

    def receipts(self, target: Target) -> tuple[Receipt, ...]:
        """Every receipt of the table, oldest first; empty when none was ever written."""
        ...

    def storage(self) -> tuple[StorageItem, ...]:
        """Every stage, sample, backup, shadow, set of spare tables and old version that exists in this warehouse."""
        ...

    def drop(self, location: str) -> None:
        """Remove a stage, a sample, a backup, a shadow or an old version; silent when it is gone already.

        :raises WarehouseError: a view shows that version.
        """
        ...

    def cancel(self) -> None:
        """End the statement that is running now, from any thread; what it wrote is rolled back."""
        ...

    def close(self) -> None:
        """Let go of every handle."""
        ...
