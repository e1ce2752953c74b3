"""The ways to recompute a partition: the pipeline's SQL, or code of the team's own. Each knows what its result hangs on."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, Tag, field_validator, model_validator

from airflow_backfill_provider.spec.checks import Frozen
from airflow_backfill_provider.spec.dag_run import DagRunSpec
from airflow_backfill_provider.spec.databricks_job import DatabricksJobSpec
from airflow_backfill_provider.spec.dbt import CompiledModel, DbtModel
from airflow_backfill_provider.spec.elsewhere import ElsewhereSpec
from airflow_backfill_provider.spec.eras import Era, era_at
from airflow_backfill_provider.spec.python_source import source_of
from airflow_backfill_provider.windows import Grain, Span, Window


class TransformSpec(Frozen):
    """What every way has."""

    params: dict[str, JsonValue] = Field(default_factory=dict)
    logical_date: Literal["start", "end"] | None = None
    """What ``ds``, ``ts`` and ``logical_date`` mean in it: the partition's start or its end."""
    scope: Literal["partition", "range"] = "partition"
    """How often it runs: once per partition, or once for all partitions of a task that lie side by side. The second is
    faster, and allowed only while three neighbours give the same rows both ways."""

    @property
    @abstractmethod
    def origin(self) -> str:
        """What it is read from: a file, a function."""

    @property
    @abstractmethod
    def in_words(self) -> str:
        """What each partition is recomputed from."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """JSON of what, beside ``params``, ``logical_date`` and ``scope``, decides what it gives."""

    @property
    def is_sql(self) -> bool:
        """Whether it is a SELECT in the end, which can be read, bounded and run in another way."""
        return False

    @property
    def runs_elsewhere(self) -> bool:
        """Whether something else than this worker and the warehouse's own SQL recomputes it."""
        return False

    @property
    def stretches(self) -> Sequence[Era]:
        """The stretches of history that it has another text for; none when one is for all."""
        return ()

    @property
    def bounded_reads(self) -> Sequence[str]:
        """The tables, as SQL, around whose reads a subquery was put that is not the team's own; none in a text of theirs."""
        return ()

    def sql_in(self, era: int) -> SqlTransform | None:
        """The one SQL text of that era; None where it is code, or where nobody has compiled it yet."""
        return None

    def settled_like(self, planned: TransformSpec) -> TransformSpec:
        """Itself, with what was found out of it when the plan was made, where a file does not tell by itself."""
        return self

    def era_of(self, span: Span, grain: Grain, zone: str) -> int:
        """The number of the stretch that the span's start lies in; 0 when one text is for all of history."""
        stretches = self.stretches
        return era_at(stretches, span.start, grain, zone) if stretches and isinstance(span, Window) else 0

    @property
    def is_chained(self) -> bool:
        """Whether each partition is made from those before it, so that they are computed in order."""
        return False

    @property
    def intent(self) -> dict[str, Any]:
        """JSON of everything that decides what it gives."""
        return self.identity | {"params": self.params, "logical_date": self.logical_date, "scope": self.scope}

    @model_validator(mode="after")
    def _a_range_has_no_logical_date(self) -> TransformSpec:
        if self.scope == "range" and self.logical_date is not None:
            raise ValueError(
                "scope: range runs it once for many partitions, which have no logical date in common: use "
                "data_interval_start and data_interval_end in it, or scope: partition"
            )
        return self

    @field_validator("params")
    @classmethod
    def _finite(cls, params: dict[str, JsonValue]) -> dict[str, JsonValue]:
        # NaN has no JSON form, so it could be neither stored in a plan nor hashed.
        try:
            json.dumps(params, allow_nan=False)
        except ValueError as error:
            raise ValueError("params are JSON values; NaN and infinity are not") from error
        return params


