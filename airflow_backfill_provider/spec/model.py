"""What a backfill of one target *is*: the reviewed part, without the range.

Parsing reads no connection, no Variable and no database. ``sql`` is a path in YAML; the loader replaces it by the
file's text (:mod:`airflow_backfill_provider.spec.load`), so that a spec is whole by itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from airflow_backfill_provider.errors import RequestError
from airflow_backfill_provider.spec.approval import ApprovalSpec
from airflow_backfill_provider.spec.checks import Check, Frozen, Sql
from airflow_backfill_provider.spec.column_format import ColumnFormat
from airflow_backfill_provider.spec.comparisons import CompareRows, Comparison, OtherTable
from airflow_backfill_provider.spec.control_period import ControlPeriodSpec
from airflow_backfill_provider.spec.eras import faults
from airflow_backfill_provider.spec.names import Identifier, TableName, Zone
from airflow_backfill_provider.spec.quantities import Bytes, Duration, write_duration, write_size
from airflow_backfill_provider.spec.range_evidence import RangeSpec
from airflow_backfill_provider.spec.report_queries import ReportQuery
from airflow_backfill_provider.spec.schema_gate import SchemaSpec
from airflow_backfill_provider.spec.throttle import Throttle
from airflow_backfill_provider.spec.transforms import DbtTransform, Transform
from airflow_backfill_provider.windows import Grain, Partition, parse_key, parse_start

_NAME = re.compile(r"\A[a-z][a-z0-9_]{0,39}\Z")


class TargetSpec(Frozen):
    """The published table and how it is cut into partitions."""

    table: TableName
    partition_by: Identifier
    key: Annotated[tuple[Identifier, ...], Field(min_length=1)]
    """Columns that identify one row of the whole table; include the partition column when it is part of that."""
    grain: Grain = Grain.DAY
    timezone: Zone = "UTC"
    """The zone whose hours, days, weeks, months or years the partitions are."""
    column_timezone: Zone | None = None
    """The zone that a timestamp without one is written in (default UTC), or whose days a date shows (``timezone``)."""
    column_format: ColumnFormat | None = None
    """How an integer or text column writes time."""
    sensitive: tuple[Identifier, ...] = ()
    """Columns whose values are in no sample of rows, nor in a message where they are of the key. A check or comparison that asks
    for a value of such a column, by ``min`` or ``max``, is told it."""
    outlet: Annotated[str, Field(min_length=1, max_length=1500)] | None = None
    """The asset that the live DAG declares as its outlet for this table, by name or URI. The scope refuses when no DAG refers to it, or when
    its URI names another table, or another PostgreSQL database than that of ``compute.conn_id``."""

    @field_validator("key")
    @classmethod
    def _distinct(cls, key: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(key)) != len(key):
            raise ValueError("a column stands in the key twice")
        return key

    @model_validator(mode="after")
    def _partitions_are_no_secret(self) -> TargetSpec:
        if self.partition_by.casefold() in {name.casefold() for name in self.sensitive}:
            raise ValueError(
                f"sensitive: {self.partition_by} is the partition column, whose values name partitions in every plan and message; leave it out"
            )
        return self

    @model_validator(mode="after")
    def _a_list_tells_no_time(self) -> TargetSpec:
        if self.grain is Grain.LIST:
            for name in ("timezone", "column_timezone", "column_format"):
                if getattr(self, name) not in (None, "UTC"):
                    raise ValueError(f"{name} says how a column tells time, and grain list has none; leave it out")
        return self


class HistoryTable(Frozen):
    """A table that keeps every version of its rows, with the time each was valid."""

    table: TableName
    valid_from: Identifier = "valid_from"
    valid_to: Identifier = "valid_to"


class CutoffSpec(Frozen):
    """Which rows of the source are left out because they arrived after the plan was made."""

    column: Identifier
    """A timestamp of when the row arrived; without a zone it means UTC. The plan refuses a NULL in the range."""


class SourceSpec(Frozen):
    """The main table the transform reads; makes ``against: source`` comparisons possible."""

    table: TableName
    partition_by: Identifier
    column_timezone: Zone | None = None
    """As ``target.column_timezone``."""
    column_format: ColumnFormat | None = None
    cutoff: CutoffSpec | None = None
    """Bounds every read of the table in the SQL, and ``against: source``, by the moment the plan was made."""
    watermark: Identifier | None = None
    """The column that tells when a row arrived; its newest value in each partition is kept with what is published, so that
    ``airflow safe-backfill stale`` finds what arrived since. Without it that of ``cutoff``."""
    on_moved: Literal["refuse", "warn"] = "refuse"
    """What to do at publish when a partition has another number of source rows than the plan counted."""
    history: tuple[HistoryTable, ...] = ()
    """Tables that keep their own history; those with ``valid_from`` and ``valid_to``, or dbt's snapshot columns, are
    found without being named. The plan warns where one is read as it is today."""

    @property
    def arrival(self) -> str | None:
        """The column that tells when a row arrived; None when the spec names none."""
        return self.cutoff.column if self.watermark is None and self.cutoff is not None else self.watermark


class ComputeSpec(Frozen):
    """Where the recompute runs and how much of it at once."""

    conn_id: Identifier
    pool: Identifier = "safe_backfill"
    queue: Annotated[str, Field(pattern=r"^\S+$", max_length=256)] | None = None
    """The executor queue of every task of the backfill and of its rollback; Airflow's default when left out."""
    priority_weight: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """How early these tasks are taken when slots are short, higher first; Airflow's default when left out."""
    max_concurrency: Annotated[int, Field(ge=1)] = 4
    partitions_per_task: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    statement_timeout: Duration = timedelta(minutes=30)
    fail_fast: bool = True
    """Whether no partition is begun any more once one has failed or was rejected; otherwise the others are finished, and
    nothing is published all the same."""
    max_rows: Annotated[int, Field(ge=1)] | None = None
    """Stop once more rows than these are staged; a plan that expects more is refused."""
    max_runtime: Duration | None = None
    """Stop once the backfill has been running for longer than this."""
    max_staging_bytes: Bytes | None = None
    """Stop once the backfill has set more than this aside, by the engine's own account."""
    keep_stages_for: Duration = timedelta(days=7)
    """How long staged rows are kept once the backfill is over."""
    live_conn_id: Identifier | None = None
    """The connection of the live pipeline. On Databricks, a backfill that would run on the same SQL warehouse is refused."""
    allow_shared_compute: bool = False
    """Let the backfill run on the live pipeline's SQL warehouse."""

    @property
    def budgets(self) -> tuple[str, ...]:
        """The budgets that are set, in words."""
        return (
            *([f"{self.max_rows:,} rows"] if self.max_rows is not None else []),
            *([f"{write_duration(self.max_runtime)} of running"] if self.max_runtime is not None else []),
            *([f"{write_size(self.max_staging_bytes)} set aside"] if self.max_staging_bytes is not None else []),
        )

    @model_validator(mode="after")
    def _shared_with_somebody(self) -> ComputeSpec:
        if self.allow_shared_compute and self.live_conn_id is None:
            raise ValueError(
                "allow_shared_compute needs live_conn_id: the connection whose SQL warehouse may be shared"
            )
        return self


