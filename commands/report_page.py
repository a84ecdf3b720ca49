"""HTML page of a job's report, which loads nothing from a network."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from html import escape
from string import Template
from typing import Any

from commands.html import Bar, Series, curves, document, format_clock, format_number, rank_grid, table, time_line
from commands.report import JobReport
from commands.run_times import MEANINGS, STRAGGLER_SPEED, goodput, saved_step, speeds, without_short
from settings.text import counted

CHARTS = (
    ("Loss", "loss", (("train", "loss", "training"), ("test", "loss", "test"))),
    ("Accuracy", "percent", (("train", "accuracy", "training"), ("test", "accuracy", "test"))),
    ("Bits per byte", "bits per byte", (("train", "bits_per_byte", "training"), ("test", "bits_per_byte", "test"))),
    ("Rate", "samples or tokens a second", (("train", "global_rate", "all ranks"), ("train", "rate", "rank 0"))),
    ("Waiting for data", "percent of each step", (("train", "data_wait", "rank 0"),)),
    ("Goodput", "percent of the time spent training", (("train", "goodput", "rank 0"),)),
)
"""Title, unit and curves of each chart. A curve has the name of an event, the key of its value and a label."""
RECORD_ROWS = {
    "commit": "commit",
    "dirty": "uncommitted changes",
    "diff_digest": "digest of the changes",
    "script_digest": "digest of the files sent",
    "trainyard_commit": "commit of Trainyard",
    "plan": "digest of the settings",
    "image": "image",
    "accelerator": "accelerator",
    "chips": "chips",
    "pools": "pools",
    "checkpoints": "checkpoints in the bucket",
}
NO_CURVES_TEXT = (
    "No metrics of the job can be read, and its logs have no event. A script gets curves if rank 0 prints lines such "
    "as <code>train step=12 loss=0.35</code>; the page <i>My script</i> of the documentation lists them."
)
STOPPED_TEXT = (
    "The job is stopped. Its log was deleted with its pods, and no metrics can be read. A script that also appends its "
    "steps to a file in the bucket keeps them; see the page <i>My script</i> of the documentation."
)
"""Text in place of the curves of a stopped job without events. NO_CURVES_TEXT is for other jobs."""
START_KEYS = ("device", "precision", "threads", "model", "recipe", "node", "host", "python", "torch", "ranks")
MAX_BARS = 400
"""Maximum number of bars of the time line. Shorter bars would not be visible."""
RANK_COLOURS = {"succeeded": "var(--training)", "failed": "var(--lost)", "running": "var(--a)"}
"""Colour of a rank by the state of its host; other states have the colour of waiting."""
STATE_CLASSES = {"complete": "good", "running": "good", "failed": "bad", "absent": "bad"}
STYLE = """\
:root { --b: #c2541b; --c: #2f8f5b; --d: #8a93a0; --waiting: #b9c0ca; --set-up: #8b6fc4; --training: #2f8f5b;
  --evaluating: #3a9fb5; --saving: #d19a1c; --lost: #c8372d; --slow: #e0761f; }
@media (prefers-color-scheme: dark) { :root { --b: #ef9a63; --c: #6cc997; --d: #7b8592; --waiting: #4a525e;
  --set-up: #a48be0; --training: #55b283; --evaluating: #5cbcd0; --saving: #dcae45; --lost: #e5675e;
  --slow: #ef9a4b; } }
body { max-width: 860px; }
h3 { font-size: 15px; margin: 20px 0 2px; font-weight: 600; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 10px; }
.tile { background: var(--box); border: 1px solid var(--line); border-radius: 8px; padding: 10px 12px; }
.tile b { display: block; font-size: 20px; font-weight: 600; overflow-wrap: anywhere; }
.tile span { color: var(--dim); font-size: 13px; }
figure { margin: 0 0 8px; }
figcaption { font-size: 13px; color: var(--dim); display: flex; flex-wrap: wrap; gap: 14px; }
figcaption i { display: inline-block; width: 10px; height: 10px; border-radius: 2px; margin-right: 5px; }
figcaption .unit { margin-left: auto; } td.key, th.key { width: 12px; padding-right: 6px; }
.key svg { width: 10px; height: 10px; }
svg { width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: var(--dim); }
svg text.on { fill: var(--back); } .grid { stroke: var(--line); } .mark { stroke: var(--d); stroke-dasharray: 3 3; }
pre { background: var(--box); border: 1px solid var(--line); border-radius: 8px; padding: 12px; overflow-x: auto;
  font-size: 13px; }
pre.log { white-space: pre-wrap; overflow-wrap: anywhere; }
footer { margin-top: 40px; color: var(--dim); font-size: 13px; }
"""
BODY = Template("""\
<h1>$job</h1>
<p class="sub">stack $stack, $subtitle</p>
<div class="tiles">$tiles</div>
$reason
$end
$fresh
<h2>Curves</h2>
$charts
<h2>Time line</h2>
$line
$troubles
$goodput
$ranks
<h2>Environment</h2>
$environment
<h2>Settings that differ from the defaults</h2>
$settings
<h2>Price</h2>
$price
<footer>Written $written by Trainyard. This file needs no network.</footer>
""")


def page(report: JobReport) -> str:
    """Return the page."""
    state = report.state
    is_unknown = state.state == "suspended" and not report.events
    why = "is stopped" if is_unknown else "has printed no <code>start</code> event"
    kind = f"{state.kind}, {counted(state.hosts, 'host')}" if state.kind else "not in the cluster"
    reason = f'<p class="bad">{escape(state.reason)}</p>' if state.reason and state.state == "failed" else ""
    body = BODY.substitute(
        job=escape(report.job),
        stack=escape(report.stack),
        subtitle=escape(", ".join(filter(None, (kind, _span(report))))),
        tiles="".join(_tiles(report)),
        reason=reason,
        end=f'<pre class="log">{escape(chr(10).join(report.end))}</pre>' if report.end else "",
        fresh=f"<p>{fresh_text(report.fresh_start)}</p>" if report.fresh_start else "",
        charts="".join(_charts(report)) or f"<p>{STOPPED_TEXT if is_unknown else NO_CURVES_TEXT}</p>",
        line=_time_line(report) or f"<p>The attempts are unknown: the job {why}.</p>",
        troubles=_troubles(report),
        goodput=_goodput(report),
        ranks=_ranks(report),
        environment=_environment(report),
        settings=f"<pre>{escape(report.settings)}</pre>"
        if report.settings
        else "<p>The settings no longer have this job.</p>",
        price=_price(report),
        written=escape(report.written),
    )
    return document(f"{report.job}: {state.state}", style=STYLE, body=body)


def fresh_text(moment: str) -> str:
    """Return a sentence about the last `rerun --fresh`, which was at `moment`."""
    return f"The job started from the beginning at {moment} (rerun --fresh); earlier runs do not count here."


def _span(report: JobReport) -> str:
    started, finished = report.record.get("started"), report.record.get("finished")
    if not started:
        return ""
    return f"{_plain_time(started)} to {_plain_time(finished)}" if finished else f"since {_plain_time(started)}"


def _plain_time(stamp: str) -> str:
    """Return a Kubernetes time, such as `2026-11-27T16:23:50Z`, in the format of the page."""
    return stamp.replace("T", " ").replace("Z", " UTC")


def _tiles(report: JobReport) -> Iterable[str]:
    """Yield the numbers at the top of the page."""
    css = STATE_CLASSES.get(report.state.state, "")
    yield f'<div class="tile"><b class="{css}">{escape(report.state.state)}</b><span>state</span></div>'
    done = (report.events_named("done") or [{}])[-1]
    results = {
        "test_accuracy": ("test accuracy", " %"),
        "best_accuracy": ("best accuracy", " %"),
        "test_bits_per_byte": ("test bits per byte", ""),
    }
    for key, (name, unit) in results.items():
        if isinstance(done.get(key), int | float):
            yield _tile(f"{done[key]:.4g}{unit}", name)
    if losses := report.curve("train", "loss"):
        yield _tile(format_number(losses[-1][1]), f"training loss at step {losses[-1][0]:,.0f}")
    if rates := report.curve("train", "global_rate"):
        median = sorted(rate for _, rate in rates)[len(rates) // 2]
        yield _tile(format_number(median), "samples or tokens a second (median)")
    if hours := report.record.get("hours"):
        yield _tile(format_clock(hours * 3600), f"from {'last ' if report.state.is_resumed else ''}start to end")
    if report.events_named("start") or report.restarts:
        restarts = report.attempts - 1
        one, several = "restart or resume", "restarts or resumes"
        if report.is_partial:
            one, several = "restart since its last start", "restarts since its last start"
        yield _tile(str(restarts), one if restarts == 1 else several)
    if isinstance(report.record.get("usd"), int | float):
        yield _tile(f"${report.record['usd']:,.2f}", "cost of its hosts (estimate)")


def _tile(value: str, name: str) -> str:
    return f'<div class="tile"><b>{escape(value)}</b><span>{escape(name)}</span></div>'


def _charts(report: JobReport) -> Iterable[str]:
    """Yield the charts that have points, with a line at each resume."""
    marks = [
        (float(step), f"resumed from step {step}")
        for event in report.events_named("resume")
        if (step := saved_step(event)) is not None
    ]
    for title, unit, lines in CHARTS:
        series = [Series(name=name, points=report.curve(event, key)) for event, key, name in lines]
        if drawn := curves([each for each in series if each.points], unit=unit, marks=marks):
            yield f"<h3>{title}</h3>{drawn}"


def _time_line(report: JobReport) -> str:
    """Return the time line with a bar for each attempt, bars for the causes of time, and a dot for each checkpoint."""
    starts = report.events_named("start")
    attempts = []
    for place, start in enumerate(starts):
        is_last = place == len(starts) - 1
        limit = float("inf") if is_last else float(starts[place + 1]["time"])
        inside = [event for event in report.events if float(start["time"]) <= float(event["time"]) < limit]
        ended = float(inside[-1]["time"])
        resumed = next((event for event in inside if event["event"] == "resume"), None)
        first = next((event["global_step"] for event in inside if event.get("global_step") is not None), None)
        begin = "no step yet" if first is None else f"first line at step {first}"
        if resumed and (step := saved_step(resumed)) is not None:
            begin = f"from step {step}"
        text = f"attempt {place + 1}, {begin}, {_moment(start['time'])}, {format_clock(ended - float(start['time']))}"
        colour = "var(--a)" if is_last else "var(--d)"
        attempts.append(Bar(begun=float(start["time"]), ended=ended, colour=colour, text=text))
    dots = [
        (float(event["time"]), f"{saved_text(event)}, {_moment(event['time'])}")
        for event in report.events_named("checkpoint")
    ]
    spans = without_short(report.times.spans(report.until), MAX_BARS) if attempts else []
    bars = [
        Bar(
            begun=each.begun,
            ended=each.ended,
            colour=f"var(--{each.cause})",
            text=f"{each.cause}, {_moment(each.begun)}, {format_clock(each.seconds)}",
        )
        for each in spans
        if each.cause in MEANINGS
    ]
    return time_line(attempts, bars, dots) + table((f"{place + 1}", each.text) for place, each in enumerate(attempts))


def saved_text(event: Mapping[str, Any]) -> str:
    """Return the text of a `checkpoint` event, with its step if it has one."""
    step = saved_step(event)
    return "checkpoint" if step is None else f"checkpoint of step {step}"


def _troubles(report: JobReport) -> str:
    rows = table((_moment(moment), text) for moment, text in report.troubles)
    return f"<h3>Restarts and failures</h3>{rows}" if rows else ""


def _goodput(report: JobReport) -> str:
    found = report.seconds
    percent = goodput(found)
    if percent is None:
        return ""
    total = sum(each for cause, each in found.items() if cause in MEANINGS)
    rows = "".join(
        f'<tr><td class="key"><svg viewBox="0 0 1 1"><rect width="1" height="1" fill="var(--{cause})"/></svg></td>'
        f'<th>{cause}</th><td class="num">{format_clock(found[cause])}</td>'
        f'<td class="num">{100 * found[cause] / total:.1f} %</td>'
        f"<td>{MEANINGS[cause]}</td></tr>"
        for cause in MEANINGS
        if cause in found
    )
    return f"<h3>Goodput: {percent:.1f} % of the time was spent training</h3><table>{rows}</table>"


def _ranks(report: JobReport) -> str:
    count = max([*report.rank_states, *report.ranks, -1]) + 1
    if not count:
        return ""
    found = speeds(report.ranks)
    colours, texts = [], []
    for rank in range(count):
        state, speed = report.rank_states.get(rank, ""), found.get(rank)
        is_slow = speed is not None and speed < STRAGGLER_SPEED and state != "failed"
        colours.append("var(--slow)" if is_slow else RANK_COLOURS.get(state, "var(--waiting)"))
        step = report.ranks.get(rank, {}).get("global_step")
        words = [
            f"rank {rank}",
            state or "its host is gone",
            "" if step is None else f"step {step}",
            "" if speed is None else f"{100 * speed:.0f} % of the median speed",
        ]
        texts.append(", ".join(filter(None, words)))
    rows = "".join(f"<tr><td>{escape(texts[rank])}</td></tr>" for rank in found if found[rank] < STRAGGLER_SPEED)
    names = {"var(--a)": "running", "var(--training)": "ended", "var(--lost)": "failed"}
    names |= {"var(--slow)": "slow", "var(--waiting)": "not running"}
    legend = "".join(
        f'<span><i style="background:{colour}"></i>{name}</span>' for colour, name in names.items() if colour in colours
    )
    slow = f"<table>{rows}</table>" if rows else ""
    return f"<h3>Ranks</h3><figure><figcaption>{legend}</figcaption></figure>{rank_grid(colours, texts)}{slow}"


def _moment(seconds: Any) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(float(seconds)))


def _environment(report: JobReport) -> str:
    start = (report.events_named("start") or [{}])[-1]
    rows = {name: report.record.get(key) for key, name in RECORD_ROWS.items()}
    rows["newest checkpoint"] = report.newest_checkpoint
    rows |= {"chips": report.record.get("chips") or None, **{key: start.get(key) for key in START_KEYS}}
    return table((name, _text(value)) for name, value in rows.items() if value not in (None, "", []))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _price(report: JobReport) -> str:
    record = report.record
    if not report.prices:
        return "<p>This cluster has no known price, because Trainyard did not create it in a cloud.</p>"
    price, usd = record.get("usd_per_hour"), record.get("usd")
    since = " since its last start" if report.state.is_resumed else ""
    lines = [
        f"<p>The job's hosts cost ${price:,.2f} an hour"
        if price is not None
        else "<p>The job's hosts have no known price",
        f", ${usd:,.2f} in {record['hours']:,.2f} hours{since}." if usd is not None else ".",
        " The platform costs, at the maximum number of nodes:</p>",
    ]
    rows = "".join(
        f'<tr><th>{escape(part)}</th><td class="num">${amount:,.2f} an hour</td></tr>'
        for part, amount in report.prices.items()
    )
    total = sum(report.prices.values())
    return f'{"".join(lines)}<table>{rows}<tr><th>sum</th><td class="num">${total:,.2f} an hour</td></tr></table>'
