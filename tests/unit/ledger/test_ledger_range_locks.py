from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledger_world import TARGET, B, bring_backfill_to, days, new_backfill, open_backfill, put_backfill_in, window

from airflow_backfill_provider.errors import LedgerError, PublishRefused, RangeLocked
from airflow_backfill_provider.ledger.range_locks import first_uncovered, union
from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.windows import Value, list_partition

SPANS = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 2)).map(lambda span: (span[0], span[0] + span[1])), max_size=8
)


def test_the_second_of_two_overlapping_backfills_is_refused_with_the_owners_id(ledger: Ledger):
    open_backfill(ledger, "jan_a", 1, 10)
    with pytest.raises(RangeLocked, match="'jan_a' owns") as refused:
        open_backfill(ledger, "jan_b", 5, 15)
    assert refused.value.owner == "jan_a"
    assert "airflow safe-backfill abandon jan_a --reason" in str(refused.value)
    assert ledger.find_backfill("jan_b") is None
    assert ledger.lock_owner(TARGET, [window(11, 15)]) is None


@pytest.mark.parametrize(
    ("first", "last", "changes"),
    [(4, 6, {}), (1, 3, {"target": "analytics.other"})],
    ids=["touching windows", "another target"],
)
def test_disjoint_ranges_are_owned_side_by_side(ledger: Ledger, first: int, last: int, changes: dict[str, str]):
    open_backfill(ledger, "a", 1, 3)
    open_backfill(ledger, "b", first, last, **changes)
    assert ledger.holds_range("a", [window(1, 3)])
    assert ledger.holds_range("b", [window(first, last)])


@pytest.mark.parametrize("order", [("outer", "inner"), ("inner", "outer")])
def test_a_gap_in_the_range_belongs_to_whoever_claims_it(ledger: Ledger, order: tuple[str, str]):
    partitions = {"outer": (*days(1, 3), *days(7, 9)), "inner": days(4, 6)}
    for backfill_id in order:
        ledger.open_backfill(new_backfill(backfill_id, partitions[backfill_id]), by="ana")
    assert ledger.lock_owner(TARGET, [window(4, 4)]) == "inner"
    assert ledger.lock_owner(TARGET, [window(8, 8)]) == "outer"
    assert not ledger.holds_range("outer", [window(1, 9)])


def test_windows_claimed_in_pieces_are_owned_as_a_whole(ledger: Ledger):
    ledger.open_backfill(new_backfill("a", days(1, 6), spans=[window(4, 6), window(1, 3)]), by="ana")
    assert ledger.holds_range("a", [window(2, 5)])


def test_two_tenants_share_a_range_and_no_tenant_means_all_of_them(ledger: Ledger):
    open_backfill(ledger, "north", 1, 3, tenant="north")
    open_backfill(ledger, "south", 1, 3, tenant="south")
    assert ledger.lock_owner(TARGET, [window(1, 1)], "south") == "south"
    assert ledger.lock_owner(TARGET, [window(1, 1)], "east") is None
    with pytest.raises(RangeLocked):
        open_backfill(ledger, "everyone", 3, 5)
    open_backfill(ledger, "everyone", 4, 5)
    with pytest.raises(RangeLocked):
        open_backfill(ledger, "east", 5, 6, tenant="east")


REGIONS = {key: list_partition(key) for key in ("eu", "us", "asia")}


def open_list(ledger: Ledger, backfill_id: str, *keys: str) -> None:
    ledger.open_backfill(new_backfill(backfill_id, [REGIONS[key] for key in keys]), by="ana")


def test_a_value_belongs_to_one_backfill_and_other_values_to_others(ledger: Ledger):
    open_list(ledger, "a", "eu", "us")
    with pytest.raises(RangeLocked, match="'a' owns the value 'us'") as refused:
        open_list(ledger, "b", "asia", "us")
    assert refused.value.owner == "a"
    assert ledger.find_backfill("b") is None
    open_list(ledger, "b", "asia")
    assert ledger.holds_range("a", [Value("eu"), Value("us")])
    assert not ledger.holds_range("a", [Value("eu"), Value("asia")])
    assert not ledger.holds_range("a", [window(1, 1)])
    assert ledger.lock_owner(TARGET, [Value("asia")]) == "b"
    assert ledger.lock_owner(TARGET, [Value("nowhere")]) is None


@pytest.mark.parametrize("first", ["windows", "values"])
def test_a_window_and_a_value_of_one_target_always_collide(ledger: Ledger, first: str):
    claims = [lambda: open_backfill(ledger, "by_time", 1, 3), lambda: open_list(ledger, "by_value", "eu")]
    one, other = claims if first == "windows" else reversed(claims)
    one()
    with pytest.raises(RangeLocked):
        other()
    open_backfill(ledger, "elsewhere", 1, 3, target="analytics.other")


def test_values_are_given_back_and_claimed_again(ledger: Ledger):
    open_list(ledger, "a", "eu")
    bring_backfill_to(ledger, "a", B.COMPLETED)
    open_list(ledger, "b", "eu")
    with pytest.raises(RangeLocked, match="'b' owns"):
        ledger.claim_range("a", [Value("eu")], by="ana")
    bring_backfill_to(ledger, "b", B.COMPLETED)
    ledger.claim_range("a", [Value("eu")], by="ana")
    events = ledger.events("a")
    assert events[-1].detail == {"spans": ["the value 'eu'"]}
    ledger.claim_range("a", [Value("eu")], by="ana")
    assert ledger.events("a") == events


def test_a_list_backfill_whose_value_is_not_claimed_is_not_opened(ledger: Ledger):
    with pytest.raises(LedgerError, match="a partition the value 'us', which no span to claim covers"):
        ledger.open_backfill(new_backfill("a", list(REGIONS.values()), spans=[Value("eu")]), by="ana")


