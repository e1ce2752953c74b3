from __future__ import annotations

from typing import Any

import pytest

from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.spec.transforms import SqlTransform
from airflow_backfill_provider.transform import render
from airflow_backfill_provider.windows import Grain, list_partition, parse_key

DAY = parse_key("2013-02-05", Grain.DAY)


def rendered(sql: str, **settings: Any) -> str:
    return render(SqlTransform(sql=sql, file="a.sql", **settings), DAY)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ data_interval_start }}", "2013-02-05 00:00:00+00:00"),
        ("{{ data_interval_end }}", "2013-02-06 00:00:00+00:00"),
        ("{{ data_interval_start | ds }}", "2013-02-05"),
        ("{{ data_interval_end | ds_nodash }}", "20130206"),
        ("{{ data_interval_start | ts }}", "2013-02-05T00:00:00+00:00"),
        ("{{ data_interval_start | ts_nodash }}", "20130205T000000"),
        ("{{ data_interval_start | ts_nodash_with_tz }}", "20130205T000000+0000"),
        ("{{ data_interval_start.strftime('%Y/%m') }}", "2013/02"),
        ("{{ data_interval_start.to_date_string() }}", "2013-02-05"),
        ("{{ data_interval_start.subtract(days=7) | ds }}", "2013-01-29"),
        ("{{ (data_interval_end - macros.timedelta(days=1)) | ds }}", "2013-02-05"),
        ("{{ macros.ds_add(data_interval_start | ds, -5) }}", "2013-01-31"),
        ("{{ macros.ds_format(data_interval_start | ds, '%Y-%m-%d', '%d.%m.%y') }}", "05.02.13"),
        ("{{ macros.datetime(2013, 1, 2) | ds }}", "2013-01-02"),
        ("{{ macros.json.dumps([1]) }}", "[1]"),
        ("{{ macros.datetime_diff_for_humans(data_interval_start, data_interval_end) }}", "1 day before"),
        ("{% set d = data_interval_start %}{% for n in range(2) %}{{ d.year + n }} {% endfor %}", "2013 2014 "),
        ("{% do params %}no template at all", "no template at all"),
    ],
)
def test_a_template_renders_as_airflow_renders_it_for_that_interval(template: str, text: str) -> None:
    assert rendered(template) == text


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{{ partition_key }}", "2013-02-05"),
        ("{{ data_interval_start }}", "2013-02-04 15:00:00+00:00"),
        ("{{ data_interval_start | ds }}", "2013-02-04"),  # the date in UTC, as Airflow's filter gives it
        ("{{ data_interval_start.in_timezone('Asia/Tokyo') | ds }}", "2013-02-05"),
        ("{{ data_interval_end.in_timezone('Asia/Tokyo') | ds_nodash }}", "20130206"),
        ("{{ data_interval_start.in_timezone('Asia/Tokyo') }}", "2013-02-05 00:00:00+09:00"),
    ],
)
def test_the_bounds_of_a_local_day_are_instants_in_utc_until_the_template_says_otherwise(
    template: str, text: str
) -> None:
    assert render(SqlTransform(sql=template), parse_key("2013-02-05", Grain.DAY, "Asia/Tokyo")) == text


def test_a_list_partition_gives_its_value_and_its_key() -> None:
    sql = "WHERE region = '{{ partition_value }}' -- {{ partition_key }}"
    assert render(SqlTransform(sql=sql), list_partition("eu west")) == "WHERE region = 'eu west' -- eu west"


@pytest.mark.parametrize("name", ["data_interval_start", "data_interval_end", "ds", "logical_date"])
def test_a_list_partition_has_no_time_and_the_refusal_says_what_it_has(name: str) -> None:
    with pytest.raises(TransformRefused, match=rf"'{name}' \(line 1\).*value of a list.*partition_value"):
        render(SqlTransform(sql=f"{{{{ {name} }}}}"), list_partition("eu"))


