"""Names and labels of Trainyard's Kubernetes objects and cloud resources, with their limits."""

from __future__ import annotations

import hashlib

DOMAIN = "trainyard.dev"
"""Prefix of Trainyard's labels."""
COMPONENT_LABEL = "app.kubernetes.io/component"
"""Label with the role of a job's pod, such as worker, launcher, head or scheduler."""
POOL_LABEL = f"{DOMAIN}/pool"
"""Label of cloud nodes with the name of their pool in the settings."""
ACCELERATOR_LABEL = f"{DOMAIN}/accelerator"
"""Label of GPU nodes with their model, if the cloud has no such label."""
COMPUTE_CLASS_LABEL = "cloud.google.com/compute-class"
"""Label of nodes with a custom compute class:
https://cloud.google.com/kubernetes-engine/docs/concepts/about-custom-compute-classes"""
QUEUED_LABEL = "cloud.google.com/gke-queued"
"""Label of nodes with queued provisioning:
https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest"""
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
"""Label with the LocalQueue that admits a job: https://kueue.sigs.k8s.io/docs/tasks/run/jobs/"""
KUEUE = "kueue"
"""Name of the operator that admits the jobs of queues."""
JOB_LABEL = f"{DOMAIN}/job"
"""Label of every object of a job: `kubectl logs -l trainyard.dev/job=NAME`."""


def host_name(job: str, index: int) -> str:
    """Return the host name of the pod that runs host `index` of an Indexed Job."""
    return f"{job}-{index}"


def secret_name(job: str) -> str:
    """Return the name of the Secret with a job's secret variables."""
    return f"{job}-secrets"


def stack_labels() -> dict[str, str]:
    """Return the labels of every Kubernetes object of a stack. Objects of a job have more labels; see `job_labels`.

    Keys: https://kubernetes.io/docs/concepts/overview/working-with-objects/common-labels/
    """
    return {"app.kubernetes.io/part-of": "trainyard", "app.kubernetes.io/managed-by": "pulumi"}


def job_labels(job: str, recipe: str | None) -> dict[str, str]:
    """Return the labels of every object of a job, including its pods. `recipe` is None for a job that runs a script."""
    labels = {
        "app.kubernetes.io/name": "trainer",
        "app.kubernetes.io/instance": job,
        **stack_labels(),
        JOB_LABEL: job,
    }
    return {**labels, f"{DOMAIN}/recipe": recipe} if recipe else labels


def job_selector(job: str) -> dict[str, str]:
    """Return the labels that select the pods of one job in its namespace."""
    return {JOB_LABEL: job}


CLUSTER_LABEL = "trainyard-cluster"
"""Label or tag with the cluster of a cloud resource."""


def cloud_labels(cluster: str) -> dict[str, str]:
    """Return the labels of every cloud resource that supports labels. Inventory and cost reports use them.

    `cluster` is the platform's `cluster_label`, which is unique in the project or account.
    """
    return {"part-of": "trainyard", "managed-by": "pulumi", CLUSTER_LABEL: cluster}


def fit_name(name: str, role: str, limit: int) -> str:
    """Return `name-role`. If that is longer than `limit`, shorten `name` and add a hash of it.

    Equal arguments give equal names. The hash keeps shortened names different.
    """
    full_name = f"{name}-{role}"
    if len(full_name) <= limit:
        return full_name
    digest = hashlib.sha256(name.encode()).hexdigest()[:6]
    prefix = name[: limit - len(role) - len(digest) - 2].rstrip("-")
    return f"{prefix}-{digest}-{role}"