class SqlTransform(TransformSpec):
    """The SELECT (or one INSERT … SELECT, or CREATE TABLE … AS) that the scheduled pipeline runs."""

    sql: str = ""
    """In YAML the path of the file, relative to the spec; once loaded its text. Either this or ``eras``."""
    file: str | None = None
    """The path it was read from, for messages."""
    eras: tuple[Era, ...] = ()
    """Other SQL for other stretches of history, oldest first; a partition belongs to the era that its start lies in."""
    depends_on_past: bool | None = None
    """Where the file reads the table that it rebuilds: whether a partition is made from the one before it. ``true`` computes
    one after the other, each from the rows that were staged for those before it; ``false`` says that it reads its own
    partition alone. A file that does not read that table needs neither."""

    @property
    def is_chained(self) -> bool:
        return bool(self.depends_on_past)

    @model_validator(mode="after")
    def _a_chain_has_a_link_for_each_partition(self) -> SqlTransform:
        if self.depends_on_past and self.scope == "range":
            raise ValueError(
                "depends_on_past computes one partition after the other, which scope: range does not; leave one out"
            )
        return self

    @model_validator(mode="after")
    def _one_of(self) -> SqlTransform:
        if bool(self.sql) == bool(self.eras):
            raise ValueError("give either sql, the path of the SQL file, or eras: [{until: …, sql: …}, {sql: …}]")
        return self

    @property
    def origin(self) -> str:
        if not self.eras:
            return self.file or "inline"
        return ", ".join(f"{era.file or 'inline'}{f' until {era.until}' if era.until else ''}" for era in self.eras)

    @property
    def in_words(self) -> str:
        return f"{'the SQL file of its era' if self.eras else 'the same SQL file'} ({self.origin})"

    @property
    def identity(self) -> dict[str, Any]:
        written = {"sql": self.sql, "eras": [[era.until, era.sql] for era in self.eras]}
        # Only where it is said: what was staged by an earlier version, which had no chains, stays usable.
        return written | ({"depends_on_past": True} if self.is_chained else {})

    @property
    def is_sql(self) -> bool:
        return True

    @property
    def stretches(self) -> Sequence[Era]:
        return self.eras

    def sql_in(self, era: int) -> SqlTransform:
        if not self.eras:
            return self
        era_of = self.eras[era]
        return self.model_copy(update={"sql": era_of.sql, "file": era_of.file, "eras": ()})


