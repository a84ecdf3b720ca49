"""Examples and their manifests. `python -m tests.golden.manifests` rewrites the golden files.

`<example>.<kind>.yaml` has the complete manifests of an example. `<kind>.diff` has the manifests of the other examples
of the kind, as differences from a similar example.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pulumi
import yaml

from infra.hardware import Capacity, PoolCapacity, Scheduling
from infra.naming import POOL_LABEL
from stack.config import load_file
from tests.golden.differences import difference
from tests.recording import RecordingEngine, run
from workloads.job import TrainingJob, TrainingJobArgs
from workloads.kinds import KINDS
from workloads.objects import Placement
from workloads.queues import Queues, QueuesArgs
from workloads.spec import JobKind, JobSpec

FOLDER = Path(__file__).parent
PROJECT = FOLDER.parents[1]

ON_CLAIM = Placement(
    namespace="training",
    service_account="trainer",
    image="example.com/trainyard/trainer:1",
    bucket_url="file:///bucket",
    bucket_claim="bucket",
)
"""Placement on a platform whose bucket is a volume."""
ON_OBJECT_STORE = Placement(
    namespace="training",
    service_account="trainer",
    image="example.com/trainyard/trainer:1",
    bucket_url="s3://team-checkpoints/runs",
)
"""Placement on a platform whose bucket is an object store."""
ON_FOLDER = replace(ON_CLAIM, data_location="/data", data_claim="digits-data-0123abcd")
"""Placement on a platform that mounts a folder of this machine as the job's data."""
DATA_IN_BUCKET = replace(ON_OBJECT_STORE, data_location="$(TRAINYARD_BUCKET)/images")
"""Placement on a platform where the job's data is in the stack's bucket."""

ON_GPUS = replace(
    ON_OBJECT_STORE,
    scheduling=Scheduling(
        node_selector={"cloud.google.com/gke-accelerator": "nvidia-tesla-v100"},
        tolerations=({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},),
        accelerator_resource="nvidia.com/gpu",
    ),
)
"""Placement on nodes with GPUs."""
ON_TPUS = replace(
    ON_OBJECT_STORE,
    scheduling=Scheduling(
        tolerations=({"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"},),
        accelerator_resource="google.com/tpu",
        annotations={"example.com/networks": "two"},
    ),
)
"""Placement on the nodes of a TPU slice."""

