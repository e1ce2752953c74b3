"""From a YAML file to a spec that is whole by itself.

Reads two files, the YAML and the SQL it names; no connection, no Variable, no database.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.problems import Problem, explain
from airflow_backfill_provider.spec.tree import Tree, read_tree


def load_spec(path: str | Path) -> BackfillSpec:
    """Read a spec; ``transform.sql``, a path relative to the YAML file, becomes the SQL file's text.

    :raises SpecError: naming the file and every problem in it with line, field, value and what to write instead.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} cannot be read as a spec: {error}.") from error

    def read_sql(written: str) -> str:
        return (path.parent / written).read_text(encoding="utf-8-sig")

    return load_spec_text(text, str(path), read_sql)


def load_spec_text(text: str, origin: str, read_sql: Callable[[str], str]) -> BackfillSpec:
    """Read a spec from YAML text; ``origin`` names it in messages, ``read_sql`` gives the text of ``transform.sql``.

    :raises SpecError: as :func:`load_spec`.
    """
    tree = read_tree(text)
    if not isinstance(tree.data, dict):
        raise _refusal(origin, tree.problems)
    sql = _take_sql(tree, origin, read_sql)
    cause: ValidationError | None = None
    spec: BackfillSpec | None = None
    try:
        spec = BackfillSpec.model_validate(_with_sql(tree.data, sql))
    except ValidationError as error:
        cause = error
        known = {problem.field for problem in tree.problems}
        for problem in explain(error, BackfillSpec, tree.data, tree.line):
            if problem.field not in known:
                tree.problems.append(problem)
    if spec is None or tree.problems:
        raise _refusal(origin, tree.problems) from cause
    return spec


def find_specs(folder: str | Path) -> tuple[Path, ...]:
    """Every ``*.yaml`` and ``*.yml`` file right inside the folder, by name; hidden files and folders are left out.

    :raises SpecError: when there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise SpecError(f"{folder} is not a folder of specs; give the folder that holds the *.yaml files.")
    return tuple(
        path
        for path in sorted(folder.iterdir())
        if path.suffix in (".yaml", ".yml") and not path.name.startswith(".") and path.is_file()
    )


def _take_sql(tree: Tree, origin: str, read_sql: Callable[[str], str]) -> str | None:
    """The text of the SQL file, or ``None`` with the problem noted in the tree."""
    transform = tree.data.get("transform")
    if not isinstance(transform, dict):
        return None
    if "file" in transform:
        path = ("transform", "file")
        tree.problems.append(
            Problem(tree.line(path), "transform.file", "the path of the SQL file is written in transform.sql")
        )
    written = transform.get("sql")
    if not isinstance(written, str) or not written:
        return None
    where = ("transform", "sql")
    try:
        text = read_sql(written)
    except (OSError, ValueError) as error:
        reason = "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else "cannot be read"
        detail = getattr(error, "strerror", None) or str(error)
        message = f"the SQL file {reason}: {detail}. Write its path, relative to {origin}"
        tree.problems.append(Problem(tree.line(where), "transform.sql", message, written))
        return None
    if not text.strip():
        tree.problems.append(Problem(tree.line(where), "transform.sql", "the SQL file is empty", written))
        return None
    return text


def _with_sql(data: dict[str, Any], sql: str | None) -> dict[str, Any]:
    transform = data.get("transform")
    if not isinstance(transform, dict) or sql is None:
        return data
    return data | {"transform": transform | {"sql": sql, "file": transform["sql"]}}


def _refusal(origin: str, problems: list[Problem]) -> SpecError:
    found = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
    ordered = sorted(problems, key=lambda problem: problem.line or 0)
    return SpecError("\n  ".join([f"{origin} cannot be run as written; {found}:", *map(str, ordered)]))
