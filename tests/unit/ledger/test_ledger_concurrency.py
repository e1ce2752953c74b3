from __future__ import annotations

import time
from collections.abc import Callable

from ledger_processes import kill_after_every_statement, run_together
from ledger_world import STAGE, TARGET, B, P, open_backfill, stage, window

from airflow_backfill_provider.errors import LedgerError, RangeLocked, TransitionRefused
from airflow_backfill_provider.ledger.records import FinishedStage
from airflow_backfill_provider.ledger.store import Ledger


def test_of_two_processes_that_claim_overlapping_ranges_at_once_one_wins(ledger: Ledger, ledger_url: str):
    def claim(number: int) -> Callable[[Ledger], list[str]]:
        def body(ledger: Ledger) -> list[str]:
            owners = []
            for n in range(20):
                mine = f"bf{number}-{n}"
                try:
                    open_backfill(ledger, mine, n * 10 + 1 + number, n * 10 + 5 + number)
                    owners.append(mine)
                except RangeLocked as refused:
                    owners.append(refused.owner)
            return owners

        return body

    first, second = run_together(ledger_url, [claim(0), claim(1)])
    assert first == second, "the loser is told who won"
    for n, winner in enumerate(first):
        [loser] = {f"bf0-{n}", f"bf1-{n}"} - {winner}
        assert ledger.find_backfill(loser) is None
        assert ledger.lock_owner(TARGET, [window(n * 10 + 1, n * 10 + 6)]) == winner


def test_of_two_processes_that_open_one_backfill_at_once_one_wins(ledger: Ledger, ledger_url: str):
    def open_on(target: str) -> Callable[[Ledger], list[bool]]:
        def body(ledger: Ledger) -> list[bool]:
            won = []
            for n in range(20):
                try:
                    open_backfill(ledger, f"bf{n}", n * 10 + 1, n * 10 + 5, target=target)
                    won.append(True)
                except LedgerError:
                    won.append(False)
            return won

        return body

    first, second = run_together(ledger_url, [open_on("one"), open_on("other")])
    for n, (one, other) in enumerate(zip(first, second, strict=True)):
        assert one is not other
        assert ledger.backfill(f"bf{n}").target == ("one" if one else "other")


def test_of_two_processes_that_judge_one_partition_at_once_one_wins(ledger: Ledger, ledger_url: str):
    open_backfill(ledger, "bf1", 1, 20)
    keys = list(ledger.partitions("bf1"))
    for key in keys:
        stage(ledger, "bf1", key)

    def judge(verdict: P) -> Callable[[Ledger], list[bool]]:
        def body(ledger: Ledger) -> list[bool]:
            won = []
            for key in keys:
                try:
                    ledger.move_partitions("bf1", [key], verdict, by="judge")
                    won.append(True)
                except TransitionRefused:
                    won.append(False)
            return won

        return body

    passed, failed = run_together(ledger_url, [judge(P.VALIDATED), judge(P.REJECTED)])
    partitions = ledger.partitions("bf1")
    for key, one, other in zip(keys, passed, failed, strict=True):
        assert one is not other
        assert partitions[key].state is (P.VALIDATED if one else P.REJECTED)
    recorded = [event.detail["keys"] for event in ledger.events("bf1") if event.action == "partitions.moved"]
    assert sorted(recorded) == [[key] for key in keys], "each verdict is on record once"


def test_of_two_processes_that_stage_one_partition_at_once_only_the_newer_attempt_records(
    ledger: Ledger, ledger_url: str
):
    open_backfill(ledger, "bf1", 1, 20)
    keys = list(ledger.partitions("bf1"))

    def stage_all(ledger: Ledger) -> list[tuple[int, bool]]:
        recorded = []
        for key in keys:
            attempt = ledger.start_staging("bf1", [key], owner="w")[key]
            time.sleep(0.01)
            try:
                ledger.finish_staging(
                    "bf1", [FinishedStage(key, attempt, **{**STAGE, "location": str(attempt)})], by="w"
                )
                recorded.append((attempt, True))
            except LedgerError:
                recorded.append((attempt, False))
        return recorded

    first, second = run_together(ledger_url, [stage_all, stage_all])
    for key, *answers in zip(keys, first, second, strict=True):
        record = ledger.partitions("bf1")[key]
        assert [attempt for attempt, _ in sorted(answers)] == [1, 2]
        assert (2, True) in answers
        assert (record.attempt, record.state, record.location) == (2, P.STAGED, "2")


def test_four_processes_make_a_hundred_moves_each_and_none_is_turned_away(ledger: Ledger, ledger_url: str):
    for number in range(4):
        open_backfill(ledger, f"bf{number}", number * 3 + 1, number * 3 + 3)

    def move(backfill_id: str) -> Callable[[Ledger], None]:
        def body(ledger: Ledger) -> None:
            for _ in range(50):
                ledger.move(backfill_id, B.RUNNING, by="p")
                ledger.move(backfill_id, B.PLANNED, by="p")

        return body

    run_together(ledger_url, [move(f"bf{number}") for number in range(4)])
    for number in range(4):
        assert len(ledger.events(f"bf{number}")) == 101


def test_readers_see_a_bulk_move_whole_or_not_at_all_and_are_never_turned_away(ledger: Ledger, ledger_url: str):
    open_backfill(ledger, "bf1", 1, 300)
    keys = list(ledger.partitions("bf1"))

    def write(ledger: Ledger) -> list[list[int]]:
        for _ in range(15):
            ledger.move_partitions("bf1", keys, P.SKIPPED, by="p")
            ledger.move_partitions("bf1", keys, P.PENDING, by="p")
        return []

    def read(ledger: Ledger) -> list[list[int]]:
        return [list(ledger.counts("bf1").values()) for _ in range(60)]

    _, *seen = run_together(ledger_url, [write, read, read])
    assert seen == [[[300]] * 60] * 2


def test_a_backfill_opened_by_a_process_that_is_killed_is_not_half_there(ledger: Ledger, ledger_url: str):
    killed = 0
    for _ in kill_after_every_statement(ledger_url, open_backfill):
        killed += 1
        assert ledger.find_backfill("bf1") is None
        assert ledger.lock_owner(TARGET, [window(1, 3)]) is None
    assert killed > 8, "statements and the moment before COMMIT"
    assert ledger.counts("bf1") == {P.PENDING: 3}
    assert ledger.holds_range("bf1", [window(1, 3)])
    assert len(ledger.events("bf1")) == 1


def test_an_end_recorded_by_a_process_that_is_killed_keeps_state_lock_and_trail_together(
    ledger: Ledger, ledger_url: str
):
    open_backfill(ledger)
    killed = 0
    for _ in kill_after_every_statement(ledger_url, lambda ledger: ledger.move("bf1", B.EXPIRED, by="p")):
        killed += 1
        assert ledger.backfill("bf1").state is B.PLANNED
        assert ledger.holds_range("bf1", [window(1, 3)])
        assert len(ledger.events("bf1")) == 1
    assert killed > 4, "statements and the moment before COMMIT"
    assert ledger.backfill("bf1").state is B.EXPIRED
    assert not ledger.holds_range("bf1", [window(1, 3)])
    assert len(ledger.events("bf1")) == 2
