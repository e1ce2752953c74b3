from __future__ import annotations

import pytest

from airflow_backfill_provider.errors import SwitchUnreadable
from airflow_backfill_provider.switch import ALL, VARIABLE, decide, lifting, stopped, stopping


@pytest.mark.parametrize("value", ["run", " RUN ", "{}", '{"all": false}', '{"fct_orders": false}', '{"other": true}'])
def test_these_values_mean_run(value: str) -> None:
    assert decide(value, "fct_orders").go


@pytest.mark.parametrize(
    "value", ["stop", " Stop\n", '{"all": true}', '{"fct_orders": true}', '{"all": false, "fct_orders": true}']
)
def test_these_values_mean_stop(value: str) -> None:
    verdict = decide(value, "fct_orders")
    assert not verdict.go
    assert VARIABLE in verdict.reason


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "False",
        "0",
        "no",
        "true",
        " TRUE ",
        "[]",
        '{"all": "false"}',
        '{"all": 0}',
        "{",
        "null",
        "go",
        '{"all": true, "all": false}',
    ],
)
def test_what_cannot_be_read_means_stop_and_says_how_to_mend_it(value: str | None) -> None:
    verdict = decide(value, "fct_orders")
    assert not verdict.go
    assert f"airflow variables set {VARIABLE}" in verdict.reason


def test_all_stops_every_backfill_and_a_name_stops_that_one() -> None:
    assert not decide('{"all": true}', "a").go
    assert not decide('{"all": true}', "b").go
    assert not decide('{"a": true}', "a").go
    assert decide('{"a": true}', "b").go


READABLE = ["run", "stop", "{}", '{"all": true}', '{"all": false, "a": true}', '{"b": true}', '{"a": false, "b": true}']


@pytest.mark.parametrize("held", READABLE)
@pytest.mark.parametrize("name", [ALL, "a"])
def test_a_stop_lets_nothing_go_on_that_is_stopped(held: str, name: str) -> None:
    written = stopping(held, name)
    assert not decide(written, "a").go
    assert decide(written, "b").go == (decide(held, "b").go and name != ALL)


@pytest.mark.parametrize("held", READABLE)
@pytest.mark.parametrize("name", [ALL, "a"])
def test_lifting_a_stop_lets_nothing_go_on_that_another_switch_stops(held: str, name: str) -> None:
    others = set(stopped(held)) - {name}
    written = lifting(held, name)
    assert set(stopped(written)) == others
    assert decide(written, "a").go == (not others & {ALL, "a"})
    assert decide(written, "b").go == (not others & {ALL, "b"})


@pytest.mark.parametrize("held", [None, "", "true", '{"all": "false"}', '{"a": true'])
def test_what_cannot_be_read_is_never_written_over(held: str | None) -> None:
    for write in (stopping, lifting):
        with pytest.raises(SwitchUnreadable, match=f"airflow variables set {VARIABLE}"):
            write(held, "a")


def test_a_stopped_backfill_is_told_the_command_that_lifts_exactly_that_stop() -> None:
    assert "airflow safe-backfill resume a" in decide('{"a": true}', "a").reason
    assert "airflow safe-backfill resume --all" in decide('{"all": true, "a": true}', "a").reason
