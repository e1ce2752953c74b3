"""The tables of one Spark that many tests share: emptied fast, and laid anew from files instead of by statements."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

PUBLISHED, STAGING = "analytics", "backfill_staging"


class Tables:
    """Two schemas, which exist from the first use on.

    The table that nearly every test begins with takes two commits to make. It is made once and then copied with its log,
    and left as it is when the test before wrote no commit to it.
    """

    def __init__(self, folder: Path, run: Callable[..., None]) -> None:
        self._folder = folder
        self._run = run
        self._templates: dict[tuple[str, ...], Path] = {}
        self._laid: tuple[tuple[str, ...], Path, list[str]] | None = None
        self._numbers = count()
        run(f"CREATE SCHEMA {PUBLISHED}", f"CREATE SCHEMA {STAGING}")

    def clear(self) -> None:
        """Drop every table but the one that was laid."""
        kept = {self._laid[1].name} if self._laid else set()
        for schema in self._folder.glob("*.db"):
            name = schema.name.removesuffix(".db")
            if name not in (PUBLISHED, STAGING):
                self._run(f"DROP SCHEMA IF EXISTS `{name}` CASCADE")
                continue
            for table in schema.iterdir():
                if table.name not in kept or name != PUBLISHED:
                    self._run(f"DROP TABLE IF EXISTS `{name}`.`{table.name}`")
                    shutil.rmtree(table, ignore_errors=True)

    def forget(self) -> None:
        """Somebody may have dropped the table that was laid, so it is not counted on any more."""
        self._laid = None

    def lay(self, key: Sequence[str], statements: Sequence[str]) -> None:
        """The table ``analytics.orders`` that these statements make, the first of which creates it."""
        if self._laid is not None:
            made_by, path, log = self._laid
            if made_by == tuple(key) and _log(path) == log:
                return
            self._laid = None
        self._run(f"DROP TABLE IF EXISTS {PUBLISHED}.orders")
        path = self._folder.parent / "laid" / str(next(self._numbers))
        create, *rest = statements
        if (template := self._templates.get(tuple(key))) is None:
            self._run(f"{create} USING delta LOCATION '{path}'", *rest)
            template = self._folder.parent / "templates" / str(len(self._templates))
            shutil.copytree(path, template)
            self._templates[tuple(key)] = template
        else:
            shutil.copytree(template, path)
            self._run(f"CREATE TABLE {PUBLISHED}.orders USING delta LOCATION '{path}'")
        self._laid = (tuple(key), path, _log(path))


def _log(table: Path) -> list[str]:
    return sorted(file.name for file in (table / "_delta_log").glob("*.json"))
