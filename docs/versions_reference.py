"""`python -m docs.versions_reference` writes docs/versions.md: version, source and end of support of each part."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from infra.hardware.eks_versions import DEFAULT_EKS_VERSION, EKS_VERSIONS

TARGET = Path(__file__).with_name("versions.md")
PROJECT = TARGET.parents[1]

INTRODUCTION = """\
# Versions

Each part that Trainyard pins, generated from the pins by `python -m docs.versions_reference`. The dates of support are
in `docs/versions_reference.py`, each with its source. A test fails when a date has passed. Every other Python package
and Go module is in the lock file that belongs to the pin.
"""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Pinned part and its support."""

    name: str
    """Display name."""
    package: str
    """Name in its registry: a Go module, a Python package or an image."""
    pin: str
    """File of the project with the pin."""
    ends: date | None = None
    """Last day of support, or None if the project publishes no date."""
    rule: str
    """Source of that date, or the project's support policy."""
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


KUBERNETES_RULE = "14 months after 1.37.0: https://kubernetes.io/releases/patch-releases/#support-period"
CONTAINERD_RULE = "https://github.com/containerd/containerd/blob/v2.4.2/RELEASES.md"
NEWEST_ONLY = "no dates published; fixes come in the newest release"
"""Support policy of projects that publish no dates."""
TORCH_RULE = "fixes come in the newest minor version: https://github.com/pytorch/pytorch/blob/main/RELEASE.md"
CLOUDS = f"""
## Clouds

| part | version | supported |
|---|---|---|
| EKS, unless a stack says otherwise | {DEFAULT_EKS_VERSION} | \
until {EKS_VERSIONS[DEFAULT_EKS_VERSION].standard_ends}: `infra/hardware/eks_versions.py` |
| GKE, unless a stack says otherwise | chosen by GKE in the release channel | `infra/hardware/versions.py` |
"""

LOCAL = (
    Part(
        name="Kubernetes",
        package="k8s.io/kubernetes",
        pin="setup/go/kubernetes/go.mod",
        ends=date(2027, 10, 26),
        rule=KUBERNETES_RULE,
    ),
    Part(
        name="etcd",
        package="go.etcd.io/etcd/server/v3",
        pin="setup/go/kubernetes/go.mod",
        rule="the two newest minor versions: https://etcd.io/docs/latest/op-guide/versioning/",
    ),
    Part(
        name="containerd",
        package="github.com/containerd/containerd/v2",
        pin="setup/go/containerd/go.mod",
        ends=date(2027, 5, 16),
        rule=CONTAINERD_RULE,
    ),
    Part(
        name="containerd's shim",
        package="github.com/containerd/containerd/v2",
        pin="setup/go/containerd-shim/go.mod",
        ends=date(2027, 5, 16),
        rule=CONTAINERD_RULE,
    ),
    Part(name="runc", package="github.com/opencontainers/runc", pin="setup/go/runc/go.mod", rule=NEWEST_ONLY),
    Part(
        name="CoreDNS",
        package="github.com/coredns/coredns",
        pin="setup/go/kubernetes/go.mod",
        rule=NEWEST_ONLY,
    ),
    Part(name="kwok", package="sigs.k8s.io/kwok", pin="setup/go/kwok/go.mod", rule=NEWEST_ONLY),
    Part(
        name="fake-gcs-server",
        package="github.com/fsouza/fake-gcs-server",
        pin="setup/go/fake-gcs-server/go.mod",
        rule=NEWEST_ONLY,
    ),
    Part(
        name="Pulumi CLI",
        package="github.com/pulumi/pulumi/pkg/v3",
        pin="setup/go/pulumi/go.mod",
        rule=NEWEST_ONLY,
    ),
    Part(
        name="Kubernetes provider, if it is built",
        package="github.com/pulumi/pulumi-kubernetes/provider/v4",
        pin="setup/go/pulumi-kubernetes/go.mod",
        rule=NEWEST_ONLY,
    ),
)
OPERATORS = (
    Part(name="JobSet", package="sigs.k8s.io/jobset", pin="setup/go/jobset/go.mod", rule=NEWEST_ONLY),
    Part(name="Kueue", package="sigs.k8s.io/kueue", pin="setup/go/kueue/go.mod", rule=NEWEST_ONLY),
    Part(
        name="Kubeflow Trainer",
        package="github.com/kubeflow/trainer/v2",
        pin="setup/go/trainer/go.mod",
        rule=NEWEST_ONLY,
    ),
    Part(
        name="mpi-operator",
        package="github.com/kubeflow/mpi-operator",
        pin="setup/go/mpi-operator/go.mod",
        rule=NEWEST_ONLY,
    ),
    Part(
        name="KubeRay",
        package="github.com/ray-project/kuberay/ray-operator",
        pin="setup/go/kuberay-operator/go.mod",
        rule=NEWEST_ONLY,
    ),
    Part(
        name="training-operator",
        package="github.com/kubeflow/training-operator",
        pin="setup/go/training-operator/go.mod",
        rule="the last series of its first API; fixes come in the newest release",
    ),
    Part(
        name="training-operator for MXJob",
        package="github.com/kubeflow/training-operator",
        pin="setup/go/training-operator-mxjob/go.mod",
        rule="fixes come in 1.9",
        reason="1.9 has no MXJob; see [operators](operators.md)",
    ),
)
PROGRAM = tuple(
    Part(name=name, package=name, pin="requirements.in", rule=rule)
    for name, rule in (
        ("pulumi", NEWEST_ONLY),
        ("pulumi-gcp", NEWEST_ONLY),
        ("pulumi-aws", NEWEST_ONLY),
        ("pulumi-kubernetes", f"{NEWEST_ONLY}; this is the newest whose provider can be built from a Go module"),
        ("pulumi-docker-build", NEWEST_ONLY),
        ("kubernetes", NEWEST_ONLY),
        ("cryptography", NEWEST_ONLY),
        ("pydantic", NEWEST_ONLY),
        ("rich", NEWEST_ONLY),
    )
)
IMAGES = (
    Part(
        name="Python in the images",
        package="python",
        pin="trainer/Dockerfile",
        ends=date(2027, 10, 31),
        rule="https://devguide.python.org/versions/ (October 2027)",
    ),
    Part(name="torch", package="torch", pin="trainer/requirements.in", rule=TORCH_RULE),
    *(
        Part(name=name, package=name, pin="trainer/requirements.in", rule=NEWEST_ONLY)
        for name in (
            "torchvision",
            "timm",
            "torchmetrics",
            "tensorboard",
            "wandb",
            "fsspec",
            "obstore",
            "numpy",
            "tyro",
        )
    ),
    Part(name="lightning", package="lightning", pin="trainer/requirements-lightning.in", rule=NEWEST_ONLY),
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
    Part(
        name="torch-xla",
        package="torch-xla",
        pin="trainer/requirements-xla.in",
        rule="no release since November 2025",
        reason="the only released way from PyTorch to TPUs on GKE that Trainyard has; see [TPUs](tpu.md)",
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
        rule=NEWEST_ONLY,
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
    """Return the last column of a part's row."""
    if part.reason:
        return f"no longer ({part.rule}); stays: {part.reason}"
    return f"until {part.ends}: {part.rule}" if part.ends else part.rule


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
