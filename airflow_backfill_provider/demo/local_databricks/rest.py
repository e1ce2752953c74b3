"""What the SQL Statement Execution API is asked: submit, poll, cancel; and which SQL warehouses there are."""

from __future__ import annotations

import re
from typing import Any

from airflow_backfill_provider.demo.local_databricks.queries import Queries, Query, State

WAREHOUSE = "abc"
_STATEMENT = re.compile(r"\A/api/2\.0/sql/statements/(?P<id>[0-9a-f-]+)(?P<cancel>/cancel)?\Z")
_SECONDS = re.compile(r"\A(\d+)s\Z")


class Api:
    """The calls of Airflow's REST hook."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries

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
