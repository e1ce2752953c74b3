"""Rows that differ are kept for a person to look at when the spec asks for them, and are nowhere else."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import ValidationError
from report_reading import Report
from steps_world import DAYS, RIGHT, World, make_spec

from airflow_backfill_provider.errors import SpecError, ValidationFailed, WarehouseError
from airflow_backfill_provider.steps import samples
from airflow_backfill_provider.steps.cleanup import clean_up
from airflow_backfill_provider.steps.judge import differing_in
from airflow_backfill_provider.steps.report import conclude
from airflow_backfill_provider.steps.samples import SAMPLE_EVENT
from airflow_backfill_provider.warehouses.base import StorageItem

RANGE = {"start_date": DAYS[0], "end_date": DAYS[2]}
TARGET = {"table": "analytics.orders", "partition_by": "order_date", "key": ["order_id"]}


def kept(world: World) -> list[StorageItem]:
    return [item for item in world.warehouse.storage() if item.kind == "sample"]


def everything_told(world: World, caplog: pytest.LogCaptureFixture) -> str:
    files = [content.decode() for content in Report(world).files.values()]
    events = [json.dumps(event.detail) for event in world.ledger.events(world.id)]
    evidence = json.dumps(list(world.ledger.evidence(world.id).values()))
    return "\n".join([*files, *events, evidence, caplog.text])


def test_without_being_asked_for_no_row_is_kept(world: World) -> None:
    world.prepare(**RANGE)
    assert kept(world) == []
    assert "were kept in" not in Report(world).text


def test_rows_that_differ_lie_beside_the_stages_alone_and_go_with_them(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "airflow_backfill_provider")
    sql = RIGHT.replace(
        "THEN NULL ELSE amount END AS amount, note", "THEN amount * 1000 + 7 ELSE amount END AS amount, note"
    )
    world.spec = make_spec(samples=2, transform={"sql": sql})
    world.run(**RANGE)

    (item,) = kept(world)
    assert f"Rows of 2 keys that differ are kept in {item.location}" in caplog.text
    told = everything_told(world, caplog)
    assert not [value for value in ("110007", "210007") if value in told]
    text = Report(world).text
    assert f"Rows of 2 keys that differ, of the 3 partitions in which rows do, were kept in {item.location}" in text
    assert "Their values are not in this report." in text
    clean_up(world.ledger, world.warehouse, "warehouse", now=datetime.now(UTC) + timedelta(days=8), by="tester")
    assert kept(world) == []


def test_of_many_partitions_a_few_are_read_at_equal_distances(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "_FEW", 2)
    world.spec = make_spec(samples=2, samples_in_report=True)
    world.run(start_date=DAYS[0], end_date=DAYS[3])
    differing = [key for key in DAYS[:4] if differing_in(world.ledger.evidence(world.id)[key])]
    assert len(differing) > 2
    rows = Report(world).rows("samples.csv")
    assert {row["order_date"] for row in rows} <= {differing[0], differing[len(differing) // 2]}
    assert len({row["key"] for row in rows}) == 2


def test_where_a_few_partitions_have_too_few_rows_that_differ_more_are_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "_FEW", 1)
    world.spec = make_spec(samples=1000, samples_in_report=True)
    world.run(start_date=DAYS[0], end_date=DAYS[3])
    counts = [differing_in(world.ledger.evidence(world.id)[key]) for key in DAYS[:4]]
    assert len({row["key"] for row in Report(world).rows("samples.csv")}) == sum(counts) > counts[0]


def test_in_the_report_the_old_row_stands_before_the_new_one_and_sensitive_columns_nowhere(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "airflow_backfill_provider")
    world.spec = make_spec(samples=20, samples_in_report=True, target={**TARGET, "sensitive": ["NOTE"]})
    world.run(**RANGE)
    rows = Report(world).rows("samples.csv")
    assert sorted((row["side"], row["order_id"], row["amount"]) for row in rows) == [
        *[("new", str(order), "") for order in (0, 100, 200)],
        *[("old", str(order), str(order + 10)) for order in (0, 100, 200)],
    ]
    assert [row["side"] for row in rows] == ["old", "new"] * 3
    assert "note 100" not in everything_told(world, caplog)
    assert "Sensitive columns are in no sample: NOTE." in Report(world).text
    assert all("210" not in json.dumps(row) for row in Report(world).rows("audit.csv"))


def test_of_partitions_that_are_rejected_there_is_a_sample_which_a_later_one_replaces(world: World) -> None:
    everywhere = RIGHT.replace("ELSE amount END", "ELSE amount + 1 END")
    world.spec = make_spec(samples=3, transform={"sql": everywhere}, compare=[{"row_diff": {"max_changed": 1}}])
    with pytest.raises(ValidationFailed):
        world.prepare(**RANGE)
    (first,) = kept(world)
    assert conclude(world.work()).backfill.backfill_id == first.backfill_id
    world.spec = make_spec(samples=3, transform={"sql": everywhere}, compare=[{"row_diff": {"max_changed": 6}}])
    world.prepare(**RANGE)
    (second,) = kept(world)
    assert second.location != first.location
    details = [event.detail for event in world.ledger.events(world.id, SAMPLE_EVENT)]
    assert [(one["keys"], "values" in one) for one in details] == [(3, False)] * 2


def test_a_sample_that_cannot_be_kept_stops_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> None:
        raise WarehouseError("no space left")

    monkeypatch.setattr(type(world.warehouse), "keep_sample", full)
    world.spec = make_spec(samples=3)
    world.prepare(**RANGE)
    assert world.publish().published
    assert "No sample of the rows that differ was kept: no space left" in caplog.text


@pytest.mark.parametrize("shown", [False, True], ids=["by default", "samples_in_report"])
def test_keys_in_conflict_are_named_only_where_the_spec_asks_for_rows_and_always_listed_by_the_sql(
    world: World, caplog: pytest.LogCaptureFixture, shown: bool
) -> None:
    caplog.set_level(logging.DEBUG, "airflow_backfill_provider")
    doubled = RIGHT.replace(
        "order_id,", "CASE WHEN order_id = 100 THEN order_id * 90 + 1 ELSE order_id END AS order_id,"
    )
    rows = {"samples": 2, "samples_in_report": True} if shown else {}
    world.spec = make_spec(transform={"sql": doubled}, compare=[], **rows)
    with pytest.raises(ValidationFailed, match=r"no staged order_id outside the range: fail.*SQL: ") as failed:
        world.prepare(**RANGE)
    assert ("order_id=9001" in str(failed.value)) is shown
    assert ("order_id=9001" in everything_told(world, caplog)) is shown
    assert ("order_id=9001" in Report(world).text) is shown
    (found,) = [one for one in world.ledger.evidence(world.id)[None] if one["kind"] == "key_outside_range"]
    assert world.engine.staged_rows(found["sql"]) == [(9001,)]


def test_a_key_that_is_sensitive_is_named_in_no_message(world: World) -> None:
    doubled = RIGHT.replace("order_id,", "CASE WHEN order_id = 100 THEN 9001 ELSE order_id END AS order_id,")
    world.spec = make_spec(
        target={**TARGET, "sensitive": ["order_id"]},
        transform={"sql": doubled},
        compare=[],
        samples=2,
        samples_in_report=True,
    )
    with pytest.raises(ValidationFailed, match="no staged order_id outside the range") as failed:
        world.prepare(**RANGE)
    assert "9001" not in str(failed.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"samples": -1}, "greater than or equal to 0"),
        ({"samples_in_report": True}, "samples_in_report: true needs samples"),
        ({"target": {**TARGET, "sensitive": ["order_date"]}}, "order_date is the partition column"),
    ],
)
def test_a_sample_that_says_nothing_or_too_much_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        make_spec(**changes)


def test_a_sensitive_column_that_is_not_there_is_refused_when_the_plan_is_made(world: World) -> None:
    world.spec = make_spec(samples=3, target={**TARGET, "sensitive": ["nott"]})
    with pytest.raises(SpecError, match=r"target.sensitive names nott, but analytics.orders has no such column"):
        world.scope(**RANGE, mode="plan")
