"""Wrong backfills, and what each engine says of them before anything is published.

SQL that cannot be run again, that adds to what is published or that doubles rows is in ``test_trial_on_every_engine``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from contract_engines import ENGINES
from ledger_file import new_ledger
from steps_world import DAYS, RIGHT, World, make_spec

from airflow_backfill_provider.errors import BackfillError
from airflow_backfill_provider.ledger.store import Ledger

BEFORE, WRONG, AFTER = DAYS[:3], DAYS[3:7], DAYS[7:]
"""Refunded orders were published with an amount on the wrong days alone."""
RANGE = {"start_date": WRONG[0], "end_date": WRONG[-1]}
BOUNDS = RIGHT.partition("FROM raw.orders")[2]
SQL = (
    "SELECT order_id, order_date, CASE WHEN refunded THEN NULL ELSE amount END AS amount, note, fee, "
    f"first_part + second_part + third_part AS rate, tax FROM raw.orders {BOUNDS}"
)
NULLS = {"column": "amount", "aggregate": "null_rate"}
SINCE = {
    "range": {"evidence": {"introduced_by": "release 41", "introduced_at": WRONG[0], "margin": 3, "metric": NULLS}}
}
SHIFTED = SQL.replace(" order_date, ", " found_on AS order_date, ").replace(
    f"FROM raw.orders {BOUNDS}",
    "FROM (SELECT *, CASE WHEN order_id BETWEEN 301 AND 305 THEN DATE '2024-03-05' ELSE order_date END AS found_on "
    f"FROM raw.orders) AS shifted {BOUNDS.replace('order_date', 'found_on')}",
)


def _plan(world: World, **conf: Any) -> str:
    return "\n".join(world.scope(**conf, mode="plan").plan.warnings)


def _control(world: World, **conf: Any) -> str:
    world.scope(**conf)
    return _refused(world.hold_control)


def _checks(world: World, **conf: Any) -> str:
    return _refused(lambda: world.prepare(**conf))


def _range(world: World, **conf: Any) -> str:
    world.prepare(**conf)
    return "\n".join(
        f"{one['kind']}: {one['actual']}; {one['detail']}" for one in world.ledger.evidence(world.id)[None]
    )


def _refused(step: Callable[[], object]) -> str:
    with pytest.raises(BackfillError) as refused:
        step()
    return str(refused.value)


@dataclass(frozen=True)
class Mistake:
    says: tuple[str, ...]
    asked: Callable[..., str]
    spec: dict[str, Any] = field(default_factory=dict)
    conf: dict[str, Any] = field(default_factory=lambda: RANGE)


MISTAKES = {
    "the range begins a day late": Mistake(
        (
            "the bug is wider than the range",
            f"starts with {WRONG[1]}, and the null_rate of amount says {WRONG[0]}, 1 part",
        ),
        _plan,
        SINCE,
        RANGE | {"start_date": WRONG[1]},
    ),
    "the range ends a day early": Mistake(
        (
            "the bug is wider than the range",
            f"ends with {WRONG[-2]}, and the null_rate of amount says {WRONG[-1]}, 1 part",
        ),
        _plan,
        SINCE,
        RANGE | {"end_date": WRONG[-2]},
    ),
    "a control day moves": Mistake(
        (
            f"1 of 2 control partitions of analytics.orders, which the bug did not affect, do not come out as they are published: "
            f"{WRONG[0]}: 1 of 6 rows changed, differing: amount in 1. Either the new SQL changes more than the bug did",
        ),
        _control,
        {"control_period": {"partitions": [BEFORE[1], WRONG[0]]}},
        RANGE | {"start_date": WRONG[1]},
    ),
    "a float is summed in another order": Mistake(
        (
            f"{BEFORE[0]}: 6 of 6 rows changed, differing: rate in 6",
            "rate holds floating point numbers, whose last digits depend on the order in which they are added: "
            "control_period: {tolerance: {rate: …}}",
        ),
        _control,
        {
            "transform": {
                "sql": SQL.replace("first_part + second_part + third_part", "third_part + second_part + first_part")
            },
            "control_period": {"partitions": [BEFORE[0]]},
        },
    ),
    "5 rows shift from one day to the next": Mistake(
        (f"moved_rows: 5 rows moved; from {WRONG[0]} to {WRONG[1]} (5). A bound of the SQL that is off by a little",),
        _range,
        {"transform": {"sql": SHIFTED}, "compare": []},
    ),
    "a column is swapped with one of its type": Mistake(
        (
            "found 0 added, 0 removed, 6 changed",
            "amount in 6, fee in 6",
            "100 % of the matched rows differ in amount, fee",
        ),
        _checks,
        {
            "transform": {
                "sql": SQL.replace(
                    "CASE WHEN refunded THEN NULL ELSE amount END AS amount, note, fee",
                    "fee AS amount, note, amount AS fee",
                )
            },
            "compare": [{"row_diff": {"max_changed": 1}}],
        },
    ),
    "a new column is filled with 0": Mistake(
        ("filled_with_0(tax)", "24 of 24 rows are 0, 0 are NULL", "leave it NULL"),
        _checks,
        {
            "kind": "new_column",
            "new_columns": ["tax"],
            "transform": {
                "sql": SQL.replace("CASE WHEN refunded THEN NULL ELSE amount END AS", "").replace(
                    "tax FROM", "0 AS tax FROM"
                )
            },
            "compare": [],
            "schema": {"columns": {"tax": {"null_means": "unknown"}}},
        },
    ),
    "the source's schema changes in mid-history": Mistake(
        (
            f"{WRONG[0]}: null_rate(amount)",
            f"{WRONG[1]}: null_rate(amount)",
            "1, from 0",
            "2 of 4 partitions were rejected",
        ),
        _checks,
        {
            "transform": {"sql": SQL.replace("CASE WHEN refunded THEN NULL ELSE amount END", "gross")},
            "compare": [{"null_rate": {"column": "amount", "max_abs_change": 0.2}}],
            "compute": {"conn_id": "warehouse", "partitions_per_task": 4},
        },
    ),
}


def lay(engine: Any) -> None:
    """Ten days, of which those between are wrong; the source names its amount ``gross`` too from March 6 on."""
    kinds = engine.types
    columns = (
        f"order_id {kinds['integer']}, order_date {kinds['date']}, amount {kinds['integer']}, note {kinds['text']}, "
        f"fee {kinds['integer']}, rate {kinds['real']}, tax {kinds['integer']}"
    )
    parts = ", ".join(f"{name} {kinds['real']}" for name in ("first_part", "second_part", "third_part"))
    rows, raw = [], []
    for number, day in enumerate((*BEFORE, *WRONG, *AFTER)):
        for place in range(6):
            order, refunded = number * 100 + place, place == 0
            amount = "NULL" if refunded and day not in WRONG else str(order + 10)
            own = f"{order}, DATE '{day}'"
            rows.append(f"({own}, {amount}, 'note', {order + 1}, {0.1 + 0.2 + 0.3!r}, NULL)")
            gross = str(order + 10) if day >= WRONG[2] else "NULL"
            raw.append(f"({own}, {order + 10}, 'note', {order + 1}, 0.1, 0.2, 0.3, NULL, {refunded}, {gross})")
    engine.execute(
        "CREATE SCHEMA IF NOT EXISTS analytics",
        "CREATE SCHEMA IF NOT EXISTS raw",
        f"CREATE TABLE analytics.orders ({columns})",
        f"CREATE TABLE raw.orders ({columns.replace('rate ' + kinds['real'], parts)}, refunded {kinds['flag']}, gross {kinds['integer']})",
        f"INSERT INTO analytics.orders VALUES {', '.join(rows)}",
        f"INSERT INTO raw.orders VALUES {', '.join(raw)}",
    )


BY_OTHER_STATEMENTS = (
    "the range begins a day late",
    "a float is summed in another order",
    "5 rows shift from one day to the next",
    "a column is swapped with one of its type",
)
"""What is found by statements that another engine words, or computes, in its own way; the rest follows from the same numbers."""
CASES = [
    pytest.param(engine, mistake, id=f"{engine.name}-{mistake}")
    for engine in ENGINES
    if engine.name in ("duckdb", "postgres", "delta")
    for mistake in (MISTAKES if engine.name == "duckdb" else BY_OTHER_STATEMENTS)
]


@pytest.fixture(scope="module")
def laid(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, Path]]:
    """A warehouse that no test publishes into, and an empty ledger to copy."""
    folder = tmp_path_factory.mktemp("caught")
    engine = request.param()
    warehouse = engine.create(folder)
    new_ledger(folder)
    lay(engine)
    yield engine, warehouse, folder / "ledger.db"
    warehouse.close()


@pytest.mark.parametrize(("laid", "mistake"), CASES, indirect=["laid"], scope="module")
def test_it_is_told_with_what_to_do_before_anything_is_published(
    laid: tuple[Any, Any, Path], tmp_path: Path, mistake: str
) -> None:
    engine, warehouse, empty = laid
    case = MISTAKES[mistake]
    shutil.copy(empty, tmp_path / "ledger.db")
    before = sorted(map(repr, engine.rows("SELECT * FROM analytics.orders")))
    with Ledger(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger:
        world = World(engine, warehouse, ledger, make_spec(**{"transform": {"sql": SQL}} | case.spec), run_id=mistake)

        said = case.asked(world, **case.conf)

        for text in case.says:
            assert text in said
        assert sorted(map(repr, engine.rows("SELECT * FROM analytics.orders"))) == before
