"""YAML text as plain data, with the line of every value and the places where YAML reads other than people do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from airflow_backfill_provider.spec.problems import Path, Problem

_STR = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_PLAIN_INTEGER = re.compile(r"\A[-+]?(0|[1-9][0-9]*)\Z")
_LOOKS_NUMERIC = re.compile(r"\A[-+]?\.?[0-9][0-9_]*\.?[0-9_]*([eE][-+]?[0-9]+)?\Z")


@dataclass
class Tree:
    """One document: its data, the line of every path in it, and what is wrong with it so far."""

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line(self, path: Path) -> int | None:
        """The line of the value at ``path``, or of the nearest value around it."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path)


def read_tree(text: str) -> Tree:
    """Read one YAML document; never raises for what the text says, the problems stand in the tree."""
    tree = Tree()
    try:
        loader = yaml.SafeLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        tree.problems.append(
            Problem(line, "", f"not YAML: the character U+{int(error.character):04X} cannot stand here")
        )
        return tree
    try:
        node = loader.get_single_node()
        if node is None:
            tree.problems.append(Problem(1, "", "the file is empty; a spec needs name, target, transform and compute"))
            return tree
        _walk(node, (), tree, set())
        tree.data = loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        tree.problems.append(
            Problem(mark.line + 1 if mark else None, "", f"not YAML: {error.problem or error.context}")
        )
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        tree.problems.append(Problem(None, "", f"not YAML: {error}"))
    finally:
        loader.dispose()
    if tree.data is not None and not isinstance(tree.data, Mapping):
        tree.problems.append(Problem(1, "", "a spec is a mapping that starts with name: …"))
    return tree


def _walk(node: yaml.Node, path: Path, tree: Tree, above: set[int]) -> None:
    tree.lines.setdefault(path, node.start_mark.line + 1)
    if id(node) in above:
        raise ValueError(f"line {node.start_mark.line + 1}: an anchor holds itself")
    match node:
        case yaml.MappingNode():
            _walk_mapping(node, path, tree, above | {id(node)})
        case yaml.SequenceNode():
            for index, item in enumerate(node.value):
                _walk(item, (*path, index), tree, above | {id(node)})
        case yaml.ScalarNode():
            _look_at(node, path, tree)


def _walk_mapping(node: yaml.MappingNode, path: Path, tree: Tree, above: set[int]) -> None:
    seen: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if key.tag == _MERGE:
            continue
        if not isinstance(key, yaml.ScalarNode):
            tree.problems.append(Problem(line, _written(path), "a key is one word, not a list or a mapping"))
            continue
        if key.value in seen:
            message = f"the key stands here twice, first in line {seen[key.value]}; YAML would keep the last silently"
            tree.problems.append(Problem(line, _written((*path, key.value)), message))
        seen[key.value] = line
        child = (*path, key.value)
        if key.tag != _STR and (trap := _trap(key)):
            tree.problems.append(Problem(line, _written(child), trap, key.value))
        key.tag = _STR
        tree.lines[child] = line
        _walk(value, child, tree, above)


def _look_at(node: yaml.ScalarNode, path: Path, tree: Tree) -> None:
    if trap := _trap(node):
        tree.problems.append(Problem(node.start_mark.line + 1, _written(path), trap, node.value))
        node.tag = _STR


def _trap(node: yaml.ScalarNode) -> str | None:
    """What YAML makes of an unquoted word that its writer would not expect, and what to write instead."""
    if node.style is not None:
        return None
    text, quoted = node.value, f"'{node.value}'"
    match node.tag.removeprefix("tag:yaml.org,2002:"):
        case "bool" if text.lower() not in ("true", "false"):
            return f"YAML reads {text} as a truth value; write true or false, or quote the word: {quoted}"
        case "timestamp":
            return f"YAML reads {text} as a date object; quote it: {quoted}"
        case "int" if not _PLAIN_INTEGER.match(text):
            return f"YAML reads {text} as octal, hexadecimal or base 60; write it plainly or quote it: {quoted}"
        case "float" if ":" in text:
            return f"YAML reads {text} as a number in base 60; quote it: {quoted}"
        case "str" if _LOOKS_NUMERIC.match(text):
            return f"YAML reads {text} as text, not as a number; write the number out, or quote it: {quoted}"
    return None


def _written(path: Path) -> str:
    return Problem.write(path)
