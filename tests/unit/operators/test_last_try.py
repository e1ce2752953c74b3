"""A step is told whether Airflow will try its task again."""

from __future__ import annotations

import pytest
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


@pytest.mark.parametrize(("attempt", "is_last"), [(4, False), (5, False), (6, True)])
def test_a_clear_gives_a_task_its_tries_anew(shop: Shop, attempt: int, is_last: bool) -> None:
    """Airflow adds the retries to the tries so far: three tries, one clear, three tries."""
    run = HandRun(wired(shop.spec, request=OF_THE_DAY))
    task = run.dag.task_dict["whole"]
    context = run.context(task, attempt=attempt)
    context["ti"].max_tries = 5
    with task.work(context) as work:
        assert work.is_last_try is is_last
