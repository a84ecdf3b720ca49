"""Manifests of small jobs, one of each kind that an operator runs except RayJob, and a program that creates them.

Most pods print their environment and exit.
"""

from __future__ import annotations

from typing import Any

from infra.naming import QUEUE_LABEL

PRINT_PROGRAM = "import os, socket; print('host', socket.gethostname(), sorted(os.environ))"
WAIT_PROGRAM = "import os, time\nwhile not os.path.exists('/tmp/over'): time.sleep(0.2)"
END_PROGRAM = "open('/tmp/over', 'w').close()"
"""Program that ends a waiting pod when it runs in the pod."""
SERVE_PROGRAM = "import threading; threading.Event().wait()"
HOSTS_PROGRAM = "print(open('/etc/mpi/hostfile').read())"
DIGITS_ARGUMENTS = ("-m", "trainer.launch", "-m", "trainer", "digits", "--epochs=1")
RESTRICTED = {"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}}


def pod(image: str, name: str, *arguments: str, restart: str | None = "Never") -> dict[str, Any]:
    """Return a pod template that the `restricted` standard admits."""
    container = {
        "name": name,
        "image": image,
        "command": ["python"],
        "args": list(arguments),
        "env": [{"name": "HOME", "value": "/tmp"}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    spec = {
        "automountServiceAccountToken": False,
        "securityContext": RESTRICTED,
        # Python ignores SIGTERM as process 1, so a waiting worker would use the whole grace period.
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return {"spec": {**spec, **({"restartPolicy": restart} if restart else {})}}


def replicas(count: int, template: dict[str, Any]) -> dict[str, Any]:
    """Return a replica spec of the Kubeflow kinds."""
    return {"replicas": count, "restartPolicy": "Never", "template": template}


def jobs(namespace: str, image: str) -> list[dict[str, Any]]:
    """Return a job of each kind that an operator runs, except RayJob. An object that a job references precedes it."""

    def job(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        metadata = {"name": kind.lower(), "namespace": namespace}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}

    trains = pod(image, "pytorch", *DIGITS_ARGUMENTS)
    prints = pod(image, "node", "-c", PRINT_PROGRAM)
    pytorch = {
        "nprocPerNode": "1",
        "runPolicy": {"cleanPodPolicy": "None"},
        "pytorchReplicaSpecs": {"Master": replicas(1, trains), "Worker": replicas(1, trains)},
    }
    mx = {
        "jobMode": "MXTrain",
        "runPolicy": {"cleanPodPolicy": "None"},
        "mxReplicaSpecs": {
            role: replicas(1, pod(image, "mxnet", "-c", PRINT_PROGRAM)) for role in ("Scheduler", "Server", "Worker")
        },
    }
    mpi = {
        "slotsPerWorker": 1,
        "sshAuthMountPath": "/tmp/ssh",
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": {"cleanPodPolicy": "Running"},
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": pod(image, "launcher", "-c", HOSTS_PROGRAM)},
            "Worker": {"replicas": 2, "template": pod(image, "worker", "-c", SERVE_PROGRAM, restart=None)},
        },
    }
    indexed = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimit": 0, "template": prints}
    jobset = {"replicatedJobs": [{"name": "worker", "replicas": 1, "template": {"spec": indexed}}]}
    runtime = job("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", _runtime_spec(prints))
    del runtime["metadata"]["namespace"]
    train = {"runtimeRef": {"name": runtime["metadata"]["name"]}, "trainer": {"numNodes": 2}}
    return [
        job("kubeflow.org/v1", "PyTorchJob", pytorch),
        job("kubeflow.org/v1", "MXJob", mx),
        job("kubeflow.org/v2beta1", "MPIJob", mpi),
        job("jobset.x-k8s.io/v1alpha2", "JobSet", jobset),
        runtime,
        job("trainer.kubeflow.org/v1alpha1", "TrainJob", train),
    ]


def _runtime_spec(template: dict[str, Any]) -> dict[str, Any]:
    """Return the spec of a runtime whose nodes have this pod template."""
    node = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"template": template},
    }
    replicated_jobs = [{"name": "node", "template": node}]
    return {"mlPolicy": {"numNodes": 1, "torch": {}}, "template": {"spec": {"replicatedJobs": replicated_jobs}}}


def indexed(namespace: str, name: str, template: dict[str, Any]) -> dict[str, Any]:
    """Return an Indexed Job of two hosts."""
    spec = {"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimit": 0, "template": template}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def in_queue(document: dict[str, Any]) -> dict[str, Any]:
    """Return the same job in the queue `research`."""
    return {**document, "metadata": {**document["metadata"], "labels": {QUEUE_LABEL: "research"}}}


def two_in_queue(namespace: str, image: str) -> list[dict[str, Any]]:
    """Return two jobs in a queue, whose pods wait for `END_PROGRAM`, and one job without a queue."""
    stays = pod(image, "node", "-c", WAIT_PROGRAM)
    first, second = (in_queue(indexed(namespace, name, stays)) for name in ("first", "second"))
    return [first, second, indexed(namespace, "without-queue", pod(image, "node", "-c", PRINT_PROGRAM))]


def queued(namespace: str, image: str) -> list[dict[str, Any]]:
    """Return the `jobs` whose kind supports queues, an Indexed Job, and one job that exceeds its queue's capacity."""
    runtime, *others = sorted(
        (each for each in jobs(namespace, image) if each["kind"] != "MXJob"),
        key=lambda each: each["kind"] != "ClusterTrainingRuntime",
    )
    large = pod(image, "node", "-c", PRINT_PROGRAM)
    large["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1"
    own = [indexed(namespace, "job", pod(image, "node", "-c", PRINT_PROGRAM)), indexed(namespace, "large", large)]
    return [runtime, *(in_queue(each) for each in (*others, *own))]


PULUMI_PROGRAM = """
import sys
sys.path.insert(0, {project!r})

from infra.hardware import Capacity, PoolCapacity
from infra.local.image_store import program_reference
from infra.operator_releases import RELEASES
from infra.operators import Operators, OperatorsArgs
from tests.local.operator_jobs import jobs, queued, two_in_queue
from workloads.queues import Queues, QueuesArgs

images = {{name: program_reference(name) for name in RELEASES}}
operators = Operators(
    "operators",
    OperatorsArgs(needed=frozenset(RELEASES), images=images),
    pulumi.ResourceOptions(providers={{"kubernetes": cluster}}),
)
space = k8s.core.v1.Namespace(
    "jobs",
    metadata={{"name": namespace, "labels": {{"pod-security.kubernetes.io/enforce": "restricted"}}}},
    opts=on_cluster,
)
before = [operators, space]
# `edit` is in the preamble: it returns the value of EDIT_jobs.
chosen = edit("jobs", "each")
if chosen in ("two", "queued"):
    args = QueuesArgs(
        names=frozenset({{"research"}}),
        namespace=namespace,
        pools=[PoolCapacity(name="nodes", free=Capacity(millicores=300, memory=2**30))],
        after=before,
    )
    options = pulumi.ResourceOptions(providers={{"kubernetes": cluster}})
    before.append(Queues("queues", args, options))
documents = {{"each": jobs, "none": lambda *_: [], "two": two_in_queue, "queued": queued}}[chosen](namespace, {image!r})
for document in documents:
    created = k8s.apiextensions.CustomResource(
        document["metadata"]["name"],
        api_version=document["apiVersion"],
        kind=document["kind"],
        metadata={{**document["metadata"], "annotations": {{"pulumi.com/waitFor": "jsonpath={{.metadata.uid}}"}}}},
        spec=document["spec"],
        opts=pulumi.ResourceOptions(provider=cluster, depends_on=list(before)),
    )
    if document["kind"] == "ClusterTrainingRuntime":
        before.append(created)
"""
"""Program of test_operators.py, after the preamble of tests/plugins/stack.py: operators, a namespace that enforces
`restricted`, and jobs.

`EDIT_jobs` selects the jobs: `each` selects `jobs`, `two` selects `two_in_queue`, `queued` selects `queued`, and
`none` selects no job. The queue has capacity for one job at a time.
"""