def test_the_partitions_of_a_list_come_back_with_their_values(ledger: Ledger):
    open_list(ledger, "a", "us", "eu")
    assert {key: record.span for key, record in ledger.partitions("a").items()} == {
        "eu": Value("eu"),
        "us": Value("us"),
    }


@pytest.mark.parametrize("end", [B.COMPLETED, B.ROLLED_BACK, B.EXPIRED])
def test_an_ended_backfill_gives_its_range_to_the_next(ledger: Ledger, end: B):
    open_backfill(ledger, "a", 1, 3)
    bring_backfill_to(ledger, "a", end)
    assert ledger.lock_owner(TARGET, [window(1, 3)]) is None
    open_backfill(ledger, "b", 2, 4)


def test_a_completed_backfill_claims_its_range_again_for_a_rollback_and_gives_it_back(ledger: Ledger):
    open_backfill(ledger, "a", 1, 3)
    bring_backfill_to(ledger, "a", B.COMPLETED)
    assert ledger.begin_way_back("a", [window(1, 3)], by="ana")
    assert ledger.holds_range("a", [window(1, 3)])
    assert not ledger.begin_way_back("a", [window(2, 3)], by="bob"), "it had begun"
    begun = [(event.by, event.detail["again"]) for event in ledger.events("a", "way_back.begun")]
    assert begun == [("ana", False), ("bob", True)], "either may work on it"
    with pytest.raises(RangeLocked):
        open_backfill(ledger, "b", 3, 3)
    ledger.end_way_back("a", by="ana")
    ledger.end_way_back("a", by="ana")
    assert not ledger.is_on_way_back("a")
    open_backfill(ledger, "b", 3, 3)
    with pytest.raises(RangeLocked, match="'b' owns"):
        ledger.begin_way_back("a", [window(1, 3)], by="ana")
    assert not ledger.holds_range("a", [window(1, 1)])


def test_a_backfill_that_is_completed_on_its_way_back_keeps_its_range_until_that_ends(ledger: Ledger):
    open_backfill(ledger, "a", 1, 3)
    bring_backfill_to(ledger, "a", B.PUBLISHED)
    assert ledger.begin_way_back("a", [window(1, 3)], by="ana"), "its range is its own already, its way back is not"
    ledger.move("a", B.COMPLETED, by="report")
    assert ledger.lock_owner(TARGET, [window(1, 3)]) == "a"
    assert ledger.events("a")[-1].detail["released_range"] is False
    ledger.move("a", B.ROLLED_BACK, by="rollback")
    assert ledger.lock_owner(TARGET, [window(1, 3)]) is None
    assert not ledger.is_on_way_back("a")


def test_the_end_of_a_way_back_takes_nothing_from_a_backfill_that_is_not_over(ledger: Ledger):
    open_backfill(ledger, "a", 1, 3)
    put_backfill_in(ledger, "a", B.PUBLISHED_UNVERIFIED)
    ledger.begin_way_back("a", [window(1, 3)], by="ana")
    ledger.end_way_back("a", by="ana")
    assert ledger.holds_range("a", [window(1, 3)])
    ledger.move("a", B.COMPLETED, by="ana")
    assert not ledger.holds_range("a", [window(1, 3)])


def test_what_is_on_its_way_back_does_not_begin_to_publish(ledger: Ledger):
    open_backfill(ledger, "a", 1, 3)
    put_backfill_in(ledger, "a", B.VALIDATED)
    ledger.begin_way_back("a", [window(1, 3)], by="rollback")
    events = ledger.events("a")
    with pytest.raises(PublishRefused, match="is on its way back"):
        ledger.move("a", B.PUBLISHING, by="publish")
    assert (ledger.backfill("a").state, ledger.events("a")) == (B.VALIDATED, events)
    ledger.end_way_back("a", by="rollback")
    ledger.move("a", B.PUBLISHING, by="publish")


def test_what_publishes_begins_no_way_back_unless_its_publish_is_dead(ledger: Ledger):
    open_backfill(ledger, "a", 1, 3)
    put_backfill_in(ledger, "a", B.PUBLISHING)
    events = ledger.events("a")
    with pytest.raises(PublishRefused, match="is publishing by now"):
        ledger.begin_way_back("a", [window(1, 3)], by="rollback")
    assert (ledger.is_on_way_back("a"), ledger.events("a")) == (False, events)
    assert ledger.begin_way_back("a", [window(1, 3)], by="rollback", publish_is_dead=True)
    assert ledger.backfill("a").state is B.VALIDATED
    moved = ledger.events("a", "backfill.moved")[-1]
    assert (moved.by, moved.detail["from"], moved.detail["to"]) == ("rollback", B.PUBLISHING, B.VALIDATED)


def test_no_window_is_never_owned_and_never_claimed(ledger: Ledger):
    open_backfill(ledger, "a", 1, 3)
    assert not ledger.holds_range("a", [])
    assert ledger.lock_owner(TARGET, []) is None
    with pytest.raises(LedgerError, match="claims no span"):
        ledger.claim_range("a", [], by="ana")


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(claimed=SPANS, asked=SPANS)
def test_cover_and_union_agree_with_counting_days(claimed: list[tuple[int, int]], asked: list[tuple[int, int]]):
    merged = union([window(*span) for span in claimed])
    days_claimed = {day for first, last in claimed for day in range(first, last + 1)}
    days_asked = {day for first, last in asked for day in range(first, last + 1)}
    assert (first_uncovered(merged, [window(*span) for span in asked]) is None) == (days_asked <= days_claimed)
    assert sum((found.end - found.start).days for found in merged) == len(days_claimed)
