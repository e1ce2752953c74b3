"""What the SQL Statement Execution API and the Jobs API are asked: submit, poll, cancel; and which SQL warehouses there are."""

from __future__ import annotations

import re
from typing import Any

from airflow_backfill_provider.demo.local_databricks.jobs import Jobs, Refused
from airflow_backfill_provider.demo.local_databricks.queries import Queries, Query, State

WAREHOUSE = "abc"
_STATEMENT = re.compile(r"\A/api/2\.0/sql/statements/(?P<id>[0-9a-f-]+)(?P<cancel>/cancel)?\Z")
_JOBS = re.compile(r"\A/api/2\.[12]/jobs/(?P<call>[a-z/-]+)\Z")
_SECONDS = re.compile(r"\A(\d+)s\Z")


class Api:
    """The calls of Airflow's REST hook. ``body`` is what a GET has behind its ``?``, too."""

    def __init__(self, queries: Queries, jobs: Jobs) -> None:
        self._queries = queries
        self._jobs = jobs

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status of HTTP and what it carries."""
        if (method, path) == ("GET", "/api/2.0/sql/warehouses"):
            path_of_it = f"/sql/1.0/warehouses/{WAREHOUSE}"
            return 200, {"warehouses": [{"id": WAREHOUSE, "name": "local", "odbc_params": {"path": path_of_it}}]}
        if (method, path) == ("POST", "/api/2.0/sql/statements"):
            query = self._queries.submit(self._queries.open({}), body["statement"])
            found = _SECONDS.match(body.get("wait_timeout", "10s"))
            query.wait(float(found[1]) if found else 10.0)
            return 200, _described(query)
        if match := _STATEMENT.match(path):
            try:
                query = self._queries.find(match["id"])
            except KeyError:
                return 404, {"error_code": "NOT_FOUND", "message": f"There is no statement {match['id']}."}
            if match["cancel"]:
                query.cancel()
                return 200, {}
            return 200, _described(query)
        if match := _JOBS.match(path):
            try:
                return self._answer_of_jobs(method, match["call"], body)
            except Refused as refused:
                return 400, {"error_code": "INVALID_PARAMETER_VALUE", "message": str(refused)}
        return _unknown(method, path)

    def _answer_of_jobs(self, method: str, call: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        token = body.get("idempotency_token")
        match method, call:
            case "POST", "create":
                return 200, {"job_id": self._jobs.create(body["tasks"])}
            case "POST", "run-now":
                return 200, {"run_id": self._jobs.run_now(body["job_id"], body.get("job_parameters", {}), token).id}
            case "POST", "runs/submit":
                return 200, {"run_id": self._jobs.submit(body["tasks"], {}, token).id}
            case "GET", "runs/get":
                run = self._jobs.find(int(body["run_id"]))
                return 200, {"run_id": run.id, "state": run.state}
            case "POST", "runs/cancel":
                self._jobs.find(int(body["run_id"])).cancel()
                return 200, {}
            case _:
                return _unknown(method, call)


def _unknown(method: str, path: str) -> tuple[int, dict[str, Any]]:
    return 404, {"error_code": "ENDPOINT_NOT_FOUND", "message": f"{method} {path}"}


def _described(query: Query) -> dict[str, Any]:
    status: dict[str, Any] = {"state": query.state}
    if query.state is State.FAILED:
        status["error"] = {"error_code": "BAD_REQUEST", "message": query.error}
    answer: dict[str, Any] = {"statement_id": query.id, "status": status}
    if query.state is State.SUCCEEDED:
        rows = query.rows
        answer["manifest"] = {"schema": {"columns": [{"name": name} for name in rows.column_names]}}
        columns = [column.to_pylist() for column in rows.columns]
        answer["result"] = {
            "data_array": [
                [None if value is None else str(value) for value in row] for row in zip(*columns, strict=True)
            ]
        }
    return answer
