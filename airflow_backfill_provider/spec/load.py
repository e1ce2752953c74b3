"""From a YAML file to a spec that is whole by itself.

Reads the YAML and the SQL files it names; no connection, no Variable, no database.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.problems import Path as FieldPath
from airflow_backfill_provider.spec.problems import Problem, explain
from airflow_backfill_provider.spec.tree import Tree, read_tree


def load_spec(path: str | Path) -> BackfillSpec:
    """Read a spec; ``transform.sql`` and each era's, paths relative to the YAML file, become the SQL files' text, and the
    folders of ``transform.dbt`` absolute.

    :raises SpecError: naming the file and every problem in it with line, field, value and what to write instead.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} cannot be read as a spec: {error}.") from error

    def read_sql(written: str) -> str:
        return (path.parent / written).read_text(encoding="utf-8-sig")

    return load_spec_text(text, str(path), read_sql, path.parent)


def load_spec_text(
    text: str, origin: str, read_sql: Callable[[str], str], folder: str | Path | None = None
) -> BackfillSpec:
    """Read a spec from YAML text; ``origin`` names it in messages, ``read_sql`` gives the text of a path.

    :param folder: what the folders in it are relative to; by default they stay as they are written.

    :raises SpecError: as :func:`load_spec`.
    """
    tree = read_tree(text)
    if not isinstance(tree.data, dict):
        raise _refusal(origin, tree.problems)
    data = _read_files(tree, origin, read_sql, folder)
    cause: ValidationError | None = None
    spec: BackfillSpec | None = None
    try:
        spec = BackfillSpec.model_validate(data)
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


_FOUND = {
    "source": "the text of the module is found by itself; write transform.python alone",
    "compiled": "what dbt compiles the model to is found by itself; write transform.dbt alone",
}
"""Keys of a transform that nobody writes."""


def _read_files(tree: Tree, origin: str, read_sql: Callable[[str], str], folder: str | Path | None) -> dict[str, Any]:
    """The data with the text of each SQL file in the place of its path, and whole paths of folders; problems are noted in
    the tree."""
    data: dict[str, Any] = tree.data
    transform = data.get("transform")
    if not isinstance(transform, dict):
        return data

    for key in _FOUND.keys() & transform.keys():
        place = ("transform", key)
        tree.problems.append(Problem(tree.line(place), Problem.write(place), _FOUND[key]))

    def read(entry: Any, *path: str | int) -> Any:
        return _with_text(entry, path, tree, origin, read_sql) if isinstance(entry, dict) else entry

    transform = read(transform, "transform")
    if isinstance(eras := transform.get("eras"), list):
        read_eras = [read(era, "transform", "eras", number) for number, era in enumerate(eras)]
        transform = transform | {"eras": read_eras}
    if folder is not None and isinstance(dbt := transform.get("dbt"), dict):
        places = {name: dbt[name] for name in ("project_dir", "profiles_dir") if isinstance(dbt.get(name), str)}
        transform = transform | {"dbt": dbt | {name: str(Path(folder, place)) for name, place in places.items()}}
    return data | {"transform": transform}


def _with_text(
    entry: dict[str, Any], path: FieldPath, tree: Tree, origin: str, read_sql: Callable[[str], str]
) -> dict[str, Any]:
    """The entry with its SQL file's text; as it is when that cannot be had."""
    where = (*path, "sql")
    field, line, written = Problem.write(where), tree.line(where), entry.get("sql")
    if "file" in entry:
        place = (*path, "file")
        message = f"the path of the SQL file is written in {field}"
        tree.problems.append(Problem(tree.line(place), Problem.write(place), message))
    if not isinstance(written, str) or not written:
        return entry
    try:
        text = read_sql(written)
    except (OSError, ValueError) as error:
        reason = "is not UTF-8 text" if isinstance(error, UnicodeDecodeError) else "cannot be read"
        detail = getattr(error, "strerror", None) or str(error)
        message = f"the SQL file {reason}: {detail}. Write its path, relative to {origin}"
        tree.problems.append(Problem(line, field, message, written))
        return entry
    if not text.strip():
        tree.problems.append(Problem(line, field, "the SQL file is empty", written))
        return entry
    return entry | {"sql": text, "file": written}


def _refusal(origin: str, problems: list[Problem]) -> SpecError:
    found = "one problem" if len(problems) == 1 else f"{len(problems)} problems"
    ordered = sorted(problems, key=lambda problem: problem.line or 0)
    return SpecError("\n  ".join([f"{origin} cannot be run as written; {found}:", *map(str, ordered)]))
