from __future__ import annotations

import pytest

from airflow_backfill_provider.spec.threshold import Threshold


@pytest.mark.parametrize(
    ("text", "failures", "rows", "met"),
    [
        (">10", 10, 100, False),
        ("> 10", 11, 100, True),
        (">= 5", 5, 100, True),
        ("!= 0", 0, 100, False),
        ("<>0", 1, 100, True),
        ("= 3", 3, 100, True),
        ("== 3", 4, 100, False),
        ("< 2", 1, 100, True),
        ("<= 2", 3, 100, False),
        ("> 1%", 1, 100, False),
        ("> 1%", 2, 100, True),
        (">= 33.33%", 1, 3, True),
        (">= 33.34%", 1, 3, False),
        ("> 0%", 0, 0, False),
        (">= 0%", 0, 0, True),
    ],
)
def test_a_condition_is_on_rows_or_on_a_percentage_of_the_rows_looked_at(
    text: str, failures: int, rows: int, met: bool
) -> None:
    assert Threshold.parse(text).met(failures, rows) == met


@pytest.mark.parametrize("text", ["", "10", "> ", "> -1", "> 1 row", "between 1 and 2", "> 1%%", "> 1; DROP TABLE t"])
def test_what_is_no_condition_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as '> 10'"):
        Threshold.parse(text)
