"""Charts as SVG inside the page, drawn by matplotlib: no script, no font file, nothing to fetch.

matplotlib comes with the extra ``report``; without it the page has its tables alone.
"""

from __future__ import annotations

import importlib.util
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from airflow_backfill_provider.range_evidence import RangeFound
from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.series import Series, thinned

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 400
"""Partitions that a chart draws at most."""
_MARKED = 45
"""Up to so many, each is marked; a lone partition would be no line."""

# Colours that matplotlib writes, and the page's own names for them, so that light and dark are the page's affair.
_INKS = {
    "#010203": "var(--muted)",
    "#010204": "var(--grid)",
    "#010205": "var(--old)",
    "#010206": "var(--new)",
    "#010207": "var(--up)",
    "#010208": "var(--down)",
    "#010209": "var(--changed)",
}
_MUTED, _GRID, _OLD, _NEW, _UP, _DOWN, _CHANGED = _INKS
_SHAPES = {"wide": (10.4, 3.5, 6), "narrow": (3.5, 3.4, 2)}
"""Width and height in inches, and how many partitions the axis names."""
_LETTER, _LINE = 0.075, 0.22
"""Inches that a letter of the axes is wide, and that a line of text is high. The browser chooses the font, so nobody can know
it better; to let matplotlib measure its own font would draw each picture twice."""
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "safe-backfill",  # the same numbers give the same bytes
    "text.parse_math": False,  # a partition's key may hold a dollar sign
    "font.size": 9,
    "axes.linewidth": 0.6,
    "axes.formatter.useoffset": False,
    "text.color": _MUTED,
    "axes.labelcolor": _MUTED,
    "axes.edgecolor": _GRID,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
}


@dataclass(frozen=True)
class Chart:
    """One picture in the shapes that the page chooses from by its width."""

    title: str
    svg: dict[str, str]
    each: int
    """Partitions that one point stands for, at most."""


def available() -> bool:
    """Whether charts can be drawn here."""
    return importlib.util.find_spec("matplotlib") is not None


