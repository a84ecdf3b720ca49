"""Rules for workloads in the cluster: images, limits and privileges."""

from __future__ import annotations

from policy.inputs import containers, pods, value
from policy.rules import Broken, Inputs, Rule
from workloads.kinds import KINDS

JOBS = tuple(each for kind in KINDS.values() for each in kind.pod_types)
"""Ends of the types whose resources hold a job's pods."""
WORKLOADS = (*JOBS, "Deployment", "StatefulSet", ":Pod")
RESTRICTED = "https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted"


def _digests(inputs: Inputs) -> Broken | None:
    images = [(path, str(each.get("image"))) for path, each in containers(inputs)]
    loose = [(path, image) for path, image in images if "@sha256:" not in image]
    listed = ", ".join(sorted({image for _, image in loose}))
    return (f"{loose[0][0]}.image", f"image {listed} has no digest") if loose else None


def _limits(inputs: Inputs) -> Broken | None:
    for path, each in containers(inputs):
        limits = value(each, "resources.limits") or {}
        if missing := [kind for kind in ("cpu", "memory") if kind not in limits]:
            return f"{path}.resources.limits", f"container {each.get('name')} has no limit of {' and '.join(missing)}"
    return None


def _bounded(inputs: Inputs) -> Broken | None:
    for path, each in containers(inputs):
        if not value(each, "resources.limits.memory") or not value(each, "resources.requests.cpu"):
            message = f"container {each.get('name')} has no limit of memory or no request of cpu"
            return f"{path}.resources", message
    return None


def _non_root(inputs: Inputs) -> Broken | None:
    for path, pod in pods(inputs):
        for index, each in enumerate(pod["containers"]):
            if not (value(pod, "securityContext.runAsNonRoot") or value(each, "securityContext.runAsNonRoot")):
                where = f"{path}.containers[{index}].securityContext.runAsNonRoot"
                return where, f"container {each.get('name')} may run as root"
    return None


def _restricted(inputs: Inputs) -> Broken | None:
    for path, each in containers(inputs):
        context = each.get("securityContext") or {}
        if context.get("privileged") or context.get("allowPrivilegeEscalation") is not False:
            return f"{path}.securityContext", f"container {each.get('name')} may gain privileges"
        if "ALL" not in (value(context, "capabilities.drop") or []):
            return f"{path}.securityContext.capabilities.drop", f"container {each.get('name')} keeps capabilities"
    return None


def _host(inputs: Inputs) -> Broken | None:
    for path, pod in pods(inputs):
        if shared := [key for key in ("hostNetwork", "hostPID", "hostIPC") if pod.get(key)]:
            return f"{path}.{shared[0]}", f"pod shares {', '.join(shared)} with its node"
        if any(volume.get("hostPath") for volume in pod.get("volumes") or []):
            return f"{path}.volumes", "pod mounts a folder of its node"
    return None


def _namespace(inputs: Inputs) -> Broken | None:
    enforced = (value(inputs, "metadata.labels") or {}).get("pod-security.kubernetes.io/enforce")
    message = "namespace does not enforce the restricted Pod Security Standard"
    return None if enforced == "restricted" else ("metadata.labels", message)


JOB_RULES = (
    Rule(
        name="images-by-digest",
        level="advisory",
        why="A tag can move, and hosts that start later would then run different code.",
        link="https://kubernetes.io/docs/concepts/containers/images/#image-names",
        types=WORKLOADS,
        check=_digests,
    ),
    Rule(
        name="limits-set",
        level="mandatory",
        why="A container without limits can starve the rank next to it, and the whole job waits for the slowest rank.",
        link="https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/",
        types=JOBS,
        check=_limits,
    ),
    Rule(
        name="services-bounded",
        level="mandatory",
        why="A memory leak of a controller must not take down its node. The controller may use spare CPU.",
        link="https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/",
        types=("Deployment", "StatefulSet"),
        check=_bounded,
    ),
    Rule(
        name="non-root",
        level="mandatory",
        why="Root in a container is root on the node after a container escape.",
        link=RESTRICTED,
        types=WORKLOADS,
        check=_non_root,
    ),
    Rule(
        name="no-privileges",
        level="mandatory",
        why="Training needs no Linux capabilities, and a container cannot misuse capabilities that it lacks.",
        link=RESTRICTED,
        types=WORKLOADS,
        check=_restricted,
    ),
    Rule(
        name="no-host-access",
        level="mandatory",
        why="A pod in its node's namespaces or folders can see other pods and the node's credentials.",
        link="https://kubernetes.io/docs/concepts/security/pod-security-standards/#baseline",
        types=JOBS,
        check=_host,
    ),
    Rule(
        name="restricted-namespace",
        level="mandatory",
        why="The API server then rejects pods that these rules would only report.",
        link="https://kubernetes.io/docs/concepts/security/pod-security-admission/",
        types=("kubernetes:core/v1:Namespace",),
        check=_namespace,
    ),
)
