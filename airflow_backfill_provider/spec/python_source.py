"""The text of a Python module that a spec names, found without importing it: parsing a DAG runs nobody's code."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder

_REFERENCE = re.compile(r"\A[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*\Z")


def source_of(reference: str) -> str:
    """The text of the module of ``package.module:function``.

    :raises ValueError: it is not written so, there is no such module on ``sys.path``, it is not Python, or it has no such
        function; the message says what is there.
    """
    if not _REFERENCE.match(reference):
        raise ValueError("write the module and the function with a colon between: package.module:function")
    module, _, function = reference.partition(":")
    text = _read(module)
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise ValueError(f"the module {module} is not Python: line {error.lineno}: {error.msg}") from error
    bound = dict(_bound(tree.body))
    if bound.get(function) is ast.AsyncFunctionDef:
        raise ValueError(f"{function} is async; name a plain function, which may run one by asyncio.run")
    if function not in bound and "*" not in bound:
        there = ", ".join(name for name, kind in bound.items() if kind is ast.FunctionDef and not name.startswith("_"))
        raise ValueError(f"the module {module} has no {function}; its functions: {there or 'none'}")
    return text


def _read(module: str) -> str:
    path: Sequence[str] | None = None
    name, loader = "", None
    for part in module.split("."):
        package, name = name, f"{name}.{part}" if name else part
        found = PathFinder.find_spec(name, path)
        if found is None:
            where = f"in the package {package}" if package else "on sys.path"
            raise ValueError(
                f"there is no module {name} {where}; put it beside your DAG files, whose folder is on sys.path, or into a "
                "package that is installed"
            )
        path, loader = found.submodule_search_locations, found.loader
    get_source = getattr(loader, "get_source", None)
    text = None if get_source is None else get_source(name)
    if not isinstance(text, str):
        raise ValueError(f"the module {module} has no Python source, so a change of it could not be noticed")
    return text


def _bound(body: Sequence[ast.stmt]) -> Iterator[tuple[str, type[ast.AST]]]:
    """The names that a module's own statements bind, and by what; ``*`` for those that nobody can know."""
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, type(node)
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from ((alias.asname or alias.name, type(node)) for alias in names)
            case ast.Assign() | ast.AnnAssign():
                yield from ((one.id, type(node)) for one in ast.walk(node) if isinstance(one, ast.Name))
            case ast.If() | ast.Try() | ast.With():
                yield "*", type(node)
