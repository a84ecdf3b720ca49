"""Kind `ray-job`: a RayJob (ray.io/v1) with a Ray cluster of its own: a head, and the hosts as its workers.

The operator creates the head and the hosts. When all are ready, it creates the launcher, a Job. The launcher submits
the script as a Ray driver and prints the driver's output. The driver runs in the head. When the driver ends, the
operator deletes the head and the hosts. The launcher and its log stay. The operator recreates a deleted host at once.
Kubernetes restarts Ray in a host where Ray fails. Ray Train then continues from the last checkpoint if the script's
FailureConfig allows that.

`restarts` limits the retries after failed drivers, whatever their exit codes. Each retry has a new Ray cluster, and
`deadline_seconds` counts from its start.

An interactive job has no launcher and stays in the operator's state Waiting. In this state the operator ignores
`suspend` and `activeDeadlineSeconds`, and checks `preRunningDeadlineSeconds`.

The other modes of submission do not fit. HTTPMode has no pod with the driver's output. SidecarMode adds a container
without a security context to the head, and a `restricted` namespace rejects such a pod.

Source: github.com/ray-project/kuberay v1.6.2, ray-operator/controllers/ray (rayjob_controller.go, common/job.go,
common/pod.go, utils/validation.go).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from infra.hardware import Capacity, PodGroup
from settings.kubernetes_values import parse_memory
from settings.problem import Problem
from workloads.kinds.kind import COORDINATOR, RANDOM_SUFFIX, Kind, Object, Resource, Schema

if TYPE_CHECKING:
    from pulumi import Output, ResourceOptions
    from pulumi_kubernetes.core.v1 import PodTemplateSpecArgs

    from workloads.command import Command
    from workloads.objects import Placement
    from workloads.spec import JobSpec

RAY = "Ray"
RAY_VERSION = "2.60.0"
"""Version of Ray in Trainyard's image. For versions before 2.53, the operator's probes need programs in the image."""
HEADS = LAUNCHERS = 1
HEAD = Capacity(millicores=500, memory=3 * 2**30)
"""Requests of the head, which runs Ray's dashboard and the driver. Both use 2.1 GiB in the example `digits-ray`."""
HEAD_STORE_BYTES = 128 * 2**20
"""Size of the head's object store."""
MIN_SHARED_MEMORY_BYTES = 160 * 2**20
"""Minimum size of /dev/shm. Half of it is the object store, for which Ray requires 75 MiB."""
GROUP = "hosts"
"""Name of the group of workers."""
INDEX_LABEL = "ray.io/worker-group-replica-index"
"""Label of a worker's pod with its index."""
KEEP_COMMAND = {"ray.io/overwrite-container-cmd": "true"}
"""Annotation that makes the operator keep the command of a pod."""
START_RAY = 'eval exec "$KUBERAY_GEN_RAY_START_CMD"'
"""Command that starts Ray in a pod. The operator sets the variable."""
SUBMIT_DRIVER = (
    'export RAY_API_SERVER_ADDRESS="http://$RAY_DASHBOARD_ADDRESS"; '
    'until ray job submit --submission-id "$RAY_JOB_SUBMISSION_ID" --no-wait -- "$@" '
    '|| ray job status "$RAY_JOB_SUBMISSION_ID"; do sleep 2; done; '
    'exec ray job logs --follow "$RAY_JOB_SUBMISSION_ID"'
)
"""Shell command that submits a driver and prints its output. The operator sets the variables. The command retries until
the head answers. If an earlier launcher has submitted the driver, the command only prints its output."""
AGENT_PORTS = {"dashboard-agent-grpc-port": "52366", "runtime-env-agent-port": "52367"}
"""Fixed ports of Ray's agents. Without them, Ray fails if an agent does not report its port in time."""
ENVIRONMENT = {"RAY_COLOR_PREFIX": "0", "RAY_DEDUP_LOGS": "0", "RAY_TRAIN_ENABLE_PRINT_PATCH": "0"}
"""Variables that make the driver print each line of each rank once, without colours."""
INIT_REQUEST = Capacity(millicores=200, memory=256 * 2**20)
"""Requests of the init container in which a host waits for the head. The operator adds it."""
CONDITIONS = {
    "Complete": "Succeeded",
    "Failed": "Failed",
    "ValidationFailed": "Failed",
    "Retrying": "Restarting",
    "Suspended": "Suspended",
}
"""Deployment status of a RayJob -> the equivalent condition."""


