"""The report as one HTML page that needs nothing beside it: no script, no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from airflow_backfill_provider.reporting import words
from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.headline import headline
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.reporting.series import measures

_TEMPLATES = Path(__file__).parent / "templates"


def page(facts: Facts, sections: Sequence[Section], files: Sequence[str]) -> str:
    """The page; every text of the ledger is escaped."""
    found = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {name: getattr(words, name) for name in ("number", "change", "moment")}
    found.globals |= {"counted": words.counted}
    return found.get_template("report.html").render(
        facts=facts,
        headline=headline(facts, measures(facts)),
        sections=sections,
        files=files,
        failed=sum(outcome.failed for outcome in facts.outcomes),
    )