class PublishSpec(Frozen):
    """How the validated range becomes visible."""

    mechanism: Literal["replace_partitions", "merge", "view_swap"] = "replace_partitions"
    """``replace_partitions`` deletes the range and inserts what was staged; ``merge`` matches by ``target.key`` and writes
    only the rows that differ; ``view_swap`` builds another whole table and points the view ``target.table`` to it. All
    leave the same rows."""
    keep_unmatched: bool = False
    """With ``merge``: keep published rows of the range whose key was not recomputed, instead of deleting them."""
    swap: bool = False
    """With ``replace_partitions`` on a table that PostgreSQL partitions by ``target.partition_by``: exchange its partitions
    for tables that were filled before, instead of deleting and inserting rows while nobody else can write."""
    unit: Literal["range", "year", "month", "week", "day"] = "range"
    """What becomes visible in one commit: the whole range, or one period of it after the other, each with a commit of
    its own. Between two of them consumers see new rows beside old ones."""
    lock_timeout: Duration = timedelta(minutes=2)
    """How long to wait for the engine's lock before giving up with nothing written."""
    max_write_block: Duration | None = None
    """Refuse a plan whose longest commit is estimated to keep other writers out of the table for longer than this."""

    @property
    def deletes_rows(self) -> bool:
        """Whether rows of the table are deleted, and not left in a table that another one takes the place of."""
        return not self.swap and self.mechanism != "view_swap"

    @property
    def commits(self) -> str:
        """How the range becomes visible, in words."""
        if self.swap:
            return "the partitions of the whole range are exchanged in one commit"
        return "the whole range in one commit" if self.unit == "range" else f"each {self.unit} in one commit"

    @property
    def way_back(self) -> str:
        """What a rollback does, in words."""
        if self.swap:
            return (
                "exchanges the partitions again for the old ones, which are kept, or, once they do not fit any more, restores "
                "exactly these partitions from them"
            )
        if self.mechanism == "view_swap":
            return (
                "points the view back to the version before, or, once rows outside the range were written, restores exactly "
                "these partitions from the copied backup"
            )
        return "restores exactly these partitions from the copied backup"

    @model_validator(mode="before")
    @classmethod
    def _refuse_append(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("mechanism") == "append":
            raise ValueError(
                "mechanism append is refused: it is not idempotent, so a retry doubles the rows it adds. "
                "Use replace_partitions or merge"
            )
        return data

    @model_validator(mode="after")
    def _only_a_merge_keeps_rows(self) -> PublishSpec:
        if self.keep_unmatched and self.mechanism != "merge":
            raise ValueError(
                f"keep_unmatched needs mechanism merge; {self.mechanism} replaces every row of a partition"
            )
        return self

    @model_validator(mode="after")
    def _partitions_are_exchanged_whole_and_once(self) -> PublishSpec:
        if self.swap and self.mechanism != "replace_partitions":
            raise ValueError(
                f"swap replaces whole partitions, which mechanism {self.mechanism} does not; leave one out"
            )
        if self.swap and self.unit != "range":
            raise ValueError(
                f"swap exchanges all partitions of the range in one short commit, which unit {self.unit} would not make "
                "shorter; leave unit out"
            )
        return self

    @model_validator(mode="after")
    def _a_view_is_swapped_once(self) -> PublishSpec:
        if self.mechanism == "view_swap" and self.unit != "range":
            raise ValueError(
                f"unit {self.unit} would build the whole table anew for each {self.unit}; view_swap publishes the whole range in "
                "one commit: leave unit out"
            )
        return self


class TrialSpec(Frozen):
    """What is tried on one partition before the others are computed."""

    enabled: bool = True
    partition: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """The key of the partition that is tried; by default, and where the range does not hold it, the one with the most
    published rows."""
    review: bool | None = None
    """Whether a person looks at what the trial found before the other partitions are computed. Left out, it is asked for
    where the plan itself needed an approval and has more than 31 partitions."""

    @model_validator(mode="after")
    def _a_review_is_of_a_trial(self) -> TrialSpec:
        if self.review and not self.enabled:
            raise ValueError("review: true needs a trial to look at; leave enabled: false out, or review")
        return self


class RollbackSpec(Frozen):
    """How long the way back stays open."""

    keep_for: Duration = timedelta(days=45)
    """How long the backup is kept after the publish."""


class BackfillSpec(Frozen):
    """A backfill of one target, as reviewed.

    Build one in Python with the SQL text in ``transform.sql``, or load YAML with
    :func:`airflow_backfill_provider.spec.load.load_spec`.
    """

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    name: str
    """Lower-case letters, digits and ``_``, at most 40; names the DAGs ``backfill__<name>``, ``rollback__<name>``."""
    kind: Literal["correction", "new_column", "first_load"] = "correction"
    """What the backfill is for; decides which comparisons hold when none of theirs are written:
    ``correction`` none; ``new_column`` that no row and no column but ``new_columns`` changes; ``first_load`` that
    nothing is published in the range yet."""
    new_columns: tuple[Identifier, ...] = ()
    """With ``kind: new_column``, the columns of the target that the backfill fills."""
    target: TargetSpec
    transform: Transform
    compute: ComputeSpec
    source: SourceSpec | None = None
    range: RangeSpec = RangeSpec()
    schema_gate: SchemaSpec = Field(default=SchemaSpec(), alias="schema")  # pydantic has a method of that name
    checks: tuple[Check, ...] = ()
    compare: tuple[Comparison, ...] = ()
    samples: Annotated[int, Field(ge=0, le=1000)] = 0
    """Of how many keys rows that differ are kept, in a table beside the stages; 0 keeps none."""
    samples_in_report: bool = False
    """Whether the ledger and the report hold the values of these rows too, and messages name up to five keys that are staged twice or
    published outside the range."""
    report_queries: tuple[ReportQuery, ...] = ()
    throttle: tuple[Throttle, ...] = ()
    """Reasons to wait; any one is enough."""
    allow_empty: bool = False
    """Whether a partition that had rows may be replaced by none."""
    approval: ApprovalSpec = ApprovalSpec()
    trial: TrialSpec = TrialSpec()
    control_period: ControlPeriodSpec | None = None
    publish: PublishSpec = PublishSpec()
    rollback: RollbackSpec = RollbackSpec()

    @field_validator("name")
    @classmethod
    def _name(cls, name: str) -> str:
        if not _NAME.match(name):
            raise ValueError("a name is lower-case letters, digits and _, starts with a letter, at most 40 characters")
        if name == "all":
            raise ValueError("all is the kill switch of every backfill; take another name")
        return name

    def era_of(self, partition: Partition) -> int:
        """The number of the era that the partition's start lies in; 0 when one transform is for all of history."""
        return self.transform.era_of(partition.span, self.target.grain, self.target.timezone)

    def settled_like(self, planned: BackfillSpec) -> BackfillSpec:
        """Itself, with what was found out of its transform when the plan was made."""
        return self.model_copy(update={"transform": self.transform.settled_like(planned.transform)})

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """The comparisons that hold: those written, then those of the kind that are not."""
        return (*self.compare, *self.default_comparisons)

    @property
    def compared_tables(self) -> Mapping[str, str]:
        """The other tables that staged rows are compared with, each by its :attr:`OtherTable.side`."""
        others = (one.against for one in self.compare if not isinstance(one, CompareRows))
        return {one.side: one.table for one in others if isinstance(one, OtherTable)}

    @property
    def default_comparisons(self) -> tuple[CompareRows, ...]:
        """The comparisons of the spec's kind; one that is written replaces that of the same name."""
        if self.kind != "new_column" or any(isinstance(entry, CompareRows) for entry in self.compare):
            return ()
        return (CompareRows(max_added=0, max_removed=0, max_changed=0, exclude_columns=self.new_columns),)

    @property
    def control_partitions(self) -> tuple[Partition, ...]:
        """The partitions that the bug did not affect; none without a control period."""
        target, control = self.target, self.control_period
        keys = control.partitions if control is not None else ()
        return tuple(sorted(parse_key(key, target.grain, target.timezone) for key in keys))

    @property
    def uncompared_columns(self) -> tuple[str, ...]:
        """The columns that no row diff looks at."""
        return next((entry.exclude_columns for entry in self.comparisons if isinstance(entry, CompareRows)), ())

    def shown_columns(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of the columns that are not sensitive."""
        sensitive = {name.casefold() for name in self.target.sensitive}
        return tuple(name for name in names if name.casefold() not in sensitive)

    @model_validator(mode="after")
    def _a_report_has_samples_to_show(self) -> BackfillSpec:
        if self.samples_in_report and not self.samples:
            raise ValueError("samples_in_report: true needs samples: how many keys to keep rows of, such as 20")
        return self

    @model_validator(mode="after")
    def _new_columns_are_named(self) -> BackfillSpec:
        if (self.kind == "new_column") != bool(self.new_columns):
            raise ValueError("kind: new_column needs new_columns: [the columns it fills], and no other kind has them")
        return self

    @model_validator(mode="after")
    def _only_new_columns_say_what_they_lack(self) -> BackfillSpec:
        if old := [name for name in self.schema_gate.columns if name not in self.new_columns]:
            raise ValueError(
                f"schema.columns: {', '.join(old)} is not among new_columns, and an old column's NULL means what it did"
            )
        return self

    @model_validator(mode="after")
    def _what_is_added_is_declared(self) -> BackfillSpec:
        if self.schema_gate.mode != "evolve":
            return self
        if silent := [name for name in self.new_columns if name not in self.schema_gate.columns]:
            raise ValueError(
                f"schema.mode evolve writes into a column's comment what its NULL means: declare schema.columns.{silent[0]}: "
                "{null_means: unknown, unavailable or default}"
            )
        if not self.new_columns:
            raise ValueError(
                "schema.mode evolve needs kind: new_column and new_columns: [the columns that the publish adds]"
            )
        if self.publish.swap or self.publish.mechanism == "view_swap":
            raise ValueError(
                "schema.mode evolve adds columns to the table whose rows are replaced, and an exchange of partitions or versions "
                "keeps the old one as it was: use mechanism replace_partitions or merge without swap, or add the columns first"
            )
        if not self.transform.is_sql:
            raise ValueError(
                "schema.mode evolve takes the types of new columns from the SQL, and this transform is code: add the columns first"
            )
        return self

    @model_validator(mode="after")
    def _rows_are_left_out_of_sql(self) -> BackfillSpec:
        if self.schema_gate.mode != "discard_rows":
            return self
        if not self.transform.is_sql:
            raise ValueError(
                "schema.mode discard_rows leaves rows out of SQL, and this transform is code: leave them out there"
            )
        if self.publish.keep_unmatched:
            raise ValueError(
                "schema.mode discard_rows leaves a row out, and keep_unmatched would then keep the published row of its key: use one"
            )
        return self

    @model_validator(mode="after")
    def _row_diffs_look_at_the_same_columns(self) -> BackfillSpec:
        left_out = {frozenset(entry.exclude_columns) for entry in self.compare if isinstance(entry, CompareRows)}
        if len(left_out) > 1:
            raise ValueError("every row_diff of a spec needs the same exclude_columns, since rows are compared once")
        uncompared = {name.casefold() for name in self.uncompared_columns}
        if keys := [name for name in self.target.key if name.casefold() in uncompared]:
            raise ValueError(f"{', '.join(keys)} is of the key, which matches rows, so it cannot be left out")
        return self

    @model_validator(mode="after")
    def _the_trial_is_of_a_partition(self) -> BackfillSpec:
        if self.trial.partition is not None:
            try:
                parse_key(self.trial.partition, self.target.grain, self.target.timezone)
            except RequestError as error:
                raise ValueError(f"trial.partition: {error}") from error
        return self

    @model_validator(mode="after")
    def _the_bug_began_at_a_moment(self) -> BackfillSpec:
        evidence, target = self.range.evidence, self.target
        if evidence is None:
            return self
        if target.grain is Grain.LIST:
            raise ValueError(
                "range.evidence looks at what comes before and after, and grain list has no order; leave it out"
            )
        try:
            parse_start(evidence.introduced_at, target.grain, target.timezone)
        except RequestError as error:
            raise ValueError(f"range.evidence.introduced_at: {error}") from error
        return self

    @model_validator(mode="after")
    def _the_control_period_is_of_partitions(self) -> BackfillSpec:
        if self.control_period is None:
            return self
        try:
            chosen = self.control_partitions
        except RequestError as error:
            raise ValueError(f"control_period.partitions: {error}") from error
        if len(set(chosen)) != len(chosen):
            raise ValueError("control_period.partitions: two keys name the same partition")
        without = {name.casefold() for name in (*self.uncompared_columns, *self.target.key)}
        if idle := [name for name in self.control_period.tolerance if name.casefold() in without]:
            raise ValueError(
                f"control_period.tolerance: {', '.join(idle)} is of the key, which matches rows, or not compared at all"
            )
        return self

    @model_validator(mode="after")
    def _a_unit_holds_whole_partitions(self) -> BackfillSpec:
        unit, grain = self.publish.unit, self.target.grain
        if unit != "range" and not Grain(unit).holds(grain):
            raise ValueError(f"publish.unit {unit} holds no whole {grain} partition; use range, or a period that does")
        return self

    @model_validator(mode="after")
    def _source_is_named(self) -> BackfillSpec:
        if self.source is None and any(getattr(entry, "against", None) == "source" for entry in self.compare):
            raise ValueError("a comparison against source needs source: {table, partition_by}")
        return self

    @model_validator(mode="after")
    def _a_link_is_computed_once(self) -> BackfillSpec:
        if self.transform.is_chained and self.schema_gate.mode == "discard_rows":
            raise ValueError(
                "schema.mode discard_rows computes each partition once more to count what it left out, which a partition that is made "
                "from those before it (transform.depends_on_past) cannot be; leave the rows out in the SQL"
            )
        return self

    @model_validator(mode="after")
    def _a_list_has_no_dates(self) -> BackfillSpec:
        if self.target.grain is Grain.LIST:
            if self.transform.is_chained:
                raise ValueError("transform.depends_on_past has no meaning for grain list, whose values have no order")
            if self.transform.logical_date is not None:
                raise ValueError("transform.logical_date has no meaning for grain list; use partition_value")
            if self.source is not None and (self.source.column_format or self.source.column_timezone):
                raise ValueError(
                    "source.column_format and column_timezone have no meaning for grain list; leave them out"
                )
        return self

    @model_validator(mode="after")
    def _eras_end_where_partitions_do(self) -> BackfillSpec:
        eras, target = self.transform.stretches, self.target
        if eras and target.grain is Grain.LIST:
            raise ValueError("transform.eras are stretches of time, and grain list has none; use sql")
        if wrong := list(faults(eras, target.grain, target.timezone)):
            # An error of the whole spec that stands where it can be mended.
            raise ValidationError.from_exception_data(
                self.__class__.__name__,
                [
                    {
                        "type": PydanticCustomError("era", "{reason}", {"reason": reason}),
                        "loc": ("transform", "eras", number, *(["until"] if eras[number].until else [])),
                        "input": eras[number].until or eras[number],
                    }
                    for number, reason in wrong
                ],
            )
        return self

    @model_validator(mode="after")
    def _report_queries_are_told_apart(self) -> BackfillSpec:
        names = [query.name for query in self.report_queries]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two report_queries are called {repeated[0]!r}; give each a name of its own")
        return self

    @model_validator(mode="after")
    def _throttles_are_told_apart(self) -> BackfillSpec:
        names = [one.name for one in self.throttle]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two throttles are called {repeated[0]!r}; give each a name of its own")
        return self

    @model_validator(mode="after")
    def _a_cutoff_is_written_into_sql(self) -> BackfillSpec:
        if self.source is not None and self.source.cutoff is not None and not self.transform.is_sql:
            raise ValueError(
                "source.cutoff is written into SQL, and this transform is code, which reads the source by itself: leave "
                "the cutoff out, and bound what the code reads"
            )
        return self

    @model_validator(mode="after")
    def _dbt_cuts_time_in_utc(self) -> BackfillSpec:
        target = self.target
        if not isinstance(self.transform, DbtTransform):
            return self
        zones = {target.timezone, target.column_timezone or target.timezone}
        if target.grain is Grain.LIST or zones != {"UTC"} or target.column_format is not None:
            raise ValueError(
                "dbt bounds its batches by instants in UTC: with transform.dbt, target.grain is hour, day, week, month or year, "
                "timezone and column_timezone are UTC, and partition_by is a date or a timestamp, without column_format"
            )
        return self

    @model_validator(mode="after")
    def _sql_checks_are_told_apart(self) -> BackfillSpec:
        names = [check.name for check in self.checks if isinstance(check, Sql)]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two sql checks are called {repeated[0]!r}; give each a name of its own")
        return self
