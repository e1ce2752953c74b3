"""What is wrong with a spec file, said so that its writer can mend it: line, field, value, suggestion."""

from __future__ import annotations

import difflib
import reprlib
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

Path = tuple[str | int, ...]

_ABSENT: Any = object()


@dataclass(frozen=True)
class Problem:
    """One thing to mend."""

    line: int | None
    field: str
    message: str
    value: Any = _ABSENT

    def __str__(self) -> str:
        shown = "" if self.value is _ABSENT else f" = {reprlib.repr(self.value)}"
        place = [f"line {self.line}" if self.line else "", f"{self.field}{shown}"]
        return ": ".join([part for part in place if part] + [self.message])

    @staticmethod
    def write(path: Path) -> str:
        """``checks[1].accepted_values.column``"""
        text = ""
        for part in path:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
        return text


def explain(
    error: ValidationError, model: type[BaseModel], data: Any, line: Callable[[Path], int | None]
) -> Iterator[Problem]:
    """One problem for each place that pydantic complains about."""
    by_path: dict[Path, list[ErrorDetails]] = {}
    for entry in error.errors(include_url=False):
        by_path.setdefault(_path(entry, data), []).append(entry)
    for path, entries in by_path.items():
        inside = any(other[: len(path)] == path and other != path for other in by_path)
        if inside and all(entry["type"] == "too_short" for entry in entries):
            continue
        messages = dict.fromkeys(_message(entry, model, path) for entry in entries)
        value = entries[0]["input"]
        plain = entries[0]["type"] != "missing" and isinstance(value, str | int | float)
        yield Problem(line(path), Problem.write(path), ", or ".join(messages), value if plain else _ABSENT)


def _path(entry: ErrorDetails, data: Any) -> Path:
    """The error's location as written in the file: without the names of union members that pydantic adds."""
    path: list[str | int] = []
    here: Any = data
    for part in entry["loc"]:
        if isinstance(here, dict) and part in here:
            path.append(part)
            here = here[part]
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            path.append(part)
            here = here[part]
        elif entry["type"] == "missing" and part == entry["loc"][-1]:
            path.append(part)
    return tuple(path)


def _message(entry: ErrorDetails, model: type[BaseModel], path: Path) -> str:
    text = entry["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    value = entry["input"]
    match entry["type"]:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            known = sorted(_known_keys(model, entry["loc"]))
            return f"unknown key; {_suggest(str(path[-1]), known)}known here: {', '.join(known)}"
        case _ if value is None:
            return "is empty"
        case "string_type" if isinstance(value, int | float):
            read_as = "a truth value" if isinstance(value, bool) else "a number"
            return f"must be text, but YAML reads it as {read_as}; quote it"
        case "model_type" | "model_attributes_type" | "union_tag_not_found":
            return "must be a mapping"
        case "tuple_type":
            return "must be a list"
        case "literal_error":
            expected = entry.get("ctx", {}).get("expected", "")
            return f"{text}{_suggest(str(value), expected.split(chr(39))[1::2], before='; ')}".rstrip()
    return text


def _suggest(word: str, known: list[str], before: str = "") -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"{before}did you mean {near[0]!r}? " if near else ""


def _known_keys(model: type[BaseModel], loc: Path) -> set[str]:
    """The fields of the model that the last part of ``loc`` was not one of."""
    here = [model]
    for part in loc[:-1]:
        if isinstance(part, int):
            continue
        fields = [found.model_fields[part] for found in here if part in found.model_fields]
        if fields:
            here = [inner for found in fields for inner in _models((found.annotation, *found.metadata))]
        else:
            here = [found for found in here if part in (_kind_of(found), found.__name__)] or here
    return {name for found in here for name in found.model_fields if name != "kind" or _kind_of(found) is None}


def _kind_of(model: type[BaseModel]) -> Any:
    field = model.model_fields.get("kind")
    return field.default if field is not None and len(typing.get_args(field.annotation)) == 1 else None


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in annotation if isinstance(annotation, tuple) else typing.get_args(annotation):
        yield from _models(inner)
