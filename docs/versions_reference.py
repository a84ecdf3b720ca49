"""The page docs/versions.md: version, source and end of support of each pinned part."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from infra.hardware.versions import DEFAULT_EKS_VERSION, EKS_VERSIONS

PROJECT = Path(__file__).resolve().parents[1]

INTRODUCTION = """\
# Versions

The main parts that Trainyard pins, generated from the pins by `python -m docs.references`. The last days of support
are in `docs/versions_reference.py`, or for EKS in `infra/hardware/versions.py`, each with its source. A test fails from
30 days before a part's support ends. The lock file of each pin (`requirements*.txt`, `go.sum`) lists all other Python
packages and Go modules.
"""
NEWEST_ONLY = "no dates published; fixes come in the newest release"
"""Support policy of projects that publish no dates."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Pinned part and its support."""

    name: str
    package: str
    """Name in its registry: a Go module, a Python package or an image."""
    pin: str
    """Trainyard's file with the pin."""
    ends: date | None = None
    """Last day of support, or None if the project publishes no date."""
    rule: str = NEWEST_ONLY
    """Source of `ends`, or the project's support policy."""
    reason: str = ""
    """Reason to use a part after the end of its support."""

    @property
    def version(self) -> str:
        """Pinned version. Raises ValueError if the file does not pin the package."""
        text = (PROJECT / self.pin).read_text(encoding="utf-8")
        name = re.escape(self.package)
        found = re.search(rf"(?m)(?:^|\s|/){name}(?:\[\w+\])?(?:==| v|:v?)(\d\S*?)(?:\s|\"|$)", text)
        if found is None:
            raise ValueError(f"{self.pin} does not pin {self.package}")
        return found[1]


KUBERNETES_RULE = "14 months after 1.37.0, https://kubernetes.io/releases/patch-releases/#support-period"
CONTAINERD_RULE = "https://github.com/containerd/containerd/blob/v2.4.2/RELEASES.md"
TORCH_RULE = "fixes come in the newest minor version: https://github.com/pytorch/pytorch/blob/main/RELEASE.md"
CLOUDS = f"""
## Clouds

| part | version | supported |
|---|---|---|
| EKS, unless a stack says otherwise | {DEFAULT_EKS_VERSION} | \
until {EKS_VERSIONS[DEFAULT_EKS_VERSION].standard_ends}: `infra/hardware/versions.py` |
| GKE, unless a stack says otherwise | chosen by GKE in the release channel | `infra/hardware/versions.py` |
"""


def _go_part(name: str, package: str, folder: str, **support: Any) -> Part:
    """Return a Go module that a folder of setup/go pins."""
    return Part(name=name, package=package, pin=f"setup/go/{folder}/go.mod", **support)


def _packages(pin: str, *names: str, **support: Any) -> tuple[Part, ...]:
    return tuple(Part(name=name, package=name, pin=pin, **support) for name in names)


