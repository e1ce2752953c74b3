"""A Databricks that does not answer says nothing of a run; one that refuses does."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("databricks.sql", reason="needs databricks-sql-connector")

from airflow.providers.databricks.exceptions import DatabricksApiError
from airflow.providers.databricks.hooks.databricks import DatabricksHook
from airflow.sdk.exceptions import AirflowException

from airflow_backfill_provider.errors import BackfillError, CodeFailed, ConnectionLost
from airflow_backfill_provider.operators.databricks_runs import DatabricksRuns
from airflow_backfill_provider.spec.databricks_job import DatabricksJobSpec


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> DatabricksRuns:
    monkeypatch.setenv("AIRFLOW_CONN_DATABRICKS_BACKFILL", json.dumps({"conn_type": "databricks", "host": "h"}))
    return DatabricksRuns(DatabricksJobSpec(job_id=1), "databricks_backfill")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (AirflowException("API requests to Databricks failed 3 times"), ConnectionLost),
        (ConnectionResetError("reset by peer"), ConnectionLost),
        (DatabricksApiError("the token has run out", http_status_code=403), ConnectionLost),
        (DatabricksApiError("busy", http_status_code=503), ConnectionLost),
        (DatabricksApiError("Run 7 does not exist", http_status_code=400), CodeFailed),
        (DatabricksApiError("not found", http_status_code=404), CodeFailed),
    ],
)
def test_a_refusal_is_told_from_silence(
    monkeypatch: pytest.MonkeyPatch, runs: DatabricksRuns, answer: Exception, kind: type[BackfillError]
) -> None:
    def answered(*_: object) -> None:
        raise answer

    monkeypatch.setattr(DatabricksHook, "get_run", answered)
    monkeypatch.setattr(DatabricksHook, "run_now", answered)
    with pytest.raises(kind, match="run 7 of the Databricks job 1 cannot be looked at"):
        runs.look("7")
    with pytest.raises(kind, match="Databricks job 1 could not be run"):
        runs.submit("r1", {})


def test_a_run_that_may_have_begun_is_not_taken_for_none_since_nobody_has_its_number(runs: DatabricksRuns) -> None:
    with pytest.raises(CodeFailed, match="whether the Databricks job 1 was begun for r1"):
        runs.find("r1")
