"""Statements that run: each in a thread of its own, with its state, its rows or its error, and a way to cancel it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from uuid import uuid4

import pyarrow
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_backfill_provider.demo.local_databricks.definitions import definition
from airflow_backfill_provider.demo.local_databricks.rows import fetched

_TIMEOUT = "statement_timeout"
_ZONE = "timezone"
_ELSEWHERE = {_ZONE: "spark.sql.session.timeZone"}
"""Parameters of a SQL warehouse, and what Spark calls them."""


class State(StrEnum):
    """As the SQL Statement Execution API names them."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"


class Query:
    """One statement."""

    def __init__(self, session: Session, sql: str) -> None:
        self.id = str(uuid4())
        self.sql = sql
        self.state = State.RUNNING
        self.rows: pyarrow.Table = pyarrow.table({})
        self.error = ""
        self._session = session
        self._over = threading.Event()

    def wait(self, seconds: float) -> State:
        """The state, once it is over or that many seconds have passed."""
        self._over.wait(seconds)
        return self.state

    def cancel(self) -> None:
        """End it; silent when it is over."""
        if not self._over.is_set():
            self.state = State.CANCELED
            self._session.spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(self.id, "cancelled by the client")

    def finish(self, rows: pyarrow.Table) -> None:
        """It has these rows."""
        self.rows, self.state = rows, State.SUCCEEDED
        self._over.set()

    def run(self) -> None:
        """Run it to its end, or to the end of the session's timeout."""
        spark = self._session.spark
        spark.sparkContext.setJobGroup(self.id, self.id, interruptOnCancel=True)
        timer = threading.Timer(self._session.timeout or threading.TIMEOUT_MAX, self._expire)
        timer.daemon = True
        if self._session.timeout:
            timer.start()
        try:
            shown = definition(spark, self.sql)
            rows = fetched(spark.sql(self.sql)) if shown is None else shown
            # A cancelled statement that was past its last job has come to its end.
            self.rows, self.state = rows, State.SUCCEEDED
        except PySparkException as error:
            if self.state is State.RUNNING:
                self.error, self.state = str(error), State.FAILED
        except Exception as error:  # whatever it is, the client must hear of it
            if self.state is State.RUNNING:
                self.error, self.state = f"{type(error).__name__}: {error}", State.FAILED
        finally:
            timer.cancel()
            self._over.set()

    def _expire(self) -> None:
        self.error, self.state = f"Statement timed out after {self._session.timeout} seconds.", State.FAILED
        self._session.spark.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(self.id, "timed out")


class Session:
    """One client's settings; tables are everybody's."""

    def __init__(self, spark: SparkSession, settings: dict[str, str]) -> None:
        self.id = uuid4()
        self.spark = spark.newSession()
        self.timeout: float = 0
        for name, value in settings.items():
            if name.lower() == _TIMEOUT:
                self.timeout = float(value)
            else:
                self.spark.conf.set(_ELSEWHERE.get(name.lower(), name), value)


class Queries:
    """Every session and every statement since the start."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._threads = ThreadPoolExecutor(max_workers=16)
        self._sessions: dict[bytes, Session] = {}
        self._queries: dict[str, Query] = {}

    def open(self, settings: dict[str, str]) -> Session:
        """A new session with these settings."""
        session = Session(self._spark, settings)
        self._sessions[session.id.bytes] = session
        return session

    def session(self, guid: bytes) -> Session:
        """The session of that id.

        :raises KeyError: it is closed.
        """
        return self._sessions[guid]

    def close(self, guid: bytes) -> None:
        """Forget the session."""
        self._sessions.pop(guid, None)

    def submit(self, session: Session, sql: str) -> Query:
        """Begin a statement."""
        query = Query(session, sql)
        self._queries[query.id] = query
        self._threads.submit(query.run)
        return query

    def columns(self, session: Session, schema: str, table: str) -> Query:
        """What the catalog says of a table's columns, by JDBC's names, as a statement that is over."""
        query = Query(session, "")
        self._queries[query.id] = query
        fields = session.spark.table(f"`{schema}`.`{table}`").schema.fields
        query.finish(
            pyarrow.table(
                {
                    "TABLE_SCHEM": pyarrow.array([schema for _ in fields], pyarrow.string()),
                    "TABLE_NAME": pyarrow.array([table for _ in fields], pyarrow.string()),
                    "COLUMN_NAME": pyarrow.array([field.name for field in fields], pyarrow.string()),
                    "IS_NULLABLE": pyarrow.array(
                        ["YES" if field.nullable else "NO" for field in fields], pyarrow.string()
                    ),
                }
            )
        )
        return query

    def find(self, query_id: str) -> Query:
        """The statement of that id.

        :raises KeyError: there is none.
        """
        return self._queries[query_id]

    def forget(self, query_id: str) -> None:
        """Let go of its rows."""
        self._queries.pop(query_id, None)
