"""The definition of a Delta table as a workspace shows it, which Delta outside a workspace refuses to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow
from pyspark.sql import SparkSession

_ASKED = re.compile(r"(?is)\A\s*SHOW\s+CREATE\s+TABLE\s+(?P<table>\S+)\s*\Z")


def definition(spark: SparkSession, sql: str) -> pyarrow.Table | None:
    """The answer to ``SHOW CREATE TABLE``; None to any other statement."""
    if (asked := _ASKED.match(sql)) is None:
        return None
    detail = spark.sql(f"DESCRIBE DETAIL {asked['table']}").collect()[0]
    columns = ",\n  ".join(map(_column, _fields(Path(urlsplit(detail["location"]).path))))
    return pyarrow.table({"createtab_stmt": [f"CREATE TABLE {asked['table']} (\n  {columns})\nUSING delta"]})


def _fields(table: Path) -> list[dict[str, Any]]:
    """Its columns by the last metadata in its log: Spark's own schema leaves out how a column is generated."""
    for commit in sorted((table / "_delta_log").glob("*.json"), reverse=True):
        for line in commit.read_text().splitlines():
            if "metaData" in (action := json.loads(line)):
                return list(json.loads(action["metaData"]["schemaString"])["fields"])
    return []


def _column(field: dict[str, Any]) -> str:
    about = field["metadata"]
    kind = field["type"] if isinstance(field["type"], str) else field["type"]["type"]
    generated = ""
    if (expression := about.get("delta.generationExpression")) is not None:
        generated = f" GENERATED ALWAYS AS ( {expression} )"
    elif (start := about.get("delta.identity.start")) is not None:
        way = "BY DEFAULT" if about["delta.identity.allowExplicitInsert"] else "ALWAYS"
        generated = f" GENERATED {way} AS IDENTITY (START WITH {start} INCREMENT BY {about['delta.identity.step']})"
    return f"`{field['name']}` {kind.upper()}{'' if field['nullable'] else ' NOT NULL'}{generated}"
