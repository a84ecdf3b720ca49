"""The HTML page of a preview: the report, and the stack's architecture coloured by what changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from markdown_it import MarkdownIt

from commands.html_page import document
from commands.review.drawing import CLUSTERS, LEGEND, NETWORKS, REGISTRIES, is_part, name_of, nodes_of, of_type
from commands.review.plan import BUCKETS, POOLS, Step, name_in_cloud
from stack.config import StackConfig
from stack.placement import pools_of_jobs

STYLE = """\
:root { --replace: #ffd7d5; --create: #dafbe1; --update: #fff8c5; --edge: #cf222e; }
@media (prefers-color-scheme: dark) { :root { --replace: #5c2623; --create: #1d4028; --update: #4a3f14;
  --edge: #f28b82; } }
h3 { font-size: 24px; margin: 0 0 8px; }
.drawing { display: flex; flex-wrap: wrap; gap: 12px; margin: 12px 0 4px; }
.box { border: 1px solid var(--line); border-radius: 8px; padding: 6px 10px; background: var(--box); font-size: 14px;
  overflow-wrap: anywhere; }
.box small { display: block; color: var(--dim); }
.network { flex: 3 1 340px; } .side { flex: 1 1 200px; display: flex; flex-direction: column; gap: 8px; }
.inner { display: flex; flex-wrap: wrap; gap: 8px; margin-top: 8px; }
.job { border-radius: 14px; border: 1px solid var(--line); padding: 0 10px; display: inline-block;
  margin: 4px 4px 0 0; }
.replace, .delete { background: var(--replace); border-color: var(--edge); } .delete { border-style: dashed; }
.create { background: var(--create); } .update { background: var(--update); }
p, li { overflow-wrap: anywhere; } p.legend { color: var(--dim); margin: 0 0 20px; font-size: 13px; }
table { width: auto; margin: 8px 0; } td, th { padding-right: 14px; }
code { background: var(--box); border-radius: 4px; padding: 1px 4px; overflow-wrap: anywhere; }
"""


def page(stack: str, text: str, config: StackConfig, steps: Sequence[Step]) -> str:
    """Return the page of a report in Markdown. It loads nothing from a network."""
    heading, _, rest = text.partition("\n")
    render = MarkdownIt("commonmark", {"html": False}).enable("table").render
    drawn = "".join(_drawing(config, [each for each in steps if not each.component]))
    body = f"{render(heading)}\n{drawn}\n{render(rest)}\n"
    return document(f"Preview of stack {stack}", style=STYLE, body=body)


def _drawing(config: StackConfig, steps: Sequence[Step]) -> Iterable[str]:
    """Yield the drawing: jobs in their pools, pools and cluster in the network, images and bucket next to it."""
    clusters = list(of_type(steps, CLUSTERS))
    if not clusters:
        return
    networks = ", ".join(map(name_of, of_type(steps, NETWORKS)))
    yield f'<div class="drawing"><div class="box network">network {escape(networks)}<div class="inner">'
    yield from (_box("cluster", each) for each in clusters)
    pools = pools_of_jobs(config.cloud, config.jobs)
    for step in of_type(steps, POOLS):
        jobs = [job for job in config.jobs if is_part(name_in_cloud(step), pools.get(job.name))]
        hosts = "".join(f'<span class="job">{escape(job.name)}: {_hosts(job.hosts)}</span>' for job in jobs)
        yield _box("pool", step, f"<small>{escape(nodes_of(step))}</small>{hosts}")
    yield '</div></div><div class="side">'
    yield from (_box("images", each) for each in of_type(steps, REGISTRIES))
    yield from (_box("bucket", each) for each in of_type(steps, BUCKETS))
    yield f'</div></div><p class="legend">{LEGEND}</p>'


def _box(kind: str, step: Step, content: str = "") -> str:
    return f'<div class="box {step.action}">{kind} {escape(name_of(step))}{content}</div>'


def _hosts(count: int) -> str:
    return f"{count} host{'s' * (count != 1)}"
