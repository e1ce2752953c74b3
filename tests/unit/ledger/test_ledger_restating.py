"""What backfills own now, for whoever reads the target: by a call, and by a view for other programs."""

from __future__ import annotations

from ledger_world import TARGET, B, bring_backfill_to, days, new_backfill, open_backfill, window
from sqlalchemy import inspect, text

from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.windows import Value, list_partition

VIEW = "safe_backfill_restating"


def test_a_window_is_restated_from_the_plan_to_the_end_and_each_owner_is_named(ledger: Ledger):
    open_backfill(ledger, "a", 1, 3)
    ledger.open_backfill(new_backfill("b", (*days(4, 4), *days(8, 9)), reason="refunds"), by="ana")
    bring_backfill_to(ledger, "b", B.RUNNING)
    assert [(one.backfill_id, one.span, one.state) for one in ledger.restating(TARGET, [window(3, 7)])] == [
        ("a", window(1, 3), B.PLANNED),
        ("b", window(4, 4), B.RUNNING),
    ]
    (owner,) = ledger.restating(TARGET, [window(2, 2)])
    assert str(owner).startswith("backfill a of fct_flights owns [2013-02-01T00:00:00Z, 2013-02-04T00:00:00Z) since ")
    assert ledger.restating(TARGET, [window(5, 7)]) == []
    assert ledger.restating("analytics.other", [window(1, 9)]) == []
    bring_backfill_to(ledger, "a", B.EXPIRED)
    assert ledger.restating(TARGET, [window(1, 3)]) == []


def test_values_of_a_list_are_restated_one_by_one(ledger: Ledger):
    ledger.open_backfill(new_backfill("eu", [list_partition("eu")]), by="ana")
    assert [one.backfill_id for one in ledger.restating(TARGET, [Value("us"), Value("eu")])] == ["eu"]
    assert ledger.restating(TARGET, [Value("us")]) == []


def test_the_view_has_a_row_for_each_claim_and_none_once_it_is_over(ledger: Ledger):
    ledger.open_backfill(new_backfill("b", (*days(1, 2), *days(8, 8)), reason="refunds"), by="ana")
    with ledger._engine.read() as connection:
        rows = connection.execute(text(f"SELECT * FROM {VIEW} ORDER BY window_start")).mappings().all()
        assert [column["name"] for column in inspect(connection).get_columns(VIEW)] == [
            "target", "tenant", "window_start", "window_end", "value", "since", "backfill_id", "name", "state", "reason",
            "requested_by", "dag_id", "run_id",
        ]  # fmt: skip
    assert [(str(row["window_start"])[:10], str(row["window_end"])[:10]) for row in rows] == [
        ("2013-02-01", "2013-02-03"),
        ("2013-02-08", "2013-02-09"),
    ]
    assert {(row["target"], row["state"], row["reason"], row["value"]) for row in rows} == {
        (TARGET, "planned", "refunds", None)
    }
    bring_backfill_to(ledger, "b", B.EXPIRED)
    with ledger._engine.read() as connection:
        assert connection.execute(text(f"SELECT count(*) FROM {VIEW}")).scalar_one() == 0
