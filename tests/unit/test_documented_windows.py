"""The examples of ``docs/windows.md``: every spec loads, every SQL under one renders, every conf can be planned."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_backfill_provider.resolution import resolve
from airflow_backfill_provider.spec.column_format import FORMATS
from airflow_backfill_provider.spec.load import load_spec_text
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import Request
from airflow_backfill_provider.transform import lint, prepare
from airflow_backfill_provider.windows import Grain, list_partition, partition_at

PAGE = (Path(__file__).parents[2] / "docs" / "windows.md").read_text(encoding="utf-8")
BLOCKS: list[tuple[str, str]] = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
SPECS = [text for kind, text in BLOCKS if kind == "yaml"]
CONFS = [json.loads(text) for kind, text in BLOCKS if kind == "json"]
# Each SQL block belongs to the spec before it.
PAIRS = [
    (next(text for kind, text in reversed(BLOCKS[:number]) if kind == "yaml"), sql)
    for number, (kind, sql) in enumerate(BLOCKS)
    if kind == "sql"
]
REST = "name: documented\ntransform: {sql: documented.sql}\ncompute: {conn_id: warehouse}\n"


def load(text: str, sql: str = "SELECT 1") -> BackfillSpec:
    return load_spec_text(REST + text, "windows.md", lambda path: sql)


@pytest.mark.parametrize("text", SPECS)
def test_every_documented_spec_loads(text: str) -> None:
    written: dict[str, Any] = yaml.safe_load(text)
    spec = load(text)
    target = spec.target.model_dump(mode="json")
    assert {name: target[name] for name in written["target"]} == written["target"]


def test_every_grain_and_every_way_to_read_a_column_has_a_documented_spec() -> None:
    specs = [load(text) for text in SPECS]
    assert {spec.target.grain for spec in specs} == set(Grain)
    formats = {spec.target.column_format for spec in specs}
    assert {None, *FORMATS} == formats
    assert any(spec.target.column_timezone for spec in specs)
    assert any(spec.source is not None and spec.source.column_timezone for spec in specs)


@pytest.mark.parametrize(("text", "sql"), PAIRS)
def test_every_documented_sql_renders_for_the_spec_before_it_and_is_bounded(text: str, sql: str) -> None:
    spec = load(text, sql)
    target = spec.target
    is_list = target.grain is Grain.LIST
    partition = list_partition("eu-west") if is_list else partition_at(date(2024, 3, 10), target.grain, target.timezone)
    assert "{{" not in prepare(spec, partition, "duckdb")
    assert [finding.code for finding in lint(spec, partition, "duckdb")] == []


@pytest.mark.parametrize("conf", CONFS, ids=str)
def test_every_documented_conf_can_be_planned(conf: dict[str, Any]) -> None:
    grain = "list" if "partitions" in conf else "month" if conf.get("expand") else "day"
    spec = load(f"target: {{table: s.t, partition_by: d, key: [id], grain: {grain}}}\n")
    assert resolve(spec, Request.from_conf(conf), datetime(2024, 6, 15, tzinfo=UTC)).partitions


def test_the_keys_in_the_table_are_the_keys_of_the_grains() -> None:
    moment = datetime(2024, 3, 13, 10, 42, tzinfo=UTC)
    for grain in Grain:
        if grain is not Grain.LIST:
            row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{grain}`"))
            assert f"`{partition_at(moment, grain).key}` |" in row
