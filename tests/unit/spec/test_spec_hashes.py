from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_backfill_provider.spec.hashes import canonical_json, intent_hash, spec_hash
from airflow_backfill_provider.spec.model import BackfillSpec

KEYS = ["2013-02-01", "2013-02-02"]


def spec(**changes: Any) -> BackfillSpec:
    """``transform__sql="…"`` changes one nested field."""
    document: dict[str, Any] = {
        "name": "fct_orders",
        "target": {"table": "analytics.fct_orders", "partition_by": "order_date", "key": ["order_id"]},
        "transform": {"sql": "SELECT 1", "file": "a.sql", "params": {"rate": 1}},
        "compute": {"conn_id": "warehouse"},
    }
    for name, value in changes.items():
        outer, _, inner = name.partition("__")
        if inner:
            document[outer] = document.get(outer, {}) | {inner: value}
        else:
            document[outer] = value
    return BackfillSpec.model_validate(document)


DECIDES_ROWS = [
    {"transform__sql": "SELECT 2"},
    {"transform__sql": "SELECT 1 "},
    {"transform__params": {"rate": 2}},
    {"transform__params": {"rate": "1"}},
    {"transform__params": {}},
    {"transform__logical_date": "start"},
    {"target__table": "analytics.fct_order"},
    {"target__partition_by": "day"},
    {"target__key": ["order_id", "line"]},
    {"target__grain": "month"},
    {"target__timezone": "Asia/Tokyo"},
    {"target__column_timezone": "Asia/Tokyo"},
    {"target__column_format": "yyyymmdd"},
    {"source": {"table": "raw.orders", "partition_by": "d", "cutoff": {"column": "ingested_at"}}},
]
DECIDES_NO_ROWS = [
    {"name": "other"},
    {"checks": [{"not_null": {"column": "a"}}]},
    {"compare": [{"row_diff": {"max_added": 0}}]},
    {"compute__conn_id": "other"},
    {"compute__max_concurrency": 2},
    {"compute__queue": "heavy"},
    {"compute__priority_weight": 5},
    {"compute__statement_timeout": "5m"},
    {"compute__keep_stages_for": "5d"},
    {"compute__max_rows": 5},
    {"compute__max_runtime": "5m"},
    {"compute__max_staging_bytes": "5 GiB"},
    {"throttle": [{"name": "night", "quiet_hours": "22:00-06:00"}]},
    {"publish__lock_timeout": "5m"},
    {"rollback__keep_for": "5d"},
    {"approval": {"required": "always"}},
    {"compute__fail_fast": False},
    {"trial__review": True},
    {"trial__enabled": False},
    {"trial__partition": "2013-02-02"},
    {"control_period": {"partitions": ["2013-01-31"]}},
    {"report_queries": [{"name": "total", "sql": "SELECT 1", "change_between": [0, 0]}]},
    {"schema_gate": {"mode": "discard_columns"}},
    {"range": {"affected_when": "amount > 0"}},
    {"allow_empty": True},
    {"samples": 20},
    {"samples": 20, "samples_in_report": True},
    {"target__sensitive": ["a"]},
    {"target__outlet": "orders"},
    {"kind": "first_load"},
    {"kind": "new_column", "new_columns": ["tax"]},
    {"source": {"table": "raw.orders", "partition_by": "d"}},
    {"source": {"table": "raw.orders", "partition_by": "d", "on_moved": "warn", "history": [{"table": "dim.c"}]}},
]


@pytest.mark.parametrize("change", DECIDES_ROWS, ids=str)
def test_what_decides_staged_rows_changes_both_hashes(change: dict[str, Any]) -> None:
    assert intent_hash(spec(**change), KEYS) != intent_hash(spec(), KEYS)
    assert spec_hash(spec(**change)) != spec_hash(spec())


@pytest.mark.parametrize("change", DECIDES_NO_ROWS, ids=str)
def test_what_decides_no_staged_row_changes_only_the_hash_of_the_spec(change: dict[str, Any]) -> None:
    assert intent_hash(spec(**change), KEYS) == intent_hash(spec(), KEYS)
    assert spec_hash(spec(**change)) != spec_hash(spec())


def test_every_field_of_a_spec_is_known_to_decide_rows_or_not_to() -> None:
    judged = {name.partition("__")[0] for change in DECIDES_ROWS + DECIDES_NO_ROWS for name in change}
    assert set(BackfillSpec.model_fields) - judged == set()


def test_where_the_sql_file_lies_changes_neither_hash() -> None:
    moved = spec(transform__file="b.sql")
    assert (intent_hash(moved, KEYS), spec_hash(moved)) == (intent_hash(spec(), KEYS), spec_hash(spec()))


def test_the_set_of_keys_is_part_of_the_intent_and_their_order_is_not() -> None:
    assert intent_hash(spec(), reversed(KEYS)) == intent_hash(spec(), KEYS)  # type: ignore[arg-type]
    assert intent_hash(spec(), KEYS[:1]) != intent_hash(spec(), KEYS)
    assert intent_hash(spec(), [",".join(KEYS)]) != intent_hash(spec(), KEYS)


@settings(deadline=None)
@given(st.text(min_size=1, max_size=20), st.text(min_size=1, max_size=20))
def test_two_sql_texts_share_an_intent_only_when_they_are_the_same(one: str, other: str) -> None:
    same = intent_hash(spec(transform__sql=one), KEYS) == intent_hash(spec(transform__sql=other), KEYS)
    assert same == (one == other)


@settings(deadline=None)
@given(
    st.dictionaries(st.text(max_size=5), st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text())
)
def test_a_spec_that_went_through_json_keeps_its_hashes(params: dict[str, Any]) -> None:
    written = spec(transform__params=params)
    read = BackfillSpec.model_validate_json(written.model_dump_json())
    assert (spec_hash(read), intent_hash(read, KEYS)) == (spec_hash(written), intent_hash(written, KEYS))


def test_canonical_json_has_one_form_and_no_nan() -> None:
    assert canonical_json({"b": [1, "é"], "a": None}) == '{"a":null,"b":[1,"\\u00e9"]}'
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))
