"""Names and labels of what Trainyard makes in Kubernetes, and the limits that Kubernetes sets for them. Pure."""

from __future__ import annotations

import hashlib
import re

LABEL_LIMIT = 63
"""Longest DNS label: RFC 1035 section 2.3.4; Kubernetes applies it to host names, Services and label values."""

_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")

DOMAIN = "trainyard.dev"
"""Prefix of the labels that are ours."""
COMPONENT_LABEL = "app.kubernetes.io/component"
"""Tells a job's workers from its launcher, scheduler and servers."""
POOL_LABEL = f"{DOMAIN}/pool"
"""Carried by the nodes of a cloud: the pool of the settings that they are from."""
ACCELERATOR_LABEL = f"{DOMAIN}/accelerator"
"""Carried by nodes with GPUs where the cloud has no label of its own: the GPU model."""
COMPUTE_CLASS_LABEL = "cloud.google.com/compute-class"
"""https://cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes"""
QUEUED_LABEL = "cloud.google.com/gke-queued"
"""https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest"""
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Names the LocalQueue that admits a job: https://kueue.sigs.k8s.io/docs/tasks/run/jobs/"""
KUEUE = "kueue"
"""Name of the operator that admits the jobs of queues."""
JOB_LABEL = f"{DOMAIN}/job"
"""Carried by every object of a job: `kubectl logs -l trainyard.dev/job=NAME`."""


def check_label(value: str, limit: int = LABEL_LIMIT) -> str:
    """Return `value` when it can name a Service (a DNS label that starts with a letter); else raise ValueError.

    `limit` is for names to which something is added.

    Rule: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#rfc-1035-label-names
    """
    if len(value) > limit or not _LABEL.fullmatch(value):
        raise ValueError(
            f"must be a DNS label: 1 to {limit} lower-case letters, digits and '-', "
            "first a letter, last no '-'; write for example 'digits-2'"
        )
    return value


def host_name(job: str, index: int) -> str:
    """Host name of the pod that runs host `index` of a job."""
    return f"{job}-{index}"


def secret_name(job: str) -> str:
    """Name of the Kubernetes Secret with the secret variables of a job."""
    return f"{job}-secrets"


def stack_labels() -> dict[str, str]:
    """Labels of every object that belongs to no single job.

    Keys: https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/
    """
    return {"app.kubernetes.io/part-of": "trainyard", "app.kubernetes.io/managed-by": "pulumi"}


def job_labels(job: str, recipe: str | None) -> dict[str, str]:
    """Labels of every object of a job, its pods included; a job that runs a script has no recipe."""
    labels = {
        "app.kubernetes.io/name": "trainer",
        "app.kubernetes.io/instance": job,
        **stack_labels(),
        JOB_LABEL: job,
    }
    return {**labels, f"{DOMAIN}/recipe": recipe} if recipe else labels


def job_selector(job: str) -> dict[str, str]:
    """The labels that single out the pods of one job in its namespace."""
    return {JOB_LABEL: job}


CLUSTER_LABEL = "trainyard-cluster"
"""Label or tag of a cloud's resource: which cluster it was made for."""


def cloud_labels(cluster: str) -> dict[str, str]:
    """Labels of every resource of a cloud that takes some: what is left over is found by them, and its cost is told.

    `cluster` is the platform's `cluster_label`, which no other cluster of the project or account has.
    """
    return {"part-of": "trainyard", "managed-by": "pulumi", CLUSTER_LABEL: cluster}


def fitted(name: str, role: str, limit: int) -> str:
    """`name-role`, or where that is longer than `limit`, a shortened name with a digest of the whole one.

    Clouds limit names differently; equal arguments give equal names, different ones different names.
    """
    whole = f"{name}-{role}"
    if len(whole) <= limit:
        return whole
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    kept = name[: limit - len(role) - len(digest) - 2].rstrip("-")
    return f"{kept}-{digest}-{role}"
