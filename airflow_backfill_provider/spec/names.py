"""Names as a user writes them; the warehouse adapters quote them, so that any character but NUL is allowed."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from airflow_backfill_provider.windows import require_zone


def _identifier(value: str) -> str:
    if not value or "\x00" in value:
        raise ValueError("a name is not empty and holds no NUL character")
    return value


def _table(value: str) -> str:
    parts = value.split(".")
    if not 1 <= len(parts) <= 3 or not all(part and part.strip() == part for part in parts):
        raise ValueError("not a table name; write schema.table")
    return _identifier(value)


Identifier = Annotated[str, AfterValidator(_identifier)]
TableName = Annotated[str, AfterValidator(_table)]
"""One to three names separated by dots, each taken literally."""
Zone = Annotated[str, AfterValidator(require_zone)]
"""A name of the IANA time zone database."""
