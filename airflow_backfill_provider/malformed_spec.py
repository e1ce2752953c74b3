"""A spec that cannot be read, as something Airflow reports: one import error under the spec's own path."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

from airflow.sdk import DAG

from airflow_backfill_provider.errors import SpecError


class MalformedSpec(DAG):
    """A DAG that fails to serialize with the spec's error.

    Raising in the DAG file would be reported too, but Airflow then drops every DAG of that file, also those whose
    specs are fine. A *serialization* error is filed under the DAG's ``relative_fileloc`` alone, which here is the
    spec's path (``airflow/dag_processing/processor.py``, ``_serialize_dags``, 3.3.2).
    """

    @classmethod
    def of(cls, path: Path, error: SpecError) -> MalformedSpec:
        """The stand-in for one spec file."""
        dag = cls(dag_id=f"malformed__{sha256(str(path).encode()).hexdigest()[:12]}", schedule=None)
        dag.spec_path, dag.error = path.absolute(), error
        return dag

    spec_path: Path
    error: SpecError

    @property
    def relative_fileloc(self) -> str | None:
        """The spec's path, relative to the bundle."""
        return self.__dict__.get("_relative_fileloc")

    @relative_fileloc.setter
    def relative_fileloc(self, dag_file: str | None) -> None:
        # Airflow's importer assigns the DAG file's path; the spec lies somewhere beside it.
        if dag_file is not None:
            spec = os.path.relpath(self.spec_path, Path(self.fileloc).parent)
            dag_file = os.path.normpath(Path(dag_file).parent / spec)
        self.__dict__["_relative_fileloc"] = dag_file

    def get_serialized_fields(self) -> NoReturn:  # type: ignore[override]
        """Fail in the spec's own words."""
        raise self.error
