"""TrainingJob component: its objects, the effect of every key of a spec, and equal workers in all kinds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from infra.gcp.fabrics import GIB
from tests.components.rendered_jobs import KINDS, TORCH_KINDS, pod_templates, spec, values_of, workers
from tests.golden.manifests import (
    ELASTIC,
    EVERY_KEY,
    GPU,
    ON_CLAIM,
    ON_GPUS,
    SCRIPT,
    TPU,
    manifests,
)
from workloads.kinds import operators_of
from workloads.pod import Placement
from workloads.spec import JobKind, JobSpec, ResourcesSpec

CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "name": (EVERY_KEY, {"name": "other"}),
    "kind": (EVERY_KEY, {"kind": "jobset"}),
    "recipe": (EVERY_KEY, {"recipe": "digits"}),
    "script": (SCRIPT, {"script": "/other.py"}),
    "args": (SCRIPT, {"args": ("--other",)}),
    "torchrun": ({**SCRIPT, "processes_per_host": 1}, {"torchrun": False}),
    "accelerator": (EVERY_KEY, {"accelerator": "nvidia-l4"}),
    "topology": (TPU, {"topology": "2x4x4", "accelerator": "v4"}),
    "slices": ({**TPU, "kind": "jobset"}, {"slices": 3}),
    "accelerators_per_host": (GPU, {"accelerators_per_host": 4}),
    "elastic": (ELASTIC, {"elastic": {"min_hosts": 2, "max_hosts": 3}}),
    "hosts": (EVERY_KEY, {"hosts": 5}),
    "parameter_servers": ({**SCRIPT, "kind": "mx-job"}, {"parameter_servers": 3}),
    "processes_per_host": (EVERY_KEY, {"processes_per_host": 3}),
    "rendezvous": (EVERY_KEY, {"rendezvous": "c10d"}),
    "restarts": (EVERY_KEY, {"restarts": 7}),
    "resources": (EVERY_KEY, {"resources": {"cpu": 3, "memory": "30Gi"}}),
    "shared_memory": (EVERY_KEY, {"shared_memory": "7Gi"}),
    "flags": (EVERY_KEY, {"flags": {"other": 1}}),
    "environment": (EVERY_KEY, {"environment": {"OTHER": "1"}}),
    "secrets": (EVERY_KEY, {"secrets": {}}),
    "image": (EVERY_KEY, {"image": "example.com/other"}),
    "runtime": ({**EVERY_KEY, "image": None}, {"runtime": "xla"}),
    "min_bandwidth_gbps": (EVERY_KEY, {"min_bandwidth_gbps": 7}),
    "queue": (EVERY_KEY, {"queue": "other"}),
    "priority_class": (EVERY_KEY, {"priority_class": "other"}),
    "suspend": ({**EVERY_KEY, "queue": None}, {"suspend": True}),
    "interactive": (EVERY_KEY, {"interactive": True}),
    "deadline_seconds": (EVERY_KEY, {"deadline_seconds": 7}),
    "grace_seconds": (EVERY_KEY, {"grace_seconds": 7}),
}
"""Key -> a job, and another value of the key."""


def test_operators_of_jobs() -> None:
    alone = {"queue": None}
    assert operators_of([spec(**alone)]) == frozenset()
    assert operators_of([spec(**alone), spec(kind="train-job", **alone)]) == {"trainer", "jobset"}
    assert operators_of([spec(**alone), spec(kind="jobset")]) == {"jobset", "kueue"}


def test_every_key_is_tried() -> None:
    assert set(CHANGES) == set(JobSpec.model_fields)


@pytest.mark.parametrize("key", CHANGES)
def test_every_key_changes_what_is_made(key: str) -> None:
    values, change = CHANGES[key]
    placement = ON_GPUS if "accelerator" in {**values, **change} else ON_CLAIM
    assert manifests(spec(values, **change), placement) != manifests(spec(values), placement)


@pytest.mark.parametrize("key", ResourcesSpec.model_fields)
def test_every_resource_changes_what_is_made(key: str) -> None:
    resources = {**EVERY_KEY["resources"], key: {"cpu": 3, "memory": "30Gi"}[key]}
    assert manifests(spec(resources=resources), ON_CLAIM) != manifests(spec(), ON_CLAIM)


OF_THE_KIND = frozenset(
    {
        "PET_MAX_RESTARTS",
        "PET_NNODES",
        "PET_NODE_RANK",
        "PET_NPROC_PER_NODE",
        "PET_RDZV_BACKEND",
        "PET_RDZV_CONF",
        "PET_RDZV_ENDPOINT",
        "PET_RDZV_ID",
        "PET_SHUTDOWN_TIMEOUT",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
        "TRAINYARD_RETRYABLE_OFFSET",
    }
)
"""Rendezvous variables of a kind, the only difference between kinds."""


def compared(kind: JobKind, values: dict[str, Any], placement: Placement) -> dict[str, Any]:
    """Return a worker of a kind, without the parts that its operator requires: names, rendezvous, restarts."""
    templates = workers(values, placement, kind=kind)
    (pod,) = [each for index, each in enumerate(templates) if each not in templates[:index]]
    (container,) = pod["spec"].pop("containers")
    pod["spec"].pop("restartPolicy", None)
    pod["spec"].pop("subdomain", None)
    pod["metadata"]["annotations"].pop("kubectl.kubernetes.io/default-container")
    container.pop("name")
    container["env"] = [each for each in container["env"] if each["name"] not in OF_THE_KIND]
    if kind == "mpi-job":
        objects = pod_templates(manifests(spec(values, kind=kind), placement))
        (launcher,) = next(each for path, each in objects.items() if "Launcher" in path)["spec"]["containers"]
        words = launcher["args"]
        program = words[len(words) - words[::-1].index("-x") + 1 :]
        container.pop("startupProbe")
        container |= {"command": program[:1], "args": program[1:]}
    return {"pod": pod, "container": container}


@pytest.mark.parametrize("values", [EVERY_KEY, SCRIPT, GPU], ids=["recipe", "script", "gpus"])
def test_one_spec_gives_the_same_worker_in_every_kind(values: dict[str, Any]) -> None:
    placement = ON_GPUS if "accelerator" in values else ON_CLAIM
    torch = [kind for kind in TORCH_KINDS if not (kind == "mpi-job" and "script" in values)]
    first = compared(torch[0], values, placement)
    for kind in torch[1:]:
        assert compared(kind, values, placement) == first, kind
    if "script" in values:
        direct = compared("mpi-job", values, placement)
        assert compared("mx-job", values, placement) == direct
        assert {**direct["container"], "command": None, "args": None} == {
            **first["container"],
            "command": None,
            "args": None,
        }


def test_programs_of_every_kind_start_from_their_hosts_profile() -> None:
    nodes = replace(ON_GPUS, profile=GIB, environment={"LD_LIBRARY_PATH": "/drivers"})
    values = {**EVERY_KEY, "image": None}
    first = compared("indexed-job", values, nodes)
    script = f'. {GIB.script} && exec "$@"'
    assert (first["container"]["command"], first["container"]["args"][:3]) == (["bash"], ["-c", script, "bash"])
    assert first["container"]["args"][3:6] == ["python", "-m", "trainer.launch"]
    for kind in TORCH_KINDS:
        assert compared(kind, values, nodes) == first, kind
    # mpirun passes on the variables of its own pod.
    for template in pod_templates(manifests(spec(values, kind="mpi-job"), nodes)).values():
        assert {"name": "LD_LIBRARY_PATH", "value": "/drivers"} in template["spec"]["containers"][0]["env"]


@pytest.mark.parametrize("kind", KINDS)
def test_pods_satisfy_the_restricted_standard(kind: JobKind) -> None:
    for place, template in pod_templates(manifests(spec(values_of(kind), kind=kind), ON_CLAIM)).items():
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True, place
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize("kind", KINDS)
def test_environment_names_are_unique(kind: JobKind) -> None:
    values = {**values_of(kind), "environment": {"HOME": "/bucket", "OMP_NUM_THREADS": "1"}}
    for template in pod_templates(manifests(spec(values, kind=kind), ON_CLAIM)).values():
        (container,) = template["spec"]["containers"]
        names = [variable["name"] for variable in container["env"]]
        assert len(names) == len(set(names))
        assert {"name": "HOME", "value": "/bucket"} in container["env"]


SET_BY_OPERATORS = {
    "pytorch-job": {"PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT"},
    "train-job": {"PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT"},
    "elastic": {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID"}
    | {"PET_RDZV_CONF", "PET_MAX_RESTARTS"},
}
"""Variables that the operators' code sets: pkg/controller.v1/pytorch/{envvar,elastic}.go, plugins/torch/torch.go."""


@pytest.mark.parametrize(
    ("kind", "values", "which"),
    [
        ("pytorch-job", EVERY_KEY, "pytorch-job"),
        ("train-job", EVERY_KEY, "train-job"),
        ("pytorch-job", ELASTIC, "elastic"),
    ],
)
def test_nothing_is_set_twice(kind: JobKind, values: dict[str, Any], which: str) -> None:
    for template in workers(values, kind=kind):
        names = {variable["name"] for variable in template["spec"]["containers"][0]["env"]}
        assert not names & SET_BY_OPERATORS[which]
