"""What no statement of the product may be: unreadable, an overwrite without a range, or a change of how overwrites work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlglot
from sqlglot import exp

_LOOKS = ("DESCRIBE ", "SHOW ", "SET TIME ZONE ")
_SET_LOOKED_AT = "SET spark.databricks.delta.commitInfo.userMetadata"
_DYNAMIC = "partitionoverwritemode"


def require_bounded(sql: str) -> None:
    """:raises AssertionError: sqlglot cannot read it as Databricks' SQL, or it may write more than a range of a table.

    Looks into the catalog, some of which sqlglot does not know, are let by.
    """
    if sql.startswith(_LOOKS) or sql == _SET_LOOKED_AT:
        return
    tree = sqlglot.parse_one(sql, dialect="databricks")
    assert isinstance(tree, exp.Query | exp.Insert | exp.Merge | exp.Create | exp.Drop | exp.Alter), sql
    assert _DYNAMIC not in sql.casefold(), sql
    if isinstance(tree, exp.Insert):
        assert not tree.args.get("overwrite"), sql
        assert tree.args.get("where") is None or tree.args["where"].find(exp.Column), sql
    if isinstance(tree, exp.Merge):
        # A key that equals a key bounds nothing.
        bounds = tree.args["on"].find_all(exp.GTE, exp.LT, exp.In, exp.EQ)
        assert any(len(list(one.find_all(exp.Column))) == 1 and one.find(exp.Literal) for one in bounds), sql
        assert not any(when.args.get("source") for when in tree.find_all(exp.When)), sql
    if isinstance(tree, exp.Create) and tree.args.get("kind") == "TABLE":
        assert not tree.args.get("replace"), sql


def require_settings(settings: Mapping[str, str]) -> None:
    """:raises AssertionError: a parameter of a session changes what an overwrite overwrites."""
    assert not [name for name in settings if _DYNAMIC in name.casefold()], settings


class BoundedConnection:
    """A connection that refuses every statement that :func:`require_bounded` does."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def cursor(self) -> Any:
        cursor = self._connection.cursor()
        execute = cursor.execute

        def bounded(sql: str) -> Any:
            require_bounded(sql)
            return execute(sql)

        cursor.execute = bounded
        return cursor

    def close(self) -> None:
        self._connection.close()
