"""A step is told whether Airflow will try its task again."""

from __future__ import annotations

from hand_run import HandRun
from operators_world import OF_THE_DAY, Shop, wired


def test_the_last_try_of_a_task_is_told_from_those_before_it(shop: Shop) -> None:
    run = HandRun(wired(shop.spec, request=OF_THE_DAY))
    task = run.dag.task_dict["whole"]
    task.retries = 2
    told = []
    for attempt in (1, 2, 3):
        with task.work(run.context(task, attempt=attempt)) as work:
            told.append(work.is_last_try)
    assert told == [False, False, True]
