"""The JSON Schema of a spec as it is written in YAML, for editors: ``make schema`` writes ``docs/spec.schema.json``.

It knows keys, types and words. What one key means for another is known to the loader alone.
"""

from __future__ import annotations

import ast
import inspect
import json
import sys
import textwrap
from typing import Any

from pydantic import BaseModel

from airflow_backfill_provider.spec.checks import Frozen
from airflow_backfill_provider.spec.model import BackfillSpec

_SPEC = "airflow_backfill_provider.spec."
_BOUND = {"type": ["number", "string"], "pattern": r"^\s*[-+]?[0-9.]+\s*%?\s*$"}
_WAYS = {
    "python": "PythonTransform",
    "dbt": "DbtTransform",
    "dag": "DagTransform",
    "databricks_job": "DatabricksJobTransform",
}
"""The model of a transform by the key that only it has; without any, it is SQL."""
_CHANGE = {
    "description": "[low, high]: two numbers, or two percentages of the old value.",
    "type": "array",
    "items": _BOUND,
    "minItems": 2,
    "maxItems": 2,
}


def spec_schema() -> dict[str, Any]:
    """The schema (draft 2020-12). Checks and comparisons are mappings with one key; SQL is a path."""
    schema: dict[str, Any] = BackfillSpec.model_json_schema()
    definitions: dict[str, Any] = schema["$defs"]
    _describe(BackfillSpec, schema["properties"])
    for model in _models(Frozen):
        if model.__module__.startswith(_SPEC) and model.__name__ in definitions:
            _describe(model, definitions[model.__name__]["properties"])
    for name in ("SqlTransform", "Era"):
        del definitions[name]["properties"]["file"]
        definitions[name]["properties"]["sql"] = {
            "type": "string",
            "minLength": 1,
            "description": "The path of the SQL file, relative to this file.",
        }
    definitions["SqlTransform"]["oneOf"] = [{"required": ["sql"]}, {"required": ["eras"]}]
    del definitions["PythonTransform"]["properties"]["source"]
    for name in ("compiled", "params", "logical_date"):
        del definitions["DbtTransform"]["properties"][name]
    del definitions["CompiledModel"]
    for name in ("params", "logical_date", "scope"):
        for way in ("DagTransform", "DatabricksJobTransform"):
            del definitions[way]["properties"][name]
    # Not oneOf: an editor would only say that neither way fits.
    way_of = {key: {"$ref": f"#/$defs/{name}"} for key, name in _WAYS.items()}
    schema["properties"]["transform"] = _by_key(way_of, {"$ref": "#/$defs/SqlTransform"})
    definitions["Change"] = _CHANGE
    for name in ("checks", "compare"):
        entries = schema["properties"][name]
        entries["items"] = _one_key([choice["$ref"] for choice in entries["items"]["oneOf"]], definitions)
    for found in definitions.values():
        found.get("properties", {}).pop("kind", None)
    plain: dict[str, Any] = _plain(schema)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Spec of a backfill", **plain}


def text() -> str:
    """The schema as the file has it."""
    return json.dumps(spec_schema(), indent=1, ensure_ascii=False) + "\n"


def _one_key(references: list[str], definitions: dict[str, Any]) -> dict[str, Any]:
    """A mapping with one key, the kind, whose value is the definition of that kind."""
    kinds = {
        definitions[reference.rpartition("/")[2]]["properties"]["kind"]["const"]: reference for reference in references
    }
    properties = {kind: {"$ref": reference} for kind, reference in kinds.items()}
    bounds = {"minProperties": 1, "maxProperties": 1, "additionalProperties": False}
    return {"type": "object", "properties": properties, **bounds}


def _by_key(choices: dict[str, Any], otherwise: dict[str, Any]) -> dict[str, Any]:
    """The schema of the first of these keys that is there."""
    for key, choice in reversed(choices.items()):
        otherwise = {"if": {"required": [key]}, "then": choice, "else": otherwise}
    return otherwise


def _models(base: type[BaseModel]) -> list[type[BaseModel]]:
    return [found for model in base.__subclasses__() for found in (model, *_models(model))]


def _describe(model: type[BaseModel], properties: dict[str, Any]) -> None:
    """Give each property the text that stands under its field; pydantic would read it on every import."""
    for owner in reversed(model.__mro__):
        if not issubclass(owner, Frozen):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(tree, ast.ClassDef)
        for one, following in zip(tree.body, tree.body[1:], strict=False):
            match one, following:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(words))),
                ) if name in properties:
                    properties[name]["description"] = inspect.cleandoc(words).replace("\n", " ").replace("``", "")


def _plain(node: Any) -> Any:
    """Without pydantic's titles, and without null, which a key that is left out means: editors then say what is wrong."""
    match node:
        case {"anyOf": [choice, {"type": "null"}], **rest}:
            return _plain(choice | {key: value for key, value in rest.items() if value is not None})
        case {"anyOf": [*choices, {"type": "null"}], **rest}:
            return _plain({"anyOf": choices} | {key: value for key, value in rest.items() if value is not None})
        case dict():
            return {key: _plain(value) for key, value in node.items() if key != "title" or isinstance(value, dict)}
        case list():
            return [_plain(value) for value in node]
    return node


if __name__ == "__main__":
    sys.stdout.write(text())
