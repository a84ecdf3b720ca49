"""Drawing of a stack's resources, coloured by planned action: as Mermaid for comments on GitHub, and as HTML.

Syntax of Mermaid: https://mermaid.js.org/syntax/flowchart.html
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from markdown_it import MarkdownIt

from commands.html import document
from commands.review.plan import BUCKETS, POOLS, Step, name_in_cloud, value_at
from settings.text import counted
from stack.config import StackConfig
from stack.placement import pools_of_jobs

NETWORKS = ("compute/network:Network", "ec2/vpc:Vpc")
CLUSTERS = ("container/cluster:Cluster", "eks/cluster:Cluster")
REGISTRIES = ("artifactregistry/repository:Repository", "ecr/repository:Repository")
MACHINE_TYPE_PATHS = ("nodeConfig.machineType", "instanceTypes[0]")
"""Possible input paths of a pool's machine type."""
NAME_PATHS = ("repositoryId", "tags.Name")
"""Possible input paths of the name of a repository or network."""
NODE_COUNT_PATHS = (
    ("scalingConfig.minSize", "scalingConfig.maxSize"),
    ("autoscaling.totalMinNodeCount", "autoscaling.totalMaxNodeCount"),
    ("autoscaling.minNodeCount", "autoscaling.maxNodeCount"),
    ("nodeCount", "nodeCount"),
    ("initialNodeCount", "initialNodeCount"),
)
"""Possible input paths of a pool's minimum and maximum number of nodes."""
COLOURS = {
    "replace": "fill:#ffd7d5,stroke:#cf222e,color:#1f2328",
    "delete": "fill:#ffd7d5,stroke:#cf222e,color:#1f2328,stroke-dasharray:4",
    "create": "fill:#dafbe1,stroke:#1a7f37,color:#1f2328",
    "update": "fill:#fff8c5,stroke:#9a6700,color:#1f2328",
}
"""Action -> style in Mermaid. Unchanged resources have the default style."""
LEGEND = "Red: replaced, or deleted if dashed. Green: created. Yellow: updated. Other resources do not change."


def drawing(config: StackConfig, steps: Iterable[Step]) -> list[str]:
    """Return the drawing as lines of Markdown; an empty list if the stack creates no cluster in a cloud."""
    steps = [each for each in steps if not each.is_component]
    clusters = list(of_type(steps, CLUSTERS))
    if not clusters:
        return []
    pools = {name_in_cloud(each): each for each in of_type(steps, POOLS)}
    networks = ", ".join(_text(name_of(each)) for each in of_type(steps, NETWORKS))
    lines = ["flowchart LR", f'  subgraph network["network {networks}"]', *_boxes("cluster", clusters)]
    lines += [*_boxes("pool", pools.values()), "  end"]
    buckets, registries = list(of_type(steps, BUCKETS)), list(of_type(steps, REGISTRIES))
    lines += [*_boxes("bucket", buckets), *_boxes("images", registries)]
    lines += [f"  cluster0 --- pool{place}" for place in range(len(pools))]
    lines += [f"  images{place} -- image --> cluster0" for place in range(len(registries))]
    places = {pool: place for place, pool in enumerate(pools)}
    for number, (job, pool) in enumerate(pools_of_jobs(config.cloud, config.jobs).items()):
        hosts = next(each.hosts for each in config.jobs if each.name == job)
        lines.append(f'  job{number}(["job {_text(job)}: {counted(hosts, "host")}"])')
        # One pool of the settings can become several in the cloud. Their names begin with the pool's name.
        lines += [f"  job{number} --> pool{place}" for name, place in places.items() if belongs_to_pool(name, pool)]
        lines += [f"  job{number} -- files --> bucket{place}" for place in range(len(buckets))]
    lines += [f"  classDef {action} {style}" for action, style in COLOURS.items()]
    return ["", "Architecture:", "", "```mermaid", *lines, "```", "", LEGEND]


def of_type(steps: Iterable[Step], types: tuple[str, ...]) -> Iterator[Step]:
    """Yield the steps of resources of these types."""
    return (each for each in steps if each.type.endswith(types))


def _boxes(kind: str, steps: Iterable[Step]) -> Iterator[str]:
    for place, step in enumerate(steps):
        nodes = nodes_of(step)
        text = f"{kind} {_text(name_of(step))}{f'<br>{_text(nodes)}' if nodes else ''}"
        style = f":::{step.action}" if step.action in COLOURS else ""
        yield f'    {kind}{place}["{text}"]{style}'


def nodes_of(step: Step) -> str:
    """Return a pool's nodes, such as `1 to 4 x a3-highgpu-8g`; empty for other resources."""
    machine = next((found for path in MACHINE_TYPE_PATHS if (found := value_at(step.inputs, path))), "")
    for least, most in NODE_COUNT_PATHS if step.type.endswith(POOLS) else ():
        bounds = value_at(step.inputs, least), value_at(step.inputs, most)
        if bounds[1] is not None:
            count = f"{int(bounds[1])}" if bounds[0] in (None, bounds[1]) else f"{int(bounds[0])} to {int(bounds[1])}"
            return f"{count} x {machine}"
    return ""


def name_of(step: Step) -> str:
    """Return the name by which users know a resource."""
    found = next((found for key in NAME_PATHS if (found := value_at(step.inputs, key))), None)
    return found if isinstance(found, str) else name_in_cloud(step)


def belongs_to_pool(name: str, pool: str | None) -> bool:
    """Return True if the pool `name` in the cloud belongs to `pool` in the settings."""
    return pool is not None and (name == pool or name.startswith(f"{pool}-"))


def _text(text: str) -> str:
    """Return a text without the characters that end a label in Mermaid."""
    return text.replace('"', "'").replace("\n", " ")


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
    """Return a report in Markdown as an HTML page with the drawing. The page loads nothing from the network."""
    heading, _, rest = text.partition("\n")
    render = MarkdownIt("commonmark", {"html": False}).enable("table").render
    drawn = "".join(_html_drawing(config, [each for each in steps if not each.is_component]))
    body = f"{render(heading)}\n{drawn}\n{render(rest)}\n"
    return document(f"Preview of stack {stack}", style=STYLE, body=body)


def _html_drawing(config: StackConfig, steps: Sequence[Step]) -> Iterable[str]:
    """Yield the drawing as HTML: a box for the network with its cluster, pools and jobs, then images and buckets."""
    clusters = list(of_type(steps, CLUSTERS))
    if not clusters:
        return
    networks = ", ".join(map(name_of, of_type(steps, NETWORKS)))
    yield f'<div class="drawing"><div class="box network">network {escape(networks)}<div class="inner">'
    yield from (_box("cluster", each) for each in clusters)
    pools = pools_of_jobs(config.cloud, config.jobs)
    for step in of_type(steps, POOLS):
        jobs = [job for job in config.jobs if belongs_to_pool(name_in_cloud(step), pools.get(job.name))]
        hosts = "".join(f'<span class="job">{escape(job.name)}: {counted(job.hosts, "host")}</span>' for job in jobs)
        yield _box("pool", step, f"<small>{escape(nodes_of(step))}</small>{hosts}")
    yield '</div></div><div class="side">'
    yield from (_box("images", each) for each in of_type(steps, REGISTRIES))
    yield from (_box("bucket", each) for each in of_type(steps, BUCKETS))
    yield f'</div></div><p class="legend">{LEGEND}</p>'


def _box(kind: str, step: Step, content: str = "") -> str:
    return f'<div class="box {step.action}">{kind} {escape(name_of(step))}{content}</div>'
