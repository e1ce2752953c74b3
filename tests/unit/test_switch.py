from __future__ import annotations

import pytest

from airflow_backfill_provider.switch import VARIABLE, decide


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
