"""Parts of HTML pages that load nothing from a network: the page's frame, tables and SVG charts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from string import Template

WIDTH, HEIGHT = 760, 220
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 10, 28
"""Margins around the area of the curves. The sizes of charts are in units of the SVG's `viewBox`."""
LABEL_WIDTH = 80
"""Maximum width of a label below the axis."""
COLUMNS = 600
"""Number of columns of a chart. Each shows its smallest and largest value, because more points would not be visible."""
COLOURS = ("var(--a)", "var(--b)", "var(--c)", "var(--d)")
LOG_RATIO = 100.0
"""Ratio of largest to smallest value above which an axis of positive values, other than percentages, is logarithmic."""
MANY_CELLS = 1024
"""Number of ranks above which a grid has one shape for each colour, not for each rank. This keeps pages small."""

Point = tuple[float, float]

_DOCUMENT = Template("""\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
:root { --back: #fff; --text: #1d2129; --dim: #626b78; --line: #dfe3e8; --box: #f6f7f9;
  --a: #2563c9; --good: #1f7a48; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --back: #15181d; --text: #e4e7eb; --dim: #9aa4b1; --line: #313740;
  --box: #1d2127; --a: #6ea3f7; --good: #6cc997; --bad: #f28b82; } }
body { margin: 0 auto; padding: 24px 16px 48px; max-width: 960px; background: var(--back); color: var(--text);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 26px; margin: 0; } h2 { font-size: 18px; margin: 32px 0 8px; }
p.sub { color: var(--dim); margin: 4px 0 16px; } .good { color: var(--good); } .bad { color: var(--bad); }
table { border-collapse: collapse; width: 100%; font-size: 14px; }
td, th { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td { overflow-wrap: anywhere; } th { font-weight: 500; color: var(--dim); white-space: nowrap; width: 1%; }
td.num, th.num { text-align: right; font-variant-numeric: tabular-nums; }
$style</style>
</head>
<body>
$body</body>
</html>
""")


def document(title: str, *, style: str, body: str) -> str:
    """Return a page. `title` is plain text; `style` adds CSS rules to the common rules."""
    return _DOCUMENT.substitute(title=escape(title), style=style, body=body)


@dataclass(frozen=True, kw_only=True)
class Series:
    """Curve of a chart."""

    name: str
    points: Sequence[Point]
    """Step and value of each point, in the order of the steps."""


def thinned(points: Sequence[Point], columns: int = COLUMNS) -> list[Point]:
    """Return at most two points a column, the smallest and the largest. Drop values that are not finite."""
    finite = [(x, y) for x, y in points if math.isfinite(y)]
    if len(finite) <= 2 * columns:
        return finite
    first, last = finite[0][0], finite[-1][0]
    width = (last - first) / columns or 1.0
    found: list[Point] = []
    column, least, most = 0, finite[0], finite[0]
    for point in finite:
        place = min(int((point[0] - first) / width), columns - 1)
        if place != column:
            found += sorted({least, most})
            column, least, most = place, point, point
        elif point[1] < least[1]:
            least = point
        elif point[1] > most[1]:
            most = point
    return found + sorted({least, most})


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers between two values."""
    if not high > low:
        return [low]
    raw = (high - low) / count
    size = 10 ** math.floor(math.log10(raw))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= raw)
    first = math.ceil(low / step)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


ROUND_SECONDS = (*(1, 2, 5, 10, 30, 60, 120, 300, 600, 1800), *(3600, 7200, 10800, 21600, 43200, 86400))
"""Distances between two labels of a time axis. Above a day, they are round numbers of days."""


def time_ticks(seconds: float, count: int = 6) -> list[float]:
    """Return about `count` round times from 0 to `seconds`."""
    step = next((each for each in ROUND_SECONDS if each * count >= seconds), None)
    if step is None:
        return [86400 * days for days in ticks(0, seconds / 86400, count)]
    return [float(step * place) for place in range(math.floor(seconds / step) + 1)]


def time_label(seconds: float) -> str:
    """Return a round time in its two largest units, such as `30 s`, `1 min 30 s` or `2 h`."""
    rest, words = round(seconds), []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        whole, rest = divmod(rest, size)
        if whole:
            words.append(f"{whole:,} {unit}")
    return " ".join(words[:2]) or "0 s"


def format_number(value: float) -> str:
    """Return a number as short text, such as `0.1235`, `12,346` or `1.5e6`."""
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


@dataclass(frozen=True)
class _Scale:
    """Linear or logarithmic map of the values `low` to `high` to the coordinates `first` to `last`."""

    low: float
    high: float
    first: float
    last: float
    is_log: bool = False

    def __call__(self, value: float) -> float:
        low, high = (math.log(self.low), math.log(self.high)) if self.is_log else (self.low, self.high)
        value = math.log(value) if self.is_log else value
        share = (value - low) / (high - low) if high > low else 0.5
        return self.first + share * (self.last - self.first)

    def ticks(self) -> list[float]:
        if not self.is_log:
            return ticks(self.low, self.high)
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        return [10.0**power for power in powers if self.low <= 10.0**power <= self.high] or [self.low, self.high]


def curves(series: Sequence[Series], *, unit: str, marks: Sequence[tuple[float, str]] = ()) -> str:
    """Return a chart of curves over steps; empty without points. `marks` are vertical lines: step and tooltip."""
    drawn = [Series(name=each.name, points=thinned(each.points)) for each in series]
    drawn = [each for each in drawn if each.points]
    if not drawn:
        return ""
    xs = [x for each in drawn for x, _ in each.points]
    ys = [y for each in drawn for _, y in each.points]
    is_log = min(ys) > 0 and max(ys) / min(ys) > LOG_RATIO and not unit.startswith("percent")
    across = _Scale(min(xs), max(xs), LEFT, WIDTH - RIGHT)
    up = _Scale(min(ys), max(ys), HEIGHT - BOTTOM, TOP, is_log)
    parts = [*_axes(across, up), *_marks(marks, across)]
    for place, each in enumerate(drawn):
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in each.points)
        colour = COLOURS[place % len(COLOURS)]
        if len(each.points) == 1:
            x, y = each.points[0]
            parts.append(f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" fill="{colour}"/>')
        else:
            parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    legend = "".join(
        f'<span><i style="background:{COLOURS[place % len(COLOURS)]}"></i>{escape(each.name)}</span>'
        for place, each in enumerate(drawn)
    )
    scale = ", logarithmic" if is_log else ""
    return (
        f'<figure><figcaption>{legend}<span class="unit">{escape(unit)}{scale}, over steps</span></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(unit)}">{"".join(parts)}</svg></figure>'
    )


def _axes(across: _Scale, up: _Scale) -> Iterator[str]:
    for value in up.ticks():
        y = up(value)
        yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{format_number(value)}</text>'
    for value in ticks(across.low, across.high, 8):
        yield _label(across(value), HEIGHT - 10, format_number(value))


def _label(x: float, y: int, text: str) -> str:
    """Return a label centred at `x` below an axis. Near the right edge, the label ends at `x` instead."""
    anchor = "end" if x > WIDTH - LABEL_WIDTH / 2 else "middle"
    return f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}">{text}</text>'


def _marks(marks: Sequence[tuple[float, str]], across: _Scale) -> Iterator[str]:
    for step, text in marks:
        if across.low <= step <= across.high:
            x = across(step)
            yield (
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}" class="mark">'
                f"<title>{escape(text)}</title></line>"
            )


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Coloured part of a time line."""

    begun: float
    ended: float
    colour: str
    text: str
    """Tooltip."""