def _conditions(status: Object) -> list[Object]:
    """Return the state of a RayJob as a condition, because a RayJob has no conditions."""
    deployment, driver = status.get("jobDeploymentStatus", ""), status.get("jobStatus", "")
    if deployment not in CONDITIONS:
        return []
    # If a user stops the driver, the operator reports the job as Complete.
    is_stopped = deployment == "Complete" and driver != "SUCCEEDED"
    return [
        {
            "type": "Failed" if is_stopped else CONDITIONS[deployment],
            "status": "True",
            "reason": status.get("reason") or (driver if is_stopped else deployment),
            # Drop the end of the driver's log, which follows the message.
            "message": status.get("message", "").partition(", last available logs")[0],
            "lastTransitionTime": status.get("endTime") or status.get("startTime") or "",
        }
    ]


def _is_running(status: Object) -> bool:
    """Return True if a host is ready. In state Waiting all hosts are ready, but the operator does not count them."""
    is_ready = bool(status.get("rayClusterStatus", {}).get("readyWorkerReplicas"))
    return is_ready or status.get("jobDeploymentStatus") == "Waiting"


RESOURCE = Resource(
    api_version="ray.io/v1",
    kind="RayJob",
    plural="rayjobs",
    is_running=_is_running,
    hosts=lambda spec: sum(group.get("replicas", 0) for group in spec["rayClusterSpec"]["workerGroupSpecs"]),
    conditions=_conditions,
    intermediates=("rayclusters",),
)


@dataclass(frozen=True, kw_only=True)
class HeadGroup(Schema):
    """The head."""

    ray_start_params: dict[str, str]
    template: PodTemplateSpecArgs


@dataclass(frozen=True, kw_only=True)
class WorkerGroup(Schema):
    """The hosts."""

    group_name: str
    max_replicas: int
    min_replicas: int
    ray_start_params: dict[str, str]
    replicas: int
    template: PodTemplateSpecArgs


@dataclass(frozen=True, kw_only=True)
class AuthOptions(Schema):
    """Authentication of the pods to each other. The operator generates the token."""

    mode: str


@dataclass(frozen=True, kw_only=True)
class RayClusterSpec(Schema):
    """The Ray cluster."""

    auth_options: AuthOptions
    head_group_spec: HeadGroup
    ray_version: str
    worker_group_specs: tuple[WorkerGroup, ...]


@dataclass(frozen=True, kw_only=True)
class RayJobSpec(Schema):
    """Spec of the RayJob."""

    active_deadline_seconds: int | None
    backoff_limit: int
    pre_running_deadline_seconds: int | None
    """Deadline of an interactive job."""
    ray_cluster_spec: RayClusterSpec
    shutdown_after_job_finishes: bool
    submission_mode: str
    submitter_pod_template: PodTemplateSpecArgs | None
    suspend: bool | None