LOCAL = (
    _go_part("Kubernetes", "k8s.io/kubernetes", "kubernetes", ends=date(2027, 10, 26), rule=KUBERNETES_RULE),
    _go_part(
        "etcd",
        "go.etcd.io/etcd/server/v3",
        "kubernetes",
        rule="the two newest minor versions: https://etcd.io/docs/latest/op-guide/versioning/",
    ),
    _go_part(
        "containerd", "github.com/containerd/containerd/v2", "containerd", ends=date(2027, 5, 16), rule=CONTAINERD_RULE
    ),
    _go_part(
        "containerd's shim",
        "github.com/containerd/containerd/v2",
        "containerd-shim",
        ends=date(2027, 5, 16),
        rule=CONTAINERD_RULE,
    ),
    _go_part("runc", "github.com/opencontainers/runc", "runc"),
    _go_part("CoreDNS", "github.com/coredns/coredns", "kubernetes"),
    _go_part("kwok", "sigs.k8s.io/kwok", "kwok"),
    _go_part("fake-gcs-server", "github.com/fsouza/fake-gcs-server", "fake-gcs-server"),
    _go_part("Pulumi CLI", "github.com/pulumi/pulumi/pkg/v3", "pulumi"),
    _go_part(
        "Pulumi's Kubernetes provider, if set-up cannot download it",
        "github.com/pulumi/pulumi-kubernetes/provider/v4",
        "pulumi-kubernetes",
    ),
)
OPERATORS = (
    _go_part("JobSet", "sigs.k8s.io/jobset", "jobset"),
    _go_part("Kueue", "sigs.k8s.io/kueue", "kueue"),
    _go_part("Kubeflow Trainer", "github.com/kubeflow/trainer/v2", "trainer"),
    _go_part("mpi-operator", "github.com/kubeflow/mpi-operator", "mpi-operator"),
    _go_part("KubeRay", "github.com/ray-project/kuberay/ray-operator", "kuberay-operator"),
    _go_part(
        "training-operator",
        "github.com/kubeflow/training-operator",
        "training-operator",
        rule="the last series of its first API; fixes come in the newest release",
    ),
    _go_part(
        "training-operator for MXJob",
        "github.com/kubeflow/training-operator",
        "training-operator-mxjob",
        rule="fixes come in 1.9",
        reason="1.9 has no MXJob; see [operators](operators.md)",
    ),
)
PROGRAM = (
    *_packages("requirements.in", "pulumi", "pulumi-gcp", "pulumi-aws"),
    *_packages(
        "requirements.in",
        "pulumi-kubernetes",
        rule=f"{NEWEST_ONLY}; this is the newest whose provider can be built from a Go module",
    ),
    *_packages("requirements.in", "pulumi-docker-build", "kubernetes", "click", "cryptography", "pydantic", "rich"),
)
IMAGES = (
    Part(
        name="Python in the images",
        package="python",
        pin="trainer/Dockerfile",
        ends=date(2027, 10, 31),
        rule="https://devguide.python.org/versions/ (October 2027)",
    ),
    *_packages("trainer/requirements.in", "torch", rule=TORCH_RULE),
    *_packages("trainer/requirements.in", "torchvision", "torchao", "timm", "torchmetrics", "tensorboard", "wandb"),
    *_packages("trainer/requirements.in", "fsspec", "obstore", "numpy", "tyro", "safetensors", "tokenizers"),
    *_packages("trainer/requirements-lightning.in", "lightning", "python-etcd"),
    *_packages("trainer/requirements-frameworks.in", "transformers", "accelerate", "trl", "deepspeed", "datasets"),
    *_packages(
        "trainer/requirements-frameworks.in",
        "torchtitan",
        rule=f"{NEWEST_ONLY}; Trainyard overrides its requirement datasets < 4.8, because transformers needs a newer "
        "huggingface-hub",
    ),
    Part(
        name="torch for GPUs before Turing",
        package="torch",
        pin="trainer/requirements-cuda12.in",
        rule=TORCH_RULE,
        reason="the last version with kernels for Volta (V100): https://github.com/pytorch/pytorch/issues/172352",
    ),
    Part(
        name="torch for TPUs",
        package="torch",
        pin="trainer/requirements-xla.in",
        rule=TORCH_RULE,
        reason="the version that torch-xla 2.9 is built for",
    ),
    *_packages(
        "trainer/requirements-xla.in",
        "torch-xla",
        rule="no release since November 2025",
        reason="Trainyard has no other released way to run PyTorch on TPUs; see [TPUs](tpu.md)",
    ),
    Part(
        name="MXNet",
        package="mxnet",
        pin="images/horovod/requirements.in",
        rule="retired in September 2023: https://attic.apache.org/projects/mxnet.html",
        reason="jobs of kind `mx-job` need it",
    ),
    Part(name="Ray", package="ray", pin="images/ray/requirements.in", rule=NEWEST_ONLY),
    Part(
        name="TensorFlow for Horovod",
        package="tensorflow-cpu",
        pin="images/horovod/requirements.in",
        reason="Horovod 0.28.1, its last release, does not build with a newer one",
    ),
)
GROUPS = {
    "The local cluster and rehearsals": LOCAL,
    "Operators": OPERATORS,
    "The program": PROGRAM,
    "Images": IMAGES,
}
"""Parts under each heading."""


def render() -> str:
    """Return the text of docs/versions.md."""
    text = [INTRODUCTION]
    for heading, parts in GROUPS.items():
        text.append(f"\n## {heading}\n\n| part | version | pinned in | supported |\n|---|---|---|---|\n")
        text += [
            f"| {part.name} | {part.version} | `{part.package}` in `{part.pin}` | {_support(part)} |\n"
            for part in parts
        ]
    text.append(CLOUDS)
    return "".join(text)


def _support(part: Part) -> str:
    if part.reason:
        return f"no longer ({part.rule}); reason to keep it: {part.reason}"
    return f"until {part.ends}: {part.rule}" if part.ends else part.rule
