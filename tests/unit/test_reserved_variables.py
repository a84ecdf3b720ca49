"""Reserved variables are rejected in `environment` and in `secrets`; a job may set all others."""

from __future__ import annotations

from typing import Any

import pytest

from stack.config import parse
from tests.problems import refused
from tests.unit.refused import cloud, job, refusals
from workloads.spec import JobSpec
from workloads.validation.conflicts import conflicts

SCRIPT = {"recipe": None, "script": "/opt/train.py"}
LARGE = {"resources": {"cpu": "500m", "memory": "1Gi"}, "shared_memory": "256Mi", "image": "example.com/ray:1"}


@pytest.mark.parametrize("key", ["environment", "secrets"])
@pytest.mark.parametrize(
    ("name", "values", "who"),
    [
        ("RANK", job(), "torchrun"),
        ("MASTER_ADDR", job(), "torchrun"),
        ("TPU_WORKER_ID", cloud(accelerator="v4-32"), "GKE"),
        ("PJRT_DEVICE", job(runtime="xla"), "Trainyard"),
        ("JOB_COMPLETION_INDEX", job(), "Kubernetes"),
        ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", job(elastic={"min_hosts": 1, "max_hosts": 2}), "Trainyard"),
        ("MASTER_ADDR", job(kind="pytorch-job", torchrun=False, **SCRIPT), "the operator"),
        ("DMLC_PS_ROOT_URI", job(kind="mx-job", **SCRIPT), "the operator"),
        ("DMLC_ROLE", job(kind="mx-job", **SCRIPT), "the operator"),
        ("OMPI_MCA_orte_default_hostfile", job(kind="mpi-job"), "the operator"),
        ("OMPI_MCA_plm_rsh_args", job(kind="mpi-job"), "the operator"),
        ("OMPI_MCA_btl", job(kind="mpi-job"), "Trainyard"),
        ("OMPI_COMM_WORLD_RANK", job(kind="mpi-job"), "mpirun"),
        ("RAY_ADDRESS", job(kind="ray-job", **SCRIPT, **LARGE), "the operator"),
        ("RAY_CLUSTER_NAME", job(kind="ray-job", **SCRIPT, **LARGE), "the operator"),
    ],
)
def test_what_others_set_is_refused(key: str, name: str, values: dict[str, Any], who: str) -> None:
    (spec,) = values["jobs"]
    wrong = {**values, "jobs": [{**spec, key: {name: "canary"}}]}
    assert refused(wrong) == [("job.environment.taken", f"jobs.0.{key}.{name}")]
    assert f"is set by {who}, " in refusals(wrong)[0]


@pytest.mark.parametrize("name", ["HOME", "PATH", "LD_LIBRARY_PATH", "PYTHONUNBUFFERED", "OMP_NUM_THREADS"])
def test_what_pods_have_already_is_no_secret(name: str) -> None:
    assert refused(job(secrets={name: "wandb"})) == [("job.secrets.set_in_pods", f"jobs.0.secrets.{name}")]
    (mine,) = parse(job(environment={name: "1"})).jobs
    assert mine.environment == {name: "1"}


def test_xla_of_an_image_without_it() -> None:
    problem = ("job.environment.pjrt_device", "jobs.0.secrets.PJRT_DEVICE")
    assert refused(job(secrets={"PJRT_DEVICE": "wandb"})) == [problem]


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"kind": "mx-job", **SCRIPT}, "DMLC_INTERFACE"),
        ({"kind": "mpi-job", **SCRIPT}, "OMPI_MCA_btl_tcp_if_include"),
        ({"kind": "ray-job", **SCRIPT, **LARGE}, "RAY_DEDUP_LOGS"),
        ({"kind": "indexed-job", **SCRIPT}, "DMLC_ROLE"),
        ({"kind": "indexed-job", "torchrun": False, **SCRIPT}, "MASTER_ADDR"),
    ],
)
def test_what_nobody_else_sets_is_free(values: dict[str, Any], name: str) -> None:
    assert conflicts(JobSpec(name="a", environment={name: "1"}, **values)) == []