EVERY_KEY: dict[str, Any] = {
    "name": "resnet",
    "kind": "indexed-job",
    "recipe": "imagenet",
    "hosts": 4,
    "processes_per_host": 2,
    "restarts": 3,
    "resources": {"cpu": 7.5, "memory": "24Gi"},
    "shared_memory": "8Gi",
    "flags": {"arch": "resnet50", "batch_size": 64, "lr": 0.1, "fake_data": True, "amp": False, "job": "$(HOME)"},
    "environment": {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO", "LIMIT": 3},
    "secrets": {"WANDB_API_KEY": "wandb"},
    "image": "example.com/team/resnet:2.1",
    "queue": "research",
    "priority_class": "high",
    "deadline_seconds": 86400,
    "grace_seconds": 120,
}
"""Job with most of the keys that all kinds with recipes support."""
SCRIPT: dict[str, Any] = {
    **{key: value for key, value in EVERY_KEY.items() if key not in ("recipe", "flags")},
    "script": "/opt/team/train.py",
    "args": ("--epochs", 3, "$HOME"),
}
"""`EVERY_KEY` with a script instead of a recipe, because every kind supports scripts."""
ELASTIC: dict[str, Any] = {"name": "elastic", "recipe": "digits", "elastic": {"min_hosts": 1, "max_hosts": 3}}
TPU: dict[str, Any] = {"name": "spmd", "recipe": "digits", "accelerator": "v4-32"}
GPU: dict[str, Any] = {**SCRIPT, "name": "gpus", "hosts": 2, "accelerator": "nvidia-tesla-v100"}


def examples() -> dict[str, tuple[JobSpec, Placement]]:
    """Return the examples by `<example>.<kind>`. All jobs have the same name, which keeps the differences short."""
    digits = load_file(PROJECT / "Pulumi.local.yaml").jobs[0].model_dump(exclude_unset=True)
    kinds: tuple[JobKind, ...] = get_args(JobKind)
    torch = [kind for kind in kinds if KINDS[kind].runs_recipes]
    on_tpus = [kind for kind in kinds if not KINDS[kind].no_tpu]
    language = load_file(PROJECT / "Pulumi.gke-h200.yaml").jobs[0].model_dump(exclude_unset=True)
    chips = {**TPU, "accelerator": "v4", "topology": "2x2x4", "processes_per_host": 4}
    rows: list[tuple[str, dict[str, Any], Placement]] = [
        ("shortest", {"recipe": "digits"}, ON_OBJECT_STORE),
        *(("digits", {**digits, "kind": kind}, ON_CLAIM) for kind in torch),
        ("every-key", EVERY_KEY, ON_CLAIM),
        *(("script", queued(SCRIPT, kind), ON_CLAIM) for kind in kinds),
        ("servers", {**queued(SCRIPT, "mx-job"), "parameter_servers": 2}, ON_CLAIM),
        ("alone", {**SCRIPT, "torchrun": False, "processes_per_host": 1}, ON_CLAIM),
        ("data", {**digits, "requirements": "requirements.txt", "data": "./data"}, ON_FOLDER),
        ("images", {"recipe": "imagenet", "data": "images", "kind": "mpi-job"}, DATA_IN_BUCKET),
        ("bandwidth", {**digits, "min_bandwidth_gbps": 7}, ON_CLAIM),
        ("gpus", {**GPU, "accelerators_per_host": 2}, ON_GPUS),
        ("language", language, ON_GPUS),
        *(("elastic", {**ELASTIC, "kind": kind}, ON_CLAIM) for kind in kinds if KINDS[kind].is_elastic),
        ("etcd", {**ELASTIC, "rendezvous": "etcd"}, ON_CLAIM),
        *(("tpu", {**TPU, "kind": kind}, ON_TPUS) for kind in on_tpus),
        ("chips", {**chips, "kind": "jobset"}, ON_TPUS),
        ("xla", {"recipe": "digits", "runtime": "xla"}, ON_CLAIM),
        ("slices", {**TPU, "slices": 2, "kind": "jobset"}, ON_TPUS),
        *(("idle", {**digits, "interactive": True, "kind": kind}, ON_CLAIM) for kind in ("indexed-job", "mpi-job")),
        *(("suspended", {**digits, "suspend": True, "kind": kind}, ON_CLAIM) for kind in torch),
    ]
    specs = [
        (name, JobSpec.model_validate({**values, "name": "digits"}), placement) for name, values, placement in rows
    ]
    return {f"{name}.{spec.kind}": (spec, placement) for name, spec, placement in specs}


def queued(values: dict[str, Any], kind: JobKind) -> dict[str, Any]:
    """Return a job of a kind, with `queue` and `processes_per_host` only if the kind supports them."""
    supported = {
        key: value
        for key, value in values.items()
        if key != "processes_per_host" or not KINDS[kind].one_process_per_host
    }
    return {**supported, "kind": kind, "queue": values["queue"] if KINDS[kind].is_queueable else None}


def manifests(spec: JobSpec, placement: Placement) -> list[dict[str, Any]]:
    """Return the Kubernetes objects of a job."""
    return engine(spec, placement).manifests()


def engine(spec: JobSpec, placement: Placement) -> RecordingEngine:
    """Return a recording engine with the registrations of a job."""

    def program() -> pulumi.Output[str]:
        secrets = {variable: pulumi.Output.secret("canary") for variable in spec.secrets}
        placed = replace(placement, image=spec.image_ref.reference or placement.image)
        return TrainingJob(spec.name, TrainingJobArgs(spec=spec, placement=placed, secrets=secrets)).name

    return run(program)


POOLS = (
    PoolCapacity(name="system", free=Capacity(millicores=3800, memory=13 * 2**30), node_labels={POOL_LABEL: "system"}),
    PoolCapacity(
        name="gpus",
        free=Capacity(millicores=7500, memory=25 * 2**30 + 1),
        devices={"nvidia.com/gpu": 4},
        node_labels={POOL_LABEL: "gpus"},
        taint="nvidia.com/gpu",
    ),
    PoolCapacity(
        name="later",
        free=Capacity(millicores=400_000, memory=3600 * 2**30),
        devices={"nvidia.com/gpu": 16},
        node_labels={POOL_LABEL: "later"},
        on_request=True,
        taint="nvidia.com/gpu",
    ),
)
"""Pools for queued jobs."""


def queues_engine() -> RecordingEngine:
    """Return a recording engine with the registrations of two queues."""

    def program() -> pulumi.Output[str]:
        args = QueuesArgs(names=frozenset({"research", "nightly"}), namespace="training", pools=POOLS)
        return Queues("queues", args).urn

    return run(program)


EACH_KIND = frozenset(f"{'digits' if KINDS[kind].runs_recipes else 'script'}.{kind}" for kind in get_args(JobKind))
"""Names of the examples whose golden files are complete, one for each kind."""
COMPLETE_FILES = {*EACH_KIND, "queues"}
"""Names of the golden files with complete manifests: an example of each kind, and the queues."""
MIN_ALIASED_LINES = 6
"""Minimum number of lines of a repeated part of a manifest that a golden file contains only once."""
MAX_LINE_LENGTH = 60
"""Maximum length of a list or an object of scalars that a golden file has on one line."""
BASE_EXAMPLES = {
    "slices": "tpu",
    "gpus": "script",
    "alone": "script",
    "servers": "script",
    "chips": "tpu",
    "etcd": "elastic",
    "every-key": "script",
}
"""Example -> similar example, the base of its diff. The default is `digits` of the same kind."""


def rendered() -> dict[str, list[dict[str, Any]]]:
    """Return the manifests of each example and of the queues, by name."""
    found = {example: manifests(spec, placement) for example, (spec, placement) in examples().items()}
    return {**found, "queues": queues_engine().manifests()}


def golden_files() -> set[Path]:
    """Return the golden files that exist."""
    return {*FOLDER.glob("*.yaml"), *FOLDER.glob("*.diff")}


def with_aliases(value: Any, seen: dict[str, Any]) -> Any:
    """Return a copy in which equal long parts are one object. YAML then has an alias in place of each later part."""
    if isinstance(value, dict):
        value = {key: with_aliases(each, seen) for key, each in value.items()}
    elif isinstance(value, list):
        value = [with_aliases(each, seen) for each in value]
    else:
        return value
    text = yaml.safe_dump(value)
    return seen.setdefault(text, value) if text.count("\n") >= MIN_ALIASED_LINES else value


class Dumper(yaml.SafeDumper):
    """YAML dumper that writes each short list or object of scalars on one line."""

    def represent_sequence(self, *words: Any) -> yaml.SequenceNode:
        """Return the node of a list."""
        node = super().represent_sequence(*words)
        node.flow_style = is_short(node.value)
        return node

    def represent_mapping(self, *words: Any) -> yaml.MappingNode:
        """Return the node of an object."""
        node = super().represent_mapping(*words)
        node.flow_style = is_short([each for pair in node.value for each in pair])
        return node


def is_short(parts: list[yaml.Node]) -> bool:
    """Return True if the parts of a list or an object are scalars that fit on one line."""
    return all(isinstance(each, yaml.ScalarNode) for each in parts) and (
        sum(len(each.value) + 2 for each in parts) <= MAX_LINE_LENGTH
    )


def yaml_text(found: list[dict[str, Any]]) -> str:
    """Return manifests as YAML."""
    return yaml.dump_all([with_aliases(each, {}) for each in found], Dumper=Dumper, sort_keys=True, width=120)


def goldens() -> dict[Path, str]:
    """Return the text of each golden file."""
    found = rendered()
    texts = {FOLDER / f"{name}.yaml": yaml_text(found[name]) for name in COMPLETE_FILES}
    for name in sorted(found.keys() - COMPLETE_FILES):
        example, _, kind = name.partition(".")
        base = f"{BASE_EXAMPLES.get(example, 'digits')}.{kind}"
        lines = [f"--- {base}", f"+++ {name}", *difference(found[base], found[name]), ""]
        path = FOLDER / f"{kind}.diff"
        texts[path] = texts.get(path, "") + "\n".join(lines)
    return texts


def main() -> None:
    """Write the golden files that differ, remove those without an example, and print their names."""
    expected = goldens()
    for path in golden_files() - expected.keys():
        path.unlink()
        print(f"removed {path.name}")
    for path, text in expected.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
