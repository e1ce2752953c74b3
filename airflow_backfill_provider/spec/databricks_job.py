"""A Databricks job, or a notebook, that is run once for each partition that it recomputes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, field_validator, model_validator

from airflow_backfill_provider.spec.elsewhere import ElsewhereSpec


class DatabricksJobSpec(ElsewhereSpec):
    """Which job or notebook of the workspace of ``compute.conn_id``, and what it is told beside the partition."""

    job_id: Annotated[int, Field(ge=1)] | None = None
    """The job that is run. Either this or ``notebook``."""
    notebook: Annotated[str, Field(pattern=r"^/[^\x00]+$")] | None = None
    """The path of a notebook in the workspace, which is run as a job of one task."""
    parameters: dict[str, str] = Field(default_factory=dict)
    """What each run gets as parameters, beside the partition's bounds and where its rows go; text, as Databricks has them."""
    existing_cluster_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")] | None = None
    """The cluster that the notebook runs on; serverless compute without one. A job has compute of its own."""

    @property
    def extras(self) -> Mapping[str, str]:
        return self.parameters

    @property
    def call(self) -> str:
        return f"The {self.name} is run once per partition, with the parameters"

    @property
    def dialect(self) -> str:
        return "databricks"

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return f"notebook {self.notebook}" if self.job_id is None else f"Databricks job {self.job_id}"

    @model_validator(mode="after")
    def _one_of(self) -> DatabricksJobSpec:
        if (self.job_id is None) == (self.notebook is None):
            raise ValueError("give either job_id, the number of a job, or notebook, its path in the workspace")
        if self.existing_cluster_id is not None and self.notebook is None:
            raise ValueError("existing_cluster_id is for a notebook; a job has compute of its own, so leave it out")
        return self

    @field_validator("parameters")
    @classmethod
    def _free(cls, parameters: dict[str, str]) -> dict[str, str]:
        cls.refuse_told(parameters)
        return parameters
