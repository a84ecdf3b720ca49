"""Environment variables that a job may not set, each with its owner. Pure.

Sources: the operators' code at the versions of setup/go (training-operator pkg/controller.v1/pytorch and mxnet,
mpi-operator pkg/controller), Kubernetes' Job controller, and Trainyard's command.py and pod.py.
"""

from __future__ import annotations

from workloads.command import POD_VARIABLES, STORE_OF_EACH_ROUND, uses_torchrun
from workloads.kinds import KINDS
from workloads.spec import JobSpec

RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
"""https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables"""
XLA = ("PJRT_DEVICE", "MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID")
TPU_HOST = ("TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "TPU_TOPOLOGY", "TPU_ACCELERATOR_TYPE")
"""https://cloud.google.com/kubernetes-engine/docs/how-to/tpus"""
NO_SECRETS = (*(name.partition("=")[0] for name in POD_VARIABLES), "OMP_NUM_THREADS", *STORE_OF_EACH_ROUND)
"""Variables that the image or Trainyard sets in pods. `environment` may override them; a secret would duplicate
them."""


def taken(spec: JobSpec) -> dict[str, str]:
    """Return each name that `environment` and `secrets` may not have, with its owner."""
    found = dict.fromkeys(RANKS, "torchrun") if uses_torchrun(spec) else {}
    kind = KINDS[spec.kind]
    found |= {**dict.fromkeys(kind.operator_variables, "the operator"), **kind.reserved_variables}
    if spec.on_xla:
        found |= dict.fromkeys(XLA, "Trainyard")
    if spec.tpu:
        found |= dict.fromkeys(TPU_HOST, "GKE")
    if spec.elastic and uses_torchrun(spec):
        found |= dict.fromkeys(STORE_OF_EACH_ROUND, "Trainyard")
    return found
