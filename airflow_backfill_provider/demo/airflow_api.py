"""Airflow's REST API, as far as the demo and the scheduler tests drive it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import httpx

FINAL_STATES = ("success", "failed")
_READ_TRIES = 3
_T = TypeVar("_T")


class AirflowApi:
    """A client that is logged in; every call raises :class:`httpx.HTTPStatusError` when Airflow says no.

    Waits poll, and raise :class:`TimeoutError` saying what was last seen. Close it after use.
    """

    def __init__(self, url: str, username: str, password: str) -> None:
        self.url = url
        self._login = {"username": username, "password": password}
        self._http = httpx.Client(base_url=url, timeout=30, trust_env=False)

    def close(self) -> None:
        """Let go of the connections; the next call opens new ones."""
        self._http.close()

    def __enter__(self) -> AirflowApi:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def request(self, method: str, path: str, **kwargs: Any) -> Any:
        """Call ``/api/v2`` + ``path`` and return the JSON answer (None when it is empty)."""
        if "authorization" not in self._http.headers:
            self._log_in()
        response = self._send(method, path, kwargs)
        if response.status_code == httpx.codes.UNAUTHORIZED:
            self._log_in()
            response = self._send(method, path, kwargs)
        if response.is_error:
            raise httpx.HTTPStatusError(
                f"{method} {path} answered {response.status_code}: {response.text[:2000]}",
                request=response.request,
                response=response,
            )
        return response.json() if response.content else None

    def health(self) -> dict[str, str]:
        """Component name to ``healthy`` or ``unhealthy``; empty while the server does not answer."""
        try:
            answer = self._http.get("/api/v2/monitor/health", timeout=5).json()
        except (httpx.HTTPError, ValueError):
            return {}
        return {name: str(part.get("status")) for name, part in answer.items() if isinstance(part, dict)}

    def warm_up(self) -> bool:
        """Let the server build the API that tasks talk to, which stalls it for seconds on first use; True when done."""
        try:
            return self._http.get("/execution/health", timeout=120).is_success
        except httpx.TransportError:
            return False

    # DAGs

    def dag(self, dag_id: str) -> dict[str, Any]:
        """What Airflow knows of the DAG."""
        return dict(self.request("GET", f"/dags/{dag_id}"))

    def import_errors(self) -> dict[str, str]:
        """File name to stack trace, for every DAG file that does not import."""
        answer = self.request("GET", "/importErrors", params={"limit": 100})
        return {str(error["filename"]): str(error["stack_trace"]) for error in answer["import_errors"]}

    def wait_for_dag(self, dag_id: str, *, timeout: float = 60) -> dict[str, Any]:
        """Wait until the DAG can be triggered.

        :raises RuntimeError: some DAG file does not import and the DAG did not appear in time.
        """

        def look() -> dict[str, Any] | None:
            try:
                dag = self.dag(dag_id)
            except httpx.HTTPStatusError as error:
                if error.response.status_code == httpx.codes.NOT_FOUND:
                    return None
                raise
            return dag if not dag["is_stale"] else None

        try:
            return wait_until(look, f"DAG {dag_id} to appear", timeout=timeout)
        except TimeoutError as error:
            errors = self.import_errors()
            if errors:
                traces = "\n".join(f"{name}:\n{trace}" for name, trace in errors.items())
                raise RuntimeError(f"DAG {dag_id} did not appear; these files do not import:\n{traces}") from error
            raise

    def pause(self, dag_id: str, paused: bool = True) -> None:
        """Pause the DAG, or let it go on."""
        self.request("PATCH", f"/dags/{dag_id}", json={"is_paused": paused})

    # runs

    def trigger(self, dag_id: str, conf: Mapping[str, Any] | None = None, *, run_id: str | None = None) -> str:
        """Start a run as a person would, without a logical date; returns its run id."""
        body: dict[str, Any] = {"logical_date": None, "conf": dict(conf or {})}
        if run_id is not None:
            body["dag_run_id"] = run_id
        return str(self.request("POST", f"/dags/{dag_id}/dagRuns", json=body)["dag_run_id"])

    def run(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """The run as it is now."""
        return dict(self.request("GET", f"/dags/{dag_id}/dagRuns/{run_id}"))

    def wait_for_run(
        self,
        dag_id: str,
        run_id: str,
        *,
        timeout: float = 180,
        states: Sequence[str] = FINAL_STATES,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> str:
        """Wait until the run is in one of the states, and return it; ``meanwhile`` is called before every look."""

        def look() -> str | None:
            meanwhile()
            state = str(self.run(dag_id, run_id)["state"])
            return state if state in states else None

        try:
            return wait_until(look, f"run {run_id} of {dag_id} to be {' or '.join(states)}", timeout=timeout)
        except TimeoutError as error:
            seen = ", ".join(f"{_label(task)}={task['state']}" for task in self.task_instances(dag_id, run_id))
            raise TimeoutError(f"{error} Tasks: {seen}.") from error

    def clear(
        self,
        dag_id: str,
        run_id: str,
        *,
        only_failed: bool = True,
        task_ids: Sequence[str | tuple[str, int]] | None = None,
        downstream: bool = True,
    ) -> list[str]:
        """Clear task instances of one run, as the UI's Clear does; returns the labels of what was cleared."""
        body: dict[str, Any] = {
            "dry_run": False,
            "dag_run_id": run_id,
            "only_failed": only_failed,
            "include_downstream": downstream,
            "reset_dag_runs": True,
        }
        if task_ids is not None:
            body["task_ids"] = [task if isinstance(task, str) else list(task) for task in task_ids]
        answer = self.request("POST", f"/dags/{dag_id}/clearTaskInstances", json=body)
        return [_label(task) for task in answer["task_instances"]]

    # task instances

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        """Every task instance of the run, mapped ones one by one."""
        found: list[dict[str, Any]] = []
        while True:
            answer = self.request(
                "GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", params={"limit": 100, "offset": len(found)}
            )
            found.extend(answer["task_instances"])
            if not answer["task_instances"] or len(found) >= answer["total_entries"]:
                return found

    def task_states(self, dag_id: str, run_id: str) -> dict[str, str | None]:
        """``task_id`` or ``task_id[map_index]`` to state."""
        return {_label(task): task["state"] for task in self.task_instances(dag_id, run_id)}

    def task_log(self, dag_id: str, run_id: str, task_id: str, *, attempt: int = 1, map_index: int = -1) -> str:
        """The log of one attempt as text, one line per event, errors with their message."""
        answer = self.request(
            "GET",
            f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{attempt}",
            params={"map_index": map_index, "full_content": "true"},
            headers={"accept": "application/json"},
        )
        content = answer["content"]
        return content if isinstance(content, str) else "\n".join(_log_line(event) for event in content)

    def failures(self, dag_id: str, run_id: str) -> str:
        """The logs of every failed task instance of the run, for a person to read."""
        parts = []
        for task in self.task_instances(dag_id, run_id):
            if task["state"] == "failed":
                log = self.task_log(
                    dag_id, run_id, task["task_id"], attempt=task["try_number"], map_index=task["map_index"]
                )
                parts.append(f"--- {_label(task)}, attempt {task['try_number']}\n{log}")
        return "\n".join(parts)

    # settings

    def set_variable(self, key: str, value: str) -> None:
        """Create the Variable, or change its value."""
        self._put("/variables", key, {"key": key, "value": value})

    def delete_variable(self, key: str) -> None:
        """Remove the Variable."""
        self.request("DELETE", f"/variables/{key}")

    def set_pool(self, name: str, slots: int) -> None:
        """Create the pool, or change its slots."""
        path = f"/pools/{name}"
        if self._exists(path):
            self.request("PATCH", path, json={"pool": name, "slots": slots, "include_deferred": False})
        else:
            self.request("POST", "/pools", json={"name": name, "slots": slots, "include_deferred": False})

    def delete_pool(self, name: str) -> None:
        """Remove the pool."""
        self.request("DELETE", f"/pools/{name}")

    def set_connection(self, conn_id: str, conn_type: str, **fields: Any) -> None:
        """Create the connection, or change it."""
        self._put("/connections", conn_id, {"connection_id": conn_id, "conn_type": conn_type, **fields})

    def _put(self, collection: str, key: str, body: dict[str, Any]) -> None:
        if self._exists(f"{collection}/{key}"):
            self.request("PATCH", f"{collection}/{key}", json=body)
        else:
            self.request("POST", collection, json=body)

    def _exists(self, path: str) -> bool:
        try:
            self.request("GET", path)
        except httpx.HTTPStatusError as error:
            if error.response.status_code == httpx.codes.NOT_FOUND:
                return False
            raise
        return True

    def _send(self, method: str, path: str, kwargs: Mapping[str, Any]) -> httpx.Response:
        """One call; a read is tried again, because a busy machine lets the server stall for half a minute."""
        for patience in range(_READ_TRIES, 0, -1):
            try:
                return self._http.request(method, f"/api/v2{path}", **kwargs)
            except httpx.TransportError:
                if method != "GET" or patience == 1:
                    raise
                time.sleep(1)
        raise AssertionError("the last try returns or raises")

    def _log_in(self) -> None:
        response = self._http.post("/auth/token", json=self._login)
        response.raise_for_status()
        self._http.headers["authorization"] = f"Bearer {response.json()['access_token']}"


def wait_until(look: Callable[[], _T | None], what: str, *, timeout: float, every: float = 0.3) -> _T:
    """Call ``look`` until it returns something that is not None.

    :raises TimeoutError: naming ``what`` was waited for.
    """
    deadline = time.monotonic() + timeout
    while True:
        found = look()
        if found is not None:
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {timeout:.0f} s for {what}.")
        time.sleep(every)


def _label(task: Mapping[str, Any]) -> str:
    index = task.get("map_index", -1)
    return str(task["task_id"]) if index < 0 else f"{task['task_id']}[{index}]"


def _log_line(event: Any) -> str:
    if not isinstance(event, dict):
        return str(event)
    text = str(event.get("event", ""))
    for error in event.get("error_detail") or ():
        text += f"\n    {error.get('exc_type')}: {error.get('exc_value')}"
    return text
