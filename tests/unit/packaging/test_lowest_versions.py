"""The versions that are tried as the lowest ones are those that pyproject.toml claims."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = (
    "databricks",
    "delta",
    "demo",
    "duckdb",
    "postgres",
    "report",
)  # what a user installs; dev is for contributors


def pins(path: str) -> dict[str, Version]:
    lines = (ROOT / path).read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines)
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def claimed() -> dict[str, Requirement]:
    lines = [*PROJECT["dependencies"], *(line for extra in EXTRAS for line in PROJECT["optional-dependencies"][extra])]
    found = [Requirement(line) for line in lines]
    return {canonicalize_name(one.name): one for one in found if one.name != PROJECT["name"]}


def test_every_extra_of_a_user_is_tried() -> None:
    assert {*EXTRAS, "dev"} == set(PROJECT["optional-dependencies"])


def test_every_dependency_claims_a_lowest_version_and_that_one_is_tried() -> None:
    lowest = {name: Version(next(iter(one.specifier)).version) for name, one in claimed().items()}
    tried = pins(".ci/lowest.txt")
    assert all([one.operator for one in requirement.specifier] == [">="] for requirement in claimed().values())
    assert {name: tried[name] for name in lowest} == lowest, "make constraints writes .ci/lowest.txt anew"


def test_the_newest_versions_that_are_tried_are_allowed() -> None:
    tried = pins("constraints.txt")
    assert [name for name, one in claimed().items() if tried[name] not in one.specifier] == []
