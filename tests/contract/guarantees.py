"""Writes what each engine guarantees, from the results of the suite and from its capabilities, into ``docs/warehouses.md``."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from contract_engines import ENGINES

PAGE = Path(__file__).parents[2] / "docs" / "warehouses.md"
START, END = "<!-- guarantees: written by make guarantees -->", "<!-- end of guarantees -->"
PROMISES = {
    "describe": "A table is described as it is, or refused naming what is wrong",
    "windows": "A partition's rows are exactly those in its bounds, on every column type and in every zone",
    "fingerprint": "Fingerprints are equal exactly when the rows are equal as a bag",
    "sources": "A source is read at the version that the plan pinned, or is said to be gone",
    "stage": "A stage holds what its SELECT returned, within its partitions, and is read by nobody else",
    "code": "Code may fill a stage, is held to what a SELECT is held to, and writes nothing else by the connection it gets",
    "measure": "Every metric is of its own partition; nothing to measure is not zero",
    "checks": "Conditions, tables and expressions of a spec measure rows and can do nothing else",
    "compare": "Old and new rows are matched by key; counts always add up",
    "samples": "A sample holds whole rows of keys that differ, the same ones each time, and no column that it was not to hold",
    "keys": "A key that would not be unique in the whole table is found",
    "backup": "A backup holds exactly the affected partitions",
    "publish": "A range is replaced in one commit, or not at all, and nothing else is touched",
    "evolve": "A new column comes with its rows and its comment in one commit, or not at all, and stays empty after the way back",
    "merge": "A merge leaves what a replacement leaves, and writes only what differs",
    "views": "A view is pointed to a new version of its table, and back, in one commit; no row beside the range is lost",
    "shadow": "A publish and its undo can be rehearsed on a copy of a few partitions, and nobody notices",
    "interruptions": "Killed, cut off, cancelled or out of time at any step, a call has happened or has not, and works when repeated",
    "receipts": "A receipt is there exactly when its rows are",
    "storage": "Stages and backups are listed and dropped, and nothing else can be",
}
"""The name of each contract module, without ``test_contract_``, and the promise it holds an engine to."""
_NAMES = [engine.name for engine in ENGINES]


class Tally:
    """A pytest plugin that counts outcomes by promise and engine, and writes the page when all of them are good."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str, str]] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found = re.search(r"test_contract_(\w+)\.py::.*\[(.*)\]", report.nodeid, re.DOTALL)
        if found is None or not (report.when == "call" or report.outcome != "passed"):
            return
        engine = next((name for name in _NAMES if name in found[2].split("-")), None)
        if engine is not None:
            self.counts[found[1], engine, report.outcome] += 1

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == 0 and not hasattr(session.config, "workerinput"):
            write(table(self.counts))


def table(counts: Counter[tuple[str, str, str]]) -> str:
    """The promises, a line each, and a column for each engine; then what the engines say of themselves."""
    lines = [f"| promise | {' | '.join(_NAMES)} |", f"|---|{'---|' * len(_NAMES)}"]
    for module, promise in PROMISES.items():
        cells = []
        for name in _NAMES:
            kept, lacking = counts[module, name, "passed"], counts[module, name, "skipped"]
            cells.append(f"{kept} tests{f', cannot have {lacking}' if lacking else ''}" if kept else "not offered")
        lines.append(f"| {promise} | {' | '.join(cells)} |")
    said = [_capabilities(engine) for engine in ENGINES]
    for title in said[0]:
        lines.append(f"| {title} | {' | '.join(facts[title] for facts in said)} |")
    return "\n".join(lines)


def _capabilities(engine: type) -> dict[str, str]:
    with TemporaryDirectory() as folder:
        warehouse = engine().create(Path(folder))
        try:
            found = warehouse.capabilities
        finally:
            warehouse.close()
    return {
        "Mechanisms": ", ".join(f"`{name}`" for name in sorted(found.mechanisms)),
        "Workers": "one host" if found.one_host else "any host",
        "Not proven": " ".join(found.unproven),
    }


def write(text: str) -> None:
    """Put the table between the page's two marks."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(START)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{START}\n{text}\n{END}{after}", encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Tally(), "guarantees-tally")