def time_line(attempts: Sequence[Bar], bars: Sequence[Bar], dots: Sequence[tuple[float, str]]) -> str:
    """Return a time line with rows of attempts, of `bars` and of dots; empty without attempts.

    `dots` are the times of checkpoints and their tooltips. All times are seconds since 1970.
    """
    if not attempts:
        return ""
    begun = min([attempts[0].begun, *(each.begun for each in bars[:1])])
    ended = max([begun + 1, attempts[-1].ended, *(each.ended for each in bars[-1:])])
    across = _Scale(begun, ended, LEFT, WIDTH - RIGHT)
    parts = []
    for place, each in enumerate(attempts):
        x, width = across(each.begun), max(2.0, across(each.ended) - across(each.begun))
        parts.append(_bar(x, 8, width, 20, each.colour, each.text))
        if width > 24:
            parts.append(f'<text x="{x + 6:.1f}" y="22" class="on">{place + 1}</text>')
    for bar in bars:
        width = max(1.0, across(bar.ended) - across(bar.begun))
        parts.append(_bar(across(bar.begun), 34, width, 16, bar.colour, bar.text))
    for moment, text in dots:
        if begun <= moment <= ended:
            title = f"<title>{escape(text)}</title>"
            parts.append(f'<circle cx="{across(moment):.1f}" cy="60" r="3.5" fill="var(--b)">{title}</circle>')
    parts += [_label(across(begun + value), 84, time_label(value)) for value in time_ticks(ended - begun)]
    rows = (("attempt", 22), ("spent on", 46), ("saved", 64))
    parts += [f'<text x="{LEFT - 6}" y="{y}" text-anchor="end">{name}</text>' for name, y in rows]
    return f'<figure><svg viewBox="0 0 {WIDTH} 92" role="img" aria-label="time line">{"".join(parts)}</svg></figure>'


def _bar(x: float, y: int, width: float, height: int, colour: str, text: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}">'
        f"<title>{escape(text)}</title></rect>"
    )


def rank_grid(colours: Sequence[str], texts: Sequence[str]) -> str:
    """Return a grid with a cell for each rank; `texts` are tooltips. Above MANY_CELLS ranks there are no tooltips."""
    if not colours:
        return ""
    cell = 24 if len(colours) <= 62 else 12 if len(colours) <= 1000 else 6
    columns = WIDTH // cell
    is_merged = len(colours) > MANY_CELLS
    parts = []
    paths: dict[str, list[str]] = {}
    for rank, (colour, text) in enumerate(zip(colours, texts, strict=True)):
        x, y, side = rank % columns * cell, rank // columns * cell, cell - 2
        if is_merged:
            paths.setdefault(colour, []).append(f"M{x} {y}h{side}v{side}h-{side}z")
            continue
        parts.append(_bar(x, y, side, side, colour, text))
        if cell == 24:
            parts.append(f'<text x="{x + side / 2:.0f}" y="{y + 15}" text-anchor="middle" class="on">{rank}</text>')
    parts += [f'<path d="{"".join(found)}" fill="{colour}"/>' for colour, found in paths.items()]
    height = math.ceil(len(colours) / columns) * cell
    return f'<figure><svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="ranks">{"".join(parts)}</svg></figure>'


def table(rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of names and values; empty without rows."""
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f"<table>{cells}</table>" if cells else ""


def format_clock(seconds: float) -> str:
    """Return a duration as text, such as `40 s`, `2:05` for minutes, or `1:02:05` for hours."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
