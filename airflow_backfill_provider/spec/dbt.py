"""A model of the team's own dbt project: how it is found, and what it was compiled to when the plan was made."""

from __future__ import annotations

import json
from typing import Annotated

from pydantic import Field, JsonValue, field_validator

from airflow_backfill_provider.spec.checks import Frozen


class DbtModel(Frozen):
    """Which model, of which project; dbt itself is the team's own and is called as a command."""

    project_dir: Annotated[str, Field(min_length=1)]
    """The folder of ``dbt_project.yml``; relative to the spec's file."""
    model: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)?$", max_length=200)]
    """The model's name, or ``package.name``; selectors such as ``+name`` are for other purposes."""
    target: Annotated[str, Field(pattern=r"^\w[\w.-]*$")] | None = None
    """The target of the profile; its default when left out."""
    profiles_dir: Annotated[str, Field(min_length=1)] | None = None
    """The folder of ``profiles.yml``, relative to the spec's file; left out, where dbt looks by itself."""
    vars: dict[str, JsonValue] = Field(default_factory=dict)
    """As ``dbt --vars``."""
    executable: Annotated[str, Field(min_length=1)] = "dbt"
    """The command, on ``PATH``, or the path of one such as ``/opt/dbt/bin/dbt``."""

    @field_validator("vars")
    @classmethod
    def _finite(cls, written: dict[str, JsonValue]) -> dict[str, JsonValue]:
        try:
            json.dumps(written, allow_nan=False)
        except ValueError as error:
            raise ValueError("vars are JSON values; NaN and infinity are not") from error
        return written


class CompiledModel(Frozen):
    """What dbt compiled a model to, bounded to one partition."""

    sql: str
    """A SQL template whose bounds are ``data_interval_start`` and ``data_interval_end``; nothing else in it is one."""
    file: str
    """The model's file, relative to its project."""
    kind: str
    """How dbt builds it: ``microbatch``, ``incremental`` or ``table``."""
    bounded: tuple[str, ...] = ()
    """The tables whose reads are held to the partition."""
    cautions: tuple[str, ...] = ()
    """Sentences of what dbt would do and a backfill does not."""
    dbt_version: str = ""
