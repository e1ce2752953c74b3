"""All files of one backfill's report, by name."""

from __future__ import annotations

import json

from airflow_backfill_provider.ledger.store import Ledger
from airflow_backfill_provider.reporting.facts import read
from airflow_backfill_provider.reporting.page import page
from airflow_backfill_provider.reporting.sections import SECTIONS

PAGE = "report.html"
PLAN = "plan.json"


def documents(ledger: Ledger, backfill_id: str) -> dict[str, bytes]:
    """Every file's content; the page is the last. The same ledger gives the same bytes.

    :raises LedgerError: there is no such backfill.
    """
    facts = read(ledger, backfill_id)
    sections = [section for make in SECTIONS if (section := make(facts)) is not None]
    files = {name: table.csv() for section in sections for name, table in section.files.items()}
    files[PLAN] = json.dumps(facts.plan.document(), indent=2, sort_keys=True, ensure_ascii=False).encode()
    files[PAGE] = page(facts, sections, [PAGE, *files]).encode()
    return files
