"""The process: one HTTP port on loopback for both protocols; its arguments are a folder and Delta's jars.

It serves the tables of the folder to whoever has the token in it, and writes its port there when it is ready.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl

from airflow_backfill_provider.demo.local_databricks import spark
from airflow_backfill_provider.demo.local_databricks.jobs import Jobs
from airflow_backfill_provider.demo.local_databricks.queries import Queries
from airflow_backfill_provider.demo.local_databricks.rest import Api
from airflow_backfill_provider.demo.local_databricks.server import ADDRESS, FOR_TESTS, TOKEN, WORKSPACE
from airflow_backfill_provider.demo.local_databricks.thrift import Service

_REFUSALS = {
    HTTPStatus.UNAUTHORIZED: {"error_code": 401, "message": "Credential was not sent or was of an unsupported type."},
    HTTPStatus.FORBIDDEN: {"error_code": 403, "message": "Invalid access token."},
}


class Handler(BaseHTTPRequestHandler):
    """Thrift on any path but the API's."""

    protocol_version = "HTTP/1.1"
    service: Service
    api: Api
    token: str

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        path, _, query = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if (refusal := self._refusal()) is not None:
            self._send(refusal, "application/json", json.dumps(_REFUSALS[refusal]).encode())
        elif path.startswith("/api/"):
            status, found = self.api.answer(
                method, path.rstrip("/"), dict(parse_qsl(query)) | json.loads(body or b"{}")
            )
            self._send(status, "application/json", json.dumps(found).encode())
        else:
            self._send(200, "application/x-thrift", self.service.answer(body))

    def _refusal(self) -> HTTPStatus | None:
        kind, _, token = (self.headers.get("Authorization") or "").partition(" ")
        if kind != "Bearer" or not token:
            return HTTPStatus.UNAUTHORIZED
        return None if secrets.compare_digest(token.encode(), self.token.encode()) else HTTPStatus.FORBIDDEN

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("jars", type=Path, nargs="+")
    arguments.add_argument(FOR_TESTS, action="store_true", help="small tables; ends when its standard input is closed")
    asked = arguments.parse_args()
    if asked.for_tests:
        threading.Thread(target=_end_with_the_parent, args=(asked.folder,), daemon=True).start()
    session = spark.start(asked.jars, asked.folder, for_tests=asked.for_tests)
    queries, jobs = Queries(session), Jobs(session, asked.folder / WORKSPACE)
    Handler.service, Handler.api, Handler.token = (
        Service(queries),
        Api(queries, jobs),
        (asked.folder / TOKEN).read_text(),
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    ready = asked.folder / f"{ADDRESS}.new"
    ready.write_text(str(server.server_port))
    ready.rename(asked.folder / ADDRESS)
    server.serve_forever()


def _end_with_the_parent(folder: Path) -> None:
    sys.stdin.buffer.read()
    # A parent that was killed has not tidied up.
    shutil.rmtree(folder, ignore_errors=True)
    # Spark's own way out waits for what runs; its Java process ends with its parent's pipe too.
    os._exit(0)


if __name__ == "__main__":
    main()
