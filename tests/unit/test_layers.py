"""Imports go down only: every module of the package, also the imports inside functions and type-checking blocks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "airflow_backfill_provider"
ROOT = Path(__file__).parents[2] / PACKAGE

# A module belongs to the layer of its longest prefix here; it imports itself and lower numbers.
LAYERS = {
    "errors": 0,
    "real_tables": 1,
    "windows": 1,
    "spec": 2,
    "checks": 3,
    "ledger": 3,
    "transform": 3,
    "warehouses": 3,
    "affected": 4,
    "answers": 4,
    "batches": 4,
    "column_fit": 4,
    "control_period": 4,
    "cutoff": 4,
    "identity": 4,
    "new_columns": 4,
    "unfit_rows": 4,
    "cautions": 4,
    "chain_order": 4,
    "plan": 4,
    "planning": 4,
    "source_reading": 4,
    "target_fit": 4,
    "preview": 4,
    "range_evidence": 4,
    "recompute": 4,
    "spec_fit": 4,
    "reporting": 5,
    "resolution": 4,
    "steps": 4,
    "switch": 4,
    "connections": 5,
    "hooks": 6,
    "operators": 6,
    "malformed_spec": 6,
    "dag_factory": 7,
    "get_provider_info": 7,
    "demo": 8,
    "plugin": 8,
    "cli": 9,
}
SIDE_BY_SIDE = {"checks", "ledger", "transform", "warehouses"}
AIRFLOW = {"hooks", "operators", "dag_factory", "plugin", "cli", "connections", "malformed_spec", "demo"}
ENGINES = {"duckdb", "psycopg2", "psycopg", "deltalake", "databricks"}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of everything the file imports; ``from a import b`` gives ``a.b``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import():
                yield from ((node.lineno, alias.name) for alias in node.names)
            case ast.ImportFrom(level=0):
                yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)
            case ast.ImportFrom():
                pytest.fail(f"{path}, line {node.lineno}: imports are absolute")
            case ast.Call(func=ast.Attribute(attr="import_module") | ast.Name(id="import_module" | "__import__")):
                if node.args and isinstance(node.args[0], ast.Constant):
                    yield node.lineno, str(node.args[0].value)


def area(module: str) -> str:
    return module.split(".")[0]


def problems(module: str, path: Path) -> Iterator[str]:
    own = area(module)
    for line, name in imports(path):
        top, _, rest = name.partition(".")
        place = f"{path.relative_to(ROOT)}, line {line}: {own} imports {name}"
        if top == "airflow" and own not in AIRFLOW:
            yield f"{place}: only {', '.join(sorted(AIRFLOW))} may import airflow"
        if top in ENGINES and own not in {"warehouses", "connections", "demo"}:
            yield f"{place}: engines are known to warehouses only"
        if top != PACKAGE:
            continue
        other = area(rest)
        if other == own or other not in LAYERS:
            continue
        if own in SIDE_BY_SIDE and other in SIDE_BY_SIDE:
            yield f"{place}: {own} and {other} know nothing of each other"
        elif LAYERS[other] > LAYERS[own]:
            yield f"{place}: {other} lies above {own}"


def test_every_module_has_a_layer() -> None:
    assert {area(module) for module, _ in modules() if module} <= set(LAYERS)


@pytest.mark.parametrize(("module", "path"), [pytest.param(*one, id=one[0]) for one in modules() if one[0]])
def test_imports_go_down_only(module: str, path: Path) -> None:
    assert list(problems(module, path)) == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("spec.load", "from airflow_backfill_provider.plan import Plan"),
        ("spec.load", "def load():\n    import airflow.sdk"),
        ("checks.evaluate", "if TYPE_CHECKING:\n    from airflow_backfill_provider.warehouses.base import RowDiff"),
        ("ledger.store", "import airflow_backfill_provider.transform.parse"),
        ("windows", "from airflow_backfill_provider.spec import model"),
        ("errors", "from airflow_backfill_provider import windows"),
        ("steps.stage", "import duckdb"),
        ("steps.stage", "importlib.import_module('airflow.sdk')"),
    ],
)
def test_an_import_that_goes_up_or_across_is_found(module: str, source: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "broken.py"
    path.write_text(source, encoding="utf-8")
    assert len(list(problems(module, path))) == 1