class PythonTransform(TransformSpec):
    """A Python function of the team that is called for each partition, and returns its rows or writes them into its stage."""

    python: str
    """``package.module:function``; the module is found on ``sys.path``, where the folder of the DAG files is."""
    source: str = ""
    """The text of the module when the spec was read, so that an edit is noticed; found by itself."""

    @model_validator(mode="before")
    @classmethod
    def _find_source(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(reference := data.get("python"), str) and not data.get("source"):
            return data | {"source": source_of(reference)}
        return data

    @property
    def origin(self) -> str:
        return self.python

    @property
    def in_words(self) -> str:
        return f"what the Python function {self.python} returns or stages"

    @property
    def identity(self) -> dict[str, Any]:
        return {"python": self.python, "source": self.source}


class DbtTransform(TransformSpec):
    """A model of the team's dbt project: the SELECT that dbt compiles it to, held to one partition."""

    dbt: DbtModel
    compiled: CompiledModel | None = None
    """What it came to when the plan was made; found by dbt itself."""

    @model_validator(mode="after")
    def _dbt_has_words_of_its_own(self) -> DbtTransform:
        if self.params:
            raise ValueError("a dbt model knows no params; write transform.dbt.vars")
        if self.logical_date is not None:
            raise ValueError("a dbt model knows no logical_date; leave it out")
        return self

    @property
    def origin(self) -> str:
        return f"dbt model {self.dbt.model}"

    @property
    def in_words(self) -> str:
        kind = f" ({self.compiled.kind}, {self.compiled.file})" if self.compiled else ""
        return f"the compiled SQL of the dbt model {self.dbt.model}{kind}"

    @property
    def identity(self) -> dict[str, Any]:
        named = {"model": self.dbt.model, "target": self.dbt.target, "vars": self.dbt.vars}
        return {"dbt": named, "sql": self.compiled.sql if self.compiled else ""}

    @property
    def is_sql(self) -> bool:
        return True

    @property
    def bounded_reads(self) -> Sequence[str]:
        return self.compiled.bounded if self.compiled else ()

    def sql_in(self, era: int) -> SqlTransform | None:
        if self.compiled is None:
            return None
        return SqlTransform(sql=self.compiled.sql, file=self.origin, scope=self.scope)

    def settled_like(self, planned: TransformSpec) -> TransformSpec:
        if self.compiled is not None or not isinstance(planned, DbtTransform):
            return self
        return self.model_copy(update={"compiled": planned.compiled})


class ElsewhereTransform(TransformSpec):
    """A run elsewhere for each partition, which writes its rows where it is told."""

    @property
    @abstractmethod
    def runs(self) -> ElsewhereSpec:
        """Which runs they are."""

    @property
    def runs_elsewhere(self) -> bool:
        return True

    @property
    def in_words(self) -> str:
        return f"what a run of the {self.origin} stages"

    @model_validator(mode="after")
    def _a_run_is_told_of_one_partition(self) -> ElsewhereTransform:
        if self.params:
            raise ValueError(f"a run of the {self.origin} knows no params of the backfill; write {self.extras_key}")
        if self.logical_date is not None:
            raise ValueError(
                f"a run of the {self.origin} is told partition_start and partition_end, and no logical_date; leave it out"
            )
        if self.scope == "range":
            raise ValueError(f"a run of the {self.origin} recomputes one partition; leave scope: range out")
        return self

    @property
    @abstractmethod
    def extras_key(self) -> str:
        """The key of the spec that holds what each run is told beside its partition."""


class DagTransform(ElsewhereTransform):
    """A DAG of the team that is triggered for each partition."""

    dag: DagRunSpec

    @property
    def runs(self) -> DagRunSpec:
        return self.dag

    @property
    def origin(self) -> str:
        return f"DAG {self.dag.dag_id}"

    @property
    def extras_key(self) -> str:
        return "transform.dag.conf"

    @property
    def identity(self) -> dict[str, Any]:
        return {"dag": self.dag.dag_id, "conf": self.dag.conf}


class DatabricksJobTransform(ElsewhereTransform):
    """A Databricks job or notebook of the team that is run for each partition."""

    databricks_job: DatabricksJobSpec

    @property
    def runs(self) -> DatabricksJobSpec:
        return self.databricks_job

    @property
    def origin(self) -> str:
        return self.databricks_job.name

    @property
    def extras_key(self) -> str:
        return "transform.databricks_job.parameters"

    @property
    def identity(self) -> dict[str, Any]:
        job = self.databricks_job
        return {"job_id": job.job_id, "notebook": job.notebook, "parameters": job.parameters}


_WAYS: dict[str, type[TransformSpec]] = {
    "sql": SqlTransform,
    "eras": SqlTransform,
    "python": PythonTransform,
    "dbt": DbtTransform,
    "dag": DagTransform,
    "databricks_job": DatabricksJobTransform,
}
"""The key that only this way has."""


def _one_way(value: Any) -> Any:
    if isinstance(value, dict):
        found = {way.__name__: key for key, way in _WAYS.items() if key in value}
        if len(found) > 1:
            raise ValueError(f"a partition is recomputed in one way: keep one of {', '.join(found.values())}")
    return value


def _way_of(value: Any) -> str:
    if isinstance(value, dict):
        return next((way.__name__ for key, way in _WAYS.items() if key in value), SqlTransform.__name__)
    return type(value).__name__


Transform = Annotated[
    Annotated[SqlTransform, Tag("SqlTransform")]
    | Annotated[PythonTransform, Tag("PythonTransform")]
    | Annotated[DbtTransform, Tag("DbtTransform")]
    | Annotated[DagTransform, Tag("DagTransform")]
    | Annotated[DatabricksJobTransform, Tag("DatabricksJobTransform")],
    Discriminator(_way_of),
    BeforeValidator(_one_way),
]