def drawn(facts: Facts, wanted: Sequence[Series]) -> list[Chart]:
    """Old, new and delta of every number, and the rows that differ; none without matplotlib."""
    if not available():
        return []
    keys = [line.key for line in facts.lines]
    each = -(-len(keys) // POINTS)
    charts = [
        Chart(one.name, {shape: _svg(_old_and_new, f"{number}-{shape}", shape, keys, one) for shape in _SHAPES}, each)
        for number, one in enumerate(wanted)
    ]
    if any(line.compared and line.compared.differing for line in facts.lines):
        shapes = {shape: _svg(_differing, f"rows-{shape}", shape, keys, facts) for shape in _SHAPES}
        charts.insert(0, Chart("rows that differ", shapes, each))
    return charts


def level(title: str, found: RangeFound) -> Chart | None:
    """A number over the range and its margin; None without matplotlib."""
    if not available():
        return None
    keys = [point.key for point in found.points]
    shapes = {shape: _svg(_level, f"level-{shape}", shape, keys, found) for shape in _SHAPES}
    return Chart(title, shapes, -(-len(keys) // POINTS))


def _level(axes: Sequence[Axes], width: float, found: RangeFound) -> list[int]:
    values = [float("nan") if point.value is None else point.value for point in found.points]
    steps = [abs(new - old) if new == new and old == old else 0.0 for old, new in pairwise([values[0], *values])]
    places = thinned(steps, POINTS)
    across, marker, (only,) = range(len(places)), "o" if len(places) <= _MARKED else "", axes
    only.plot(across, [values[place] for place in places], "-", color=_NEW, marker=marker, markersize=3, linewidth=1.4)
    inside = [number for number, place in enumerate(places) if found.points[place].in_range]
    if inside:
        only.axvspan(inside[0] - 0.5, inside[-1] + 0.5, color=_GRID, alpha=0.5, linewidth=0, label="the range")
    keys = [found.points[place].key for place in places]
    for boundary in found.boundaries:
        if not boundary.agrees and boundary.candidate in keys:
            edge = keys.index(boundary.candidate) + (-0.5 if boundary.side == "start" else 0.5)
            only.axvline(edge, color=_DOWN, linestyle="--", linewidth=1.2, label="where its level changes")
    handles, labels = only.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    only.legend(
        unique.values(), unique, loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, borderaxespad=0.1
    )
    only.set_ylabel("value")
    return places


def _old_and_new(axes: Sequence[Axes], width: float, series: Series) -> list[int]:
    upper, lower = axes
    places = thinned([one.moved for one in series.points], POINTS)
    points = [series.points[place] for place in places]
    across, marker = range(len(points)), "o" if len(points) <= _MARKED else ""
    sides = (("old", [one.old for one in points], _OLD, "--"), ("new", [one.new for one in points], _NEW, "-"))
    for name, values, ink, style in sides:
        heights = [float("nan") if value is None else float(value) for value in values]
        upper.plot(across, heights, style, color=ink, marker=marker, markersize=3, linewidth=1.4, label=name)
    upper.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=2, frameon=False, borderaxespad=0.1)
    deltas = [0.0 if one.delta is None else float(one.delta) for one in points]
    for ink, sign in ((_UP, 1), (_DOWN, -1)):
        some = [(place, 0.0, delta) for place, delta in enumerate(deltas) if delta * sign > 0]
        _bars(lower, some, ink, _wide(len(points), width))
    lower.margins(y=0.12)
    lower.axhline(0, color=_MUTED, linewidth=0.6)
    upper.set_ylabel("value")
    lower.set_ylabel("new − old")
    return places


def _differing(axes: Sequence[Axes], width: float, facts: Facts) -> list[int]:
    lines = [line.compared for line in facts.lines]
    places = thinned([(line.differing if line else None) or 0 for line in lines], POINTS)
    across, (only,) = range(len(places)), axes
    floor = [0] * len(places)
    for what, ink in (("changed", _CHANGED), ("added", _UP), ("removed", _DOWN)):
        heights = [(getattr(lines[place], what, None) or 0) for place in places]
        if any(heights):
            top = [low + height for low, height in zip(floor, heights, strict=True)]
            _bars(only, zip(across, floor, top, strict=True), ink, _wide(len(places), width), label=what)
            floor = top
    only.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=3, frameon=False, borderaxespad=0.1)
    only.set_ylabel("rows")
    only.set_ylim(bottom=0)
    return places


def _svg(
    draw: Callable[..., list[int]], name: str, shape: str, keys: Sequence[str], about: Series | Facts | RangeFound
) -> str:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    width, height, ticks = _SHAPES[shape]
    whole = draw is _differing or (isinstance(about, Series) and about.name == "rows")
    panels = [2, 1] if draw is _old_and_new else [1]
    with matplotlib.rc_context(_STYLE):
        height = height if len(panels) > 1 else 0.65 * height
        figure = Figure(figsize=(width, height))
        FigureCanvasSVG(figure)
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, gridspec_kw={"height_ratios": panels})[:, 0]
        places = draw(axes, width, about)
        for one in axes:
            one.spines[["top", "right", "left"]].set_visible(False)
            one.grid(axis="y")
            one.set_axisbelow(True)
            one.yaxis.set_major_locator(MaxNLocator(4 if one is axes[0] else 2, integer=whole, min_n_ticks=1))
            one.yaxis.set_major_formatter(FuncFormatter(_tick))
        named = range(0, len(places), max(1, -(-(len(places) - 1) // (ticks - 1))))
        names = [_cut(keys[places[place]]) for place in named]
        axes[-1].set_xticks(named, names)
        axes[-1].set_xlim(-0.6, len(places) - 0.4)
        _give_room(figure, list(axes), names, (named[-1] + 0.6) / (len(places) + 0.2))
        written = io.StringIO()
        figure.savefig(
            written, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    return _inline(written.getvalue(), name)


def _give_room(figure: Figure, axes: Sequence[Axes], named: Sequence[str], last: float) -> None:
    """Leave the margins that the texts around the axes need.

    :param last: how far along the axis the last partition is named, from 0 to 1.
    """
    width, height = figure.get_size_inches()
    longest = max(len(_tick(value, None)) for one in axes for value in one.get_yticks())
    left = _LINE + _LETTER * (longest + 2)
    beyond = _LETTER * len(named[-1]) / 2 - (1 - last) * (width - left)
    figure.subplots_adjust(
        left=left / width,
        right=1 - max(_LETTER, beyond) / width,
        top=1 - 1.4 * _LINE / height,
        bottom=1.4 * _LINE / height,
        hspace=0.12,
    )


def _bars(axes: Axes, bars: Iterable[tuple[float, float, float]], ink: str, wide: float, label: str = "") -> None:
    """Upright bars, each by where it stands, from and to, as one line with gaps: hundreds cost as much to draw as one."""
    gap = float("nan")
    points = [point for at, low, high in bars for point in ((at, low), (at, high), (gap, gap))]
    across, heights = zip(*points, strict=True) if points else ((), ())
    axes.plot(across, heights, "-", color=ink, linewidth=wide, solid_capstyle="butt", label=label or None)


def _wide(count: int, width: float) -> float:
    """Points that a bar is wide in a picture of so many inches, so that neighbours do not touch."""
    return max(0.8, min(14.0, 0.62 * 72 * (width - 0.8) / count))


def _tick(value: float, _: object) -> str:
    for size, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            unit = 1e3 if letter == "k" else size
            return f"{value / unit:,.6g} {letter}".replace("-", "−")
    return f"{value:,.6g}".replace("-", "−")


def _cut(key: str) -> str:
    return key if len(key) <= 20 else f"{key[:19]}…"


def _inline(svg: str, name: str) -> str:
    """The picture for a page that holds several: ids of its own, the page's colours, the size of its place."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"\s*<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>chart-{name}-", svg)
    svg = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" aria-hidden="true">', svg, count=1)
    for ink, variable in _INKS.items():
        svg = svg.replace(ink, variable)
    return svg
