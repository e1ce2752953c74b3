"""Column types of the in-memory warehouse: which values they hold, and when a value fits unchanged."""

from __future__ import annotations

import re
from datetime import date, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

Value = int | float | Decimal | str | bool | date | None

_TYPE = re.compile(r"\A(\w+)(?:\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\Z")
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "HUGEINT": 128}
_SYNONYMS = {
    "INT": "INTEGER",
    "INT128": "HUGEINT",
    "TEXT": "VARCHAR",
    "NUMERIC": "DECIMAL",
    "TIMESTAMPNTZ": "TIMESTAMP",
}
_FAMILIES = {*_BITS, "DECIMAL", "DOUBLE", "VARCHAR", "BOOLEAN", "DATE", "TIMESTAMP"}
_FLOAT_DIGITS = 15
_EXACT = Context(prec=80)


def parse_type(text: str) -> tuple[str, int, int]:
    """Family, precision and scale of a type: ``("DECIMAL", 12, 2)``, ``("BIGINT", 0, 0)``.

    :raises ValueError: when the in-memory warehouse has no such type; the message lists those it has.
    """
    match = _TYPE.match(text.strip().upper())
    family = _SYNONYMS.get(match[1], match[1]) if match else ""
    if match is None or family not in _FAMILIES:
        raise ValueError(f"{text!r} is not a type of the in-memory warehouse; it has {', '.join(sorted(_FAMILIES))}")
    if family == "DECIMAL":
        return family, int(match[2] or 18), int(match[3] or (0 if match[2] else 3))
    return family, 0, 0


def cast(value: Value, type_: str) -> Value:
    """The value as SQL's explicit CAST gives it: decimals round half up, a timestamp loses its time as a date.

    :raises ValueError: when the type has no such value.
    """
    family, precision, scale = parse_type(type_)
    if value is None:
        return None
    if family == "VARCHAR":
        return str(value).lower() if isinstance(value, bool) else str(value)
    if family == "BOOLEAN":
        if value in (0, 1):
            return bool(value)
        raise ValueError(f"a value is not a {type_}")
    if family in ("DATE", "TIMESTAMP"):
        moment = _moment(value, type_)
        return moment.date() if family == "DATE" else moment
    number = _number(value, type_)
    if family == "DOUBLE":
        return value if isinstance(value, float) else float(number)
    rounded = number.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    limit = 10 ** (precision - scale) if family == "DECIMAL" else 2 ** (_BITS[family] - 1)
    if not -limit <= rounded < limit or (family == "DECIMAL" and rounded == -limit):
        raise ValueError(f"{value!r} is out of range for {type_}")
    return rounded if family == "DECIMAL" else int(rounded)


def land(value: Value, type_: str) -> Value:
    """The value as a column of the type keeps it; never rounded, cut or turned into another kind of value.

    :raises ValueError: when it does not fit unchanged.
    """
    kept = cast(value, type_)
    if isinstance(kept, str):
        unchanged = kept == value
    elif isinstance(kept, date):
        unchanged = _moment(kept, type_) == _moment(value, type_)
    else:
        unchanged = kept is None or (not isinstance(value, str) and _number(kept, type_) == _number(value, type_))
    if not unchanged:
        raise ValueError(f"{value!r} does not fit {type_} unchanged")
    return kept


def lossless(source: str, target: str) -> bool:
    """Whether a value of the first type lands in a column of the second unchanged, or fails loudly."""
    try:
        (from_family, _, from_scale), (to_family, _, to_scale) = parse_type(source), parse_type(target)
    except ValueError:
        return source.upper() in ("UNKNOWN", "NULL") or source == target
    if from_family in _BITS:
        exact_as_double = _BITS[from_family] <= 32
        return to_family in _BITS or to_family == "DECIMAL" or (to_family == "DOUBLE" and exact_as_double)
    if from_family == to_family == "DECIMAL":
        return to_scale >= from_scale
    return from_family == to_family or (from_family, to_family) == ("DATE", "TIMESTAMP")


def _moment(value: Value, type_: str) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime.combine(value, time.min)
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError as error:
        raise ValueError(f"a value is not a {type_}") from error
    if moment.tzinfo is not None:
        raise ValueError(f"{value!r} has a zone; a {type_} here has none and means UTC")
    return moment


def _number(value: Value, type_: str) -> Decimal:
    try:
        # Binary noise, such as the last digits of 0.1 + 0.2, is no digit of the number.
        text = f"{value:.{_FLOAT_DIGITS}g}" if isinstance(value, float) else str(value)
        number = Decimal(int(value)) if isinstance(value, bool) else Decimal(text)
    except (InvalidOperation, ValueError) as error:
        raise ValueError(f"a value is not a {type_}") from error
    if not number.is_finite():
        raise ValueError(f"a value is not a {type_}")
    return number
