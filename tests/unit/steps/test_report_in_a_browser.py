"""The report in a real browser: on a phone and on a screen, in light and in dark, without any network."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chromium
import pytest
from report_reading import Report
from steps_world import DAYS, World, make_spec

pytestmark = pytest.mark.skipif(
    chromium.installed() is None,
    reason="NO BROWSER: the report was looked at by nobody. Install chromium (.ci/need-chromium does, as root)",
)
LOOKS = [(width, dark) for width in (400, 1400) for dark in (False, True)]
CONTROL = DAYS[8:]
# The colour of each text against what is painted behind it, as WCAG 2 counts contrast.
FAINT = """(() => {
  const numbers = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => {
    const part = value => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
    return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  };
  const behind = element => {
    for (let one = element; one; one = one.parentElement) {
      const color = numbers(getComputedStyle(one).backgroundColor);
      if (color.length === 3 || color[3] > 0.99) return color;
    }
    return matchMedia('(prefers-color-scheme: dark)').matches ? [18, 18, 18] : [255, 255, 255];
  };
  const found = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement, text = texts.currentNode.textContent.trim();
    const box = element.getBoundingClientRect();
    if (!text || !box.width || element.closest('style, script, title, desc, metadata')) continue;
    const style = getComputedStyle(element);
    const color = numbers(element.closest('svg') ? style.fill : style.color);
    const [one, other] = [light(color), light(behind(element))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < 4.5 || style.visibility === 'hidden') found.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return found;
})()"""
CHARTS = """Array.from(document.querySelectorAll('svg')).map(one => {
  const box = one.getBoundingClientRect();
  return [box.width, box.height, one.querySelectorAll('path').length];
})"""


@pytest.fixture
def report(world: World, tmp_path: Path) -> Iterator[tuple[Path, chromium.Page]]:
    """The page of a published backfill with every kind of evidence, and a browser."""
    listed = ", ".join(f"'{day}'" for day in CONTROL)
    for table in ("raw.orders", "analytics.orders"):
        world.engine.execute(f"UPDATE {table} SET amount = amount * 1000000")  # so that sums are wide
    world.engine.execute(
        f"UPDATE analytics.orders SET amount = NULL WHERE order_id % 100 = 0 AND order_date IN ({listed})"
    )
    total: dict[str, Any] = {"column": "amount", "change_between": ["-40%", "0%"]}
    world.spec = make_spec(
        compare=[{"sum": total}, {"avg": total | {"change_between": ["-5%", "5%"]}}, {"row_diff": {"max_added": 0}}],
        control_period={"partitions": list(CONTROL)},
        range={
            "evidence": {
                "introduced_by": "refunds that were counted as sales",
                "introduced_at": DAYS[0],
                "metric": {"column": "amount", "aggregate": "null_rate"},
            }
        },
        report_queries=[
            {"name": "turnover", "sql": "SELECT sum(amount) FROM analytics.orders", "change_between": ["-40%", "0%"]}
        ],
        samples=3,
        samples_in_report=True,
    )
    scoped = world.scope(start_date=DAYS[0], end_date=DAYS[7], reason="Refunds were counted as sales.")
    world.try_one()
    world.hold_control()
    world.stage(scoped)
    world.validate(scoped)
    world.publish()
    file = tmp_path / "report.html"
    file.write_text(Report(world).html, encoding="utf-8")
    with chromium.page(tmp_path / "browser") as page:
        yield file, page


def test_it_fits_a_phone_and_a_screen_can_be_read_in_the_dark_and_asks_nobody_for_anything(
    report: tuple[Path, chromium.Page],
) -> None:
    file, page = report
    pictures = os.environ.get("REPORT_PICTURES")
    for width, dark in LOOKS:
        look = f"{width} px, {'dark' if dark else 'light'}"
        page.open(file, width=width, dark=dark)
        if pictures:
            page.picture(Path(pictures) / f"report-{width}-{'dark' if dark else 'light'}.png")
        assert page.value("document.documentElement.scrollWidth") <= width, look
        assert page.value(FAINT) == [], look
        shown = [chart for chart in page.value(CHARTS) if chart[0] > 0]
        assert len(shown) >= 3, look
        assert all(chart[0] <= width and chart[1] > 40 and chart[2] > 3 for chart in shown), f"{look}: {shown}"
    assert {url.partition("?")[0] for url in page.requests if not url.startswith("data:")} == {file.as_uri()}
    headings = page.value("Array.from(document.querySelectorAll('h1, h2')).map(one => one.textContent.trim())")
    assert headings[0].startswith("analytics.orders, 2024-03-01 to 2024-03-08: 8 of 48 rows changed")
    assert headings[1:5] == ["Old and new", "Outcome of each partition", "Expected and found", "Checks"]
