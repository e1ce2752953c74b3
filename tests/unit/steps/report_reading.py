"""Reading a report's files as their readers do."""

from __future__ import annotations

import csv
import html
import io
import re
from decimal import Decimal

from steps_world import World

from airflow_backfill_provider.reporting.documents import documents


class Report:
    """The files of one backfill's report."""

    def __init__(self, world: World) -> None:
        self.files = documents(world.ledger, world.id)
        self.html = self.files["report.html"].decode()

    def rows(self, name: str) -> list[dict[str, str]]:
        """One table, a dictionary for each line."""
        return list(csv.DictReader(io.StringIO(self.files[name].decode())))

    def total(self, column: str) -> Decimal:
        """One column of ``old_vs_new.csv`` added up."""
        return sum((Decimal(row[column]) for row in self.rows("old_vs_new.csv")), start=Decimal(0))

    @property
    def sentence(self) -> str:
        """What the page leads with."""
        found = re.search(r"<h1>(.*?)</h1>", self.html)
        assert found is not None
        return html.unescape(found[1])

    @property
    def text(self) -> str:
        """The page without tags, style and charts."""
        without = re.sub(r"<(style|svg)\b.*?</\1>", " ", self.html, flags=re.DOTALL)
        return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", without)).split())
