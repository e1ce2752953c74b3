"""The process: one HTTP port on loopback for both protocols. Run as `python -m databricks_local.serve FOLDER JAR…`.

It writes its address to FOLDER/address when it is ready, and ends when its standard input is closed.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from databricks_local import spark
from databricks_local.queries import Queries
from databricks_local.rest import Api
from databricks_local.thrift import Service


class Handler(BaseHTTPRequestHandler):
    """Thrift on any path but the API's."""

    protocol_version = "HTTP/1.1"
    service: Service
    api: Api

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        path, _, _ = self.path.partition("?")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path.startswith("/api/"):
            status, found = self.api.answer(method, path.rstrip("/"), json.loads(body or b"{}"))
            self._send(status, "application/json", json.dumps(found).encode())
        else:
            self._send(200, "application/x-thrift", self.service.answer(body))

    def _send(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    folder, *jars = map(Path, sys.argv[1:])
    threading.Thread(target=_end_with_the_parent, args=(folder,), daemon=True).start()
    queries = Queries(spark.start(jars, folder))
    Handler.service, Handler.api = Service(queries), Api(queries)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    ready = folder / "address.new"
    ready.write_text(str(server.server_port))
    ready.rename(folder / "address")
    server.serve_forever()


def _end_with_the_parent(folder: Path) -> None:
    sys.stdin.buffer.read()
    # A parent that was killed has not tidied up.
    shutil.rmtree(folder, ignore_errors=True)
    # Spark's own way out waits for what runs; its Java process ends with its parent's pipe too.
    os._exit(0)


if __name__ == "__main__":
    main()