class RayJob(Kind):
    """Kind `ray-job`."""

    name = "ray-job"
    suspends_interactive = False
    operators = frozenset({"kuberay-operator"})
    resource = RESOURCE
    line_prefix = r"\(\w+ pid=\d+(?:, ip=[\w.:]+)?\) "
    index_label = INDEX_LABEL
    no_tpu = "Ray finds TPU slices through a webhook of GKE's add-on, which a stack does not install"
    runs_recipes = False
    image_software = RAY
    operator_variables = (
        *("FQ_RAY_IP", "RAY_IP", "RAY_ADDRESS", "RAY_PORT", "RAY_CLUSTER_NAME", "RAY_CLUSTER_NAMESPACE"),
        *("RAY_CLOUD_INSTANCE_ID", "RAY_NODE_TYPE_NAME", "KUBERAY_GEN_RAY_START_CMD"),
        *("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_DASHBOARD_ADDRESS", "RAY_JOB_SUBMISSION_ID"),
        *("RAY_USAGE_STATS_KUBERAY_IN_USE", "RAY_USAGE_STATS_EXTRA_TAGS", "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE"),
        *("RAY_REDIS_ADDRESS", "REDIS_USERNAME", "RAY_enable_autoscaler_v2"),
    )

    def extra_pods(self, spec: JobSpec) -> tuple[PodGroup, ...]:
        head = PodGroup(count=HEADS, per_pod=HEAD, key="kind", role="head")
        launcher = PodGroup(count=LAUNCHERS, per_pod=COORDINATOR, key="kind", role="launcher")
        return (head,) if spec.interactive else (head, launcher)

    def child_suffixes(self, spec: JobSpec) -> Iterator[str]:
        del spec
        yield "-head-svc"

    def label_suffixes(self, spec: JobSpec) -> tuple[str, ...]:
        """Return the suffix of a Ray cluster's longest Service name, which limits the cluster's name."""
        del spec
        return (f"{RANDOM_SUFFIX}-serve-svc",)

    def problems(self, spec: JobSpec) -> Iterator[Problem]:
        if parse_memory(spec.shared_memory) < MIN_SHARED_MEMORY_BYTES:
            message = "is too small for the object store of a ray-job; write 160Mi or more"
            yield Problem("job.shared_memory.too_small_for_ray_job", ("shared_memory",), message, spec.shared_memory)
        if spec.resources.capacity.millicores < INIT_REQUEST.millicores:
            message = "a host of a ray-job starts with a container that needs 200m; write 200m or more"
            yield Problem("job.resources.cpu_too_small_for_ray_job", ("resources", "cpu"), message, spec.resources.cpu)
        if spec.resources.capacity.memory < INIT_REQUEST.memory:
            message = "a host of a ray-job starts with a container that needs 256Mi; write 256Mi or more"
            yield Problem(
                "job.resources.memory_too_small_for_ray_job", ("resources", "memory"), message, spec.resources.memory
            )

    def render(self, name: str, spec: JobSpec, placement: Placement, opts: ResourceOptions) -> Output[str]:
        """Create the RayJob."""
        from pulumi import ResourceOptions

        from workloads.command import JOIN_SECONDS, SHUTDOWN_MARGIN_SECONDS, host_command, process_layout
        from workloads.objects import WAIT_FOR_CREATION, Pod, custom_job, metadata, pod_template

        host = host_command(spec, process_layout(spec))
        seconds = {
            # The default is 30, whatever the pod's grace period.
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": str(max(0, spec.grace_seconds - SHUTDOWN_MARGIN_SECONDS)),
            # The default is 60. A host that replaces a lost one may need longer.
            "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": str(JOIN_SECONDS),
        }
        host = replace(host, environment={**ENVIRONMENT, **seconds, **host.environment})
        launcher = Pod(command=replace(host, argv=_submit(spec)), role="launcher", capacity=COORDINATOR)
        if spec.interactive:
            opts = ResourceOptions.merge(opts, ResourceOptions(replace_on_changes=["spec.suspend"]))
        return custom_job(
            f"{name}-job",
            RESOURCE,
            metadata(spec, placement, {**WAIT_FOR_CREATION, **KEEP_COMMAND}),
            RayJobSpec(
                active_deadline_seconds=spec.deadline_seconds,
                backoff_limit=0 if spec.interactive else spec.restarts,
                pre_running_deadline_seconds=spec.deadline_seconds if spec.interactive else None,
                ray_cluster_spec=_cluster(spec, placement, host),
                shutdown_after_job_finishes=True,
                submission_mode="InteractiveMode" if spec.interactive else "K8sJobMode",
                submitter_pod_template=None if spec.interactive else pod_template(spec, placement, launcher),
                suspend=spec.suspend or None,
            ),
            opts,
        )


def _submit(spec: JobSpec) -> tuple[str, ...]:
    from workloads.command import program

    return ("sh", "-c", SUBMIT_DRIVER, "sh", *program(spec))


def _cluster(spec: JobSpec, placement: Placement, host: Command) -> RayClusterSpec:
    """Return the Ray cluster. Drivers run in the head, tasks and actors only on the hosts."""
    from workloads.command import with_nccl_environment
    from workloads.objects import Pod, pod_template

    start = ("sh", "-c", START_RAY)
    # Set no restart policy: Kubernetes then restarts Ray in its pod. The operator would recreate a failed pod at once.
    worker_start = with_nccl_environment(placement.scheduling.nccl_environment, start)
    head = Pod(command=replace(host, argv=start), role="head", capacity=HEAD, restart_policy=None)
    worker = Pod(command=replace(host, argv=worker_start), restart_policy=None)
    cpus = max(-(-spec.resources.capacity.millicores // 1000), spec.processes_per_host)
    store = parse_memory(spec.shared_memory) // 2
    hosts = WorkerGroup(
        group_name=GROUP,
        max_replicas=spec.hosts,
        min_replicas=spec.hosts,
        # A rank reserves one CPU by default. The ranks use the other half of the shared memory.
        ray_start_params={**AGENT_PORTS, "num-cpus": str(cpus), "object-store-memory": str(store)},
        replicas=spec.hosts,
        template=pod_template(spec, placement, worker),
    )
    return RayClusterSpec(
        auth_options=AuthOptions(mode="token"),
        head_group_spec=HeadGroup(
            ray_start_params={
                **AGENT_PORTS,
                "num-cpus": "0",
                "object-store-memory": str(min(store, HEAD_STORE_BYTES)),
            },
            template=pod_template(spec, placement, head),
        ),
        ray_version=RAY_VERSION,
        worker_group_specs=(hosts,),
    )
