from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from airflow_backfill_provider.warehouses.memory.values import cast, land, lossless, parse_type


@pytest.mark.parametrize(
    ("value", "type_", "kept"),
    [
        (1, "BIGINT", 1),
        (1.0, "BIGINT", 1),
        (Decimal("2.00"), "INTEGER", 2),
        (0.1 + 0.2, "DECIMAL(12,2)", Decimal("0.30")),
        (0.1 + 0.2, "DOUBLE", 0.1 + 0.2),
        ("x", "VARCHAR", "x"),
        (date(2024, 1, 2), "TIMESTAMP", datetime.fromisoformat("2024-01-02 00:00:00")),
        (datetime.fromisoformat("2024-01-02 00:00:00"), "DATE", date(2024, 1, 2)),
        ("2024-01-02", "DATE", date(2024, 1, 2)),
        ("2024-01-02 03:04:05.000006", "TIMESTAMP", datetime.fromisoformat("2024-01-02 03:04:05.000006")),
        (1, "BOOLEAN", True),
        (2**127 - 1, "HUGEINT", 2**127 - 1),
        (None, "DATE", None),
    ],
)
def test_a_value_that_fits_is_kept_as_its_column_s_type(value: Any, type_: str, kept: Any) -> None:
    landed = land(value, type_)

    assert landed == kept
    assert type(landed) is type(kept)


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (1.5, "BIGINT"),
        (2**63, "BIGINT"),
        (-(2**31) - 1, "INTEGER"),
        ("1", "BIGINT"),
        ("one", "BIGINT"),
        (Decimal("0.005"), "DECIMAL(12,2)"),
        (Decimal(10) ** 10, "DECIMAL(12,2)"),
        (1, "VARCHAR"),
        (datetime.fromisoformat("2024-01-02 03:00:00"), "DATE"),
        ("2024-13-01", "DATE"),
        ("2024-01-02T00:00:00+01:00", "TIMESTAMP"),
        (2, "BOOLEAN"),
        (float("nan"), "DECIMAL(12,2)"),
    ],
)
def test_a_value_that_would_change_is_refused(value: Any, type_: str) -> None:
    with pytest.raises(ValueError, match=type_.split("(", maxsplit=1)[0]):
        land(value, type_)


@pytest.mark.parametrize(
    ("value", "type_", "kept"),
    [
        ("12", "BIGINT", 12),
        (2.5, "BIGINT", 3),
        (Decimal("0.005"), "DECIMAL(12,2)", Decimal("0.01")),
        (datetime.fromisoformat("2024-01-02 03:00:00"), "DATE", date(2024, 1, 2)),
        (True, "VARCHAR", "true"),
    ],
)
def test_an_explicit_cast_may_change_the_value(value: Any, type_: str, kept: Any) -> None:
    assert cast(value, type_) == kept


def test_an_unknown_type_is_refused_naming_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"GEOMETRY(?s:.)*BIGINT"):
        parse_type("GEOMETRY")


def test_types_are_read_whatever_their_spelling() -> None:
    assert parse_type("decimal( 12 , 2 )") == parse_type("NUMERIC(12,2)") == ("DECIMAL", 12, 2)
    assert parse_type("text") == ("VARCHAR", 0, 0)


def test_a_type_that_binding_could_not_tell_is_left_to_the_value() -> None:
    assert lossless("UNKNOWN", "BIGINT")
    assert not lossless("GEOMETRY", "BIGINT")
