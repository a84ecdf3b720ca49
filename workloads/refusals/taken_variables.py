"""Environment variables that are not free for a job to set, and who sets them. Pure.

Sources: the operators' own code at the versions of setup/go (training-operator pkg/controller.v1/pytorch and
mxnet, mpi-operator pkg/controller), Kubernetes' Job controller, and Trainyard's own command.py, mpi.py, pod.py.
"""

from __future__ import annotations

from workloads.command import STORE_OF_EACH_ROUND, uses_torchrun
from workloads.mpi import OF_THE_POD
from workloads.spec import JobSpec

RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
"""https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables"""
XLA = ("PJRT_DEVICE", "MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID")
TPU_HOST = ("TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "TPU_TOPOLOGY", "TPU_ACCELERATOR_TYPE")
"""https://cloud.google.com/kubernetes-engine/docs/how-to/tpus"""
OPERATOR = {
    "pytorch-job": ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    "mpi-job": (
        *("OMPI_MCA_orte_default_hostfile", "OMPI_MCA_orte_keep_fqdn_hostnames", "OMPI_MCA_plm_rsh_args"),
        "K_MPI_JOB_ROLE",
    ),
    "mx-job": (
        *("DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_SERVER", "DMLC_NUM_WORKER", "DMLC_ROLE"),
        *("DMLC_USE_KUBERNETES", "DMLC_WORKER_ID", "MX_CONFIG"),
    ),
}
"""Kind -> what its operator sets in the pods, beside what a job says itself."""
MPIRUN = (
    *("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    *("OMPI_COMM_WORLD_NODE_RANK", "OMPI_UNIVERSE_SIZE"),
)
"""https://docs.open-mpi.org/en/v4.1.x/faq/running-mpi-apps.html"""
MPIRUN_OPTIONS = ("OMPI_MCA_pml", "OMPI_MCA_btl")
"""What mpirun has on its command line, which counts more."""
INDEX = "JOB_COMPLETION_INDEX"
"""https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode"""
INDEXED = ("indexed-job", "jobset", "train-job")
NO_SECRETS = (*(name.partition("=")[0] for name in OF_THE_POD), "OMP_NUM_THREADS", *STORE_OF_EACH_ROUND)
"""What pods have from the image or from Trainyard: `environment` changes it, a secret would be there beside it."""


def taken(spec: JobSpec) -> dict[str, str]:
    """Names that neither `environment` nor `secrets` may have, each with who sets it."""
    found = dict.fromkeys(RANKS, "torchrun") if uses_torchrun(spec) else {}
    found |= dict.fromkeys(OPERATOR.get(spec.kind, ()), "the operator")
    if spec.kind == "mpi-job":
        found |= dict.fromkeys(MPIRUN, "mpirun") | dict.fromkeys(MPIRUN_OPTIONS, "Trainyard")
    if spec.kind in INDEXED:
        found[INDEX] = "Kubernetes"
    if spec.on_xla:
        found |= dict.fromkeys(XLA, "Trainyard")
    if spec.tpu:
        found |= dict.fromkeys(TPU_HOST, "GKE")
    if spec.elastic and uses_torchrun(spec):
        found |= dict.fromkeys(STORE_OF_EACH_ROUND, "Trainyard")
    return found