def test_a_run_of_partitions_has_no_key_in_common() -> None:
    with pytest.raises(TransformRefused, match="'partition_key'"):
        rendered("{{ partition_key }}", scope="range")


def test_a_window_has_no_value() -> None:
    with pytest.raises(TransformRefused, match=r"'partition_value' .*does not have.*data_interval_start"):
        rendered("{{ partition_value }}")


@pytest.mark.parametrize(("bound", "ds"), [("start", "2013-02-05"), ("end", "2013-02-06")])
def test_ds_means_the_bound_that_the_spec_names(bound: str, ds: str) -> None:
    text = rendered("{{ ds }} {{ ds_nodash }} {{ ts }} {{ ts_nodash }} {{ logical_date | ds }}", logical_date=bound)
    assert text == f"{ds} {ds.replace('-', '')} {ds}T00:00:00+00:00 {ds.replace('-', '')}T000000 {ds}"


@pytest.mark.parametrize(
    "template",
    ["{{ ds }}", "{{ ts_nodash }}", "{{ logical_date }}", "{% if false %}{{ ds }}{% endif %}", "{{ ds is defined }}"],
)
def test_ds_is_refused_until_the_spec_says_what_it_means(template: str) -> None:
    with pytest.raises(
        TransformRefused, match=r"a\.sql uses '.*' \(line 2\).*Set transform\.logical_date to start or end"
    ):
        rendered("SELECT\n" + template)


@pytest.mark.parametrize(
    "name", ["dag_run", "ti", "var", "conn", "run_id", "prev_data_interval_end_success", "my_macro"]
)
def test_a_name_that_a_backfill_does_not_have_is_refused_with_its_line(name: str) -> None:
    with pytest.raises(TransformRefused, match=rf"a\.sql uses '{name}' \(line 3\), which a backfill does not have"):
        rendered(f"SELECT\n1,\n{{{{ {name} }}}}")


def test_every_unknown_name_is_listed_at_once() -> None:
    with pytest.raises(TransformRefused, match=r"'one' \(line 1\), 'two' \(line 2\)"):
        rendered("{{ one }}\n{{ two }} {{ one }}")


def test_a_param_that_the_spec_lacks_is_refused_with_its_line() -> None:
    with pytest.raises(TransformRefused, match=r"a\.sql, line 2: cannot be rendered.*no attribute 'rate'"):
        rendered("\n{{ params.rate }}")


@pytest.mark.parametrize(
    "template",
    [
        "{{ macros.datetime.now() }}",
        "{{ macros.datetime.utcnow() }}",
        "{{ data_interval_start.now() }}",
        "{{ data_interval_start.is_past() }}",
        "{{ data_interval_start.today() }}",
        "{{ macros.random() }}",
        "{{ macros.uuid.uuid4() }}",
        "{{ macros.time.time() }}",
        "{{ [1, 2] | random }}",
        "{{ lipsum() }}",
    ],
)
def test_a_template_that_another_run_would_render_differently_is_refused(template: str) -> None:
    with pytest.raises(TransformRefused):
        rendered(template)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ macros.ds_add.__globals__ }}",
        "{{ macros.json.dumps.__globals__ }}",
        "{{ params.__class__ }}",
        "{{ data_interval_start.__init__.__globals__ }}",
        "{{ self.__init__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ range(10000000) | list }}",
        "{{ 1 / 0 }}",
        "{{ nothing",
        "{% if %}",
    ],
)
def test_a_template_cannot_leave_the_sandbox_and_fails_as_a_refusal(template: str) -> None:
    with pytest.raises(TransformRefused, match=r"a\.sql"):
        rendered(template)


def test_a_template_cannot_change_the_spec() -> None:
    transform = SqlTransform(sql="{% do params.update({'a': 2}) %}{{ params.a }}", params={"a": 1})
    assert render(transform, DAY) == "2"
    assert transform.params == {"a": 1}


def test_a_param_keeps_the_characters_it_has() -> None:
    assert rendered("{{ params.name }}", params={"name": "O'Brien {{ ds }}"}) == "O'Brien {{ ds }}"
