"""Releases of operators, the objects that set-up generates from each release, and the requests of operators' pods."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infra.hardware import MEBIBYTE, Capacity, node_share, reserved_for_other_nodes
from infra.local.settings import cache_folder
from infra.make_command import make_command
from infra.naming import QUEUE_LABEL

HEALTH_PORT = 8081
"""Default port of a controller-runtime manager's health checks."""


@dataclass(frozen=True, kw_only=True)
class Webhooks:
    """Admission webhooks of an operator. The operator itself creates and renews their certificate."""

    manifest: str
    """Path of the generated manifest in the module."""
    configurations: tuple[tuple[str, str], ...]
    """Kind and name of each configuration. The operator finds the configurations by these names.

    Empty if the operator needs no webhook. Such an operator uses the Service and Secret of an operator that it
    requires.
    """
    service: str
    """Name of the Service in the certificate."""
    secret: str
    """Name of the Secret with the certificate."""
    last_path: str
    """Path of the webhook that the operator registers last. When it answers, all webhooks answer."""
    conversions: frozenset[str] = frozenset()
    """Plural names of the CustomResourceDefinitions with a conversion webhook that gets the operator's certificate."""
    others: frozenset[str] = frozenset()
    """Resources of other projects, such as pods, for which Trainyard installs the operator's webhooks. These webhooks
    select only objects with `label`. Trainyard omits the operator's webhooks for further resources of other projects.
    """
    label: str | None = None
    """Label that selects objects of other projects."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """Release of an operator."""

    name: str
    """Name of the operator, of its folder in setup/go and of its objects."""
    module: str
    version: str
    """Version of the module. Its checksum is in setup/go/<name>/go.sum."""
    image: str
    """Image that the project publishes for this version."""
    definitions: tuple[str, ...]
    """Paths of the CustomResourceDefinitions in the module."""
    role: str
    """Path of the file with the operator's ClusterRole in the module. The file may contain other ClusterRoles."""
    unneeded: frozenset[str] = frozenset()
    """Resources of the role that the operator does not use here, such as kinds that Trainyard does not install."""
    arguments: tuple[str, ...] = ()
    """Command line of the operator."""
    health_port: int = HEALTH_PORT
    """Port of its health check."""
    ready_path: str = "/readyz"
    webhooks: Webhooks | None = None
    files: tuple[tuple[str, str], ...] = ()
    """Path and content of each configuration file."""
    requires: frozenset[str] = frozenset()
    """Operators that this operator delegates work to, or whose Service and Secret it uses."""
    follows: frozenset[str] = frozenset()
    """Operators that must start first if they are installed, because this operator looks for their kinds."""


FORMAT_VERSION = 1
"""Version of the format of objects files. Increase it when set-up writes different objects for an unchanged release."""


@dataclass(frozen=True, kw_only=True)
class OperatorObjects:
    """Kubernetes objects from an operator's release. Trainyard defines the operator's other objects."""

    definitions: list[dict[str, Any]]
    """CustomResourceDefinitions."""
    rules: list[dict[str, Any]]
    """Rules of the operator's ClusterRole."""
    webhooks: dict[str, list[dict[str, Any]]]
    """Name of a configuration -> its webhooks."""


def objects_file(release: Release) -> Path:
    """Return the path of the file with a release's objects. Its name is a hash of the release and the file format."""
    content = json.dumps([FORMAT_VERSION, asdict(release)], default=sorted)
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return cache_folder() / "operators" / release.name / release.version / f"{digest}.json"


def save_objects(release: Release, objects: OperatorObjects) -> None:
    """Write the objects atomically."""
    file = objects_file(release)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(asdict(objects)), encoding="utf-8")
    draft.replace(file)


def load_objects(release: Release) -> OperatorObjects:
    """Read the objects. Raises ValueError with the remedy if set-up has not written them."""
    try:
        return OperatorObjects(**json.loads(objects_file(release).read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        remedy = f"run {make_command('up')}, or `python -m setup --operator={release.name}`"
        message = f"operator {release.name} {release.version} is not set up; {remedy}"
        raise ValueError(message) from error


OPERATOR_REQUEST = Capacity(millicores=20, memory=64 * MEBIBYTE)
"""Resource requests of an operator's pod."""

CERTIFICATE_SERVICE, CERTIFICATE_SECRET = "training-operator", "training-operator-webhook-cert"
"""Service and Secret of both training-operators.

Both versions write their certificate authority into a webhook configuration of the same name. With two authorities,
each version would repeatedly overwrite the authority of the other.
"""


def _with_subresources(*resources: str) -> frozenset[str]:
    """Return the resources, and their subresources as they appear in a role's rules."""
    return frozenset(f"{resource}{suffix}" for resource in resources for suffix in ("", "/finalizers", "/status"))


# Only MPIJob uses these. infra/operators.py grants access to the certificate's Secret.
_MPI_JOB_RESOURCES = {"configmaps", "pods/exec", "roles", "rolebindings", "secrets", "serviceaccounts"}

TRAINING_OPERATOR_RELEASE = Release(
    name="training-operator",
    module="github.com/kubeflow/training-operator",
    version="v1.9.4",
    image="ghcr.io/kubeflow/training-v1/training-operator:v1-93c5489",
    definitions=("manifests/base/crds/kubeflow.org_pytorchjobs.yaml",),
    role="manifests/base/rbac/role.yaml",
    unneeded=_with_subresources("jaxjobs", "mpijobs", "paddlejobs", "tfjobs", "xgboostjobs") | _MPI_JOB_RESOURCES,
    arguments=("--enable-scheme=pytorchjob", "--metrics-bind-address=0"),
    webhooks=Webhooks(
        manifest="manifests/base/webhook/manifests.yaml",
        configurations=(("ValidatingWebhookConfiguration", "validator.training-operator.kubeflow.org"),),
        service=CERTIFICATE_SERVICE,
        secret=CERTIFICATE_SECRET,
        last_path="/validate-kubeflow-org-v1-pytorchjob",
    ),
    # The default init container needs an image from Docker Hub and violates the `restricted` Pod Security Standard.
    # Workers do not need it: torch waits until the master's name resolves.
    files=(("/etc/config/initContainer.yaml", "[]\n"),),
)
TRAINING_OPERATOR_MXJOB_RELEASE = Release(
    name="training-operator-mxjob",
    module="github.com/kubeflow/training-operator",
    # v1.8.1 is the last release with MXJob: https://github.com/kubeflow/trainer/issues/1996.
    version="v1.8.1",
    image="docker.io/kubeflow/training-operator:v1-04f9f13",
    definitions=("manifests/base/crds/kubeflow.org_mxjobs.yaml",),
    role="manifests/base/rbac/role.yaml",
    unneeded=_with_subresources("mpijobs", "paddlejobs", "pytorchjobs", "tfjobs", "xgboostjobs")
    | _MPI_JOB_RESOURCES
    | {"horizontalpodautoscalers"},
    arguments=("--enable-scheme=mxjob", "--metrics-bind-address=0"),
    webhooks=Webhooks(
        manifest="manifests/base/webhook/manifests.yaml",
        # MXJob's webhook only warns that the kind is deprecated.
        configurations=(),
        service=CERTIFICATE_SERVICE,
        secret=CERTIFICATE_SECRET,
        last_path="/validate-kubeflow-org-v1-mxjob",
    ),
    requires=frozenset({"training-operator"}),
)
MPI_OPERATOR_RELEASE = Release(
    name="mpi-operator",
    module="github.com/kubeflow/mpi-operator",
    version="v0.8.2",
    image="docker.io/mpioperator/mpi-operator:0.8.2",
    definitions=("manifests/base/kubeflow.org_mpijobs.yaml",),
    role="manifests/base/cluster-role.yaml",
    # The operator's code does not use these.
    unneeded=frozenset({"customresourcedefinitions", "endpoints", "pods/exec"}),
    arguments=("-logtostderr", "-lock-namespace=$(MY_POD_NAMESPACE)", "-kube-api-qps=50", "-kube-api-burst=100"),
    health_port=8080,
    ready_path="/healthz",
)
JOBSET_RELEASE = Release(
    name="jobset",
    module="sigs.k8s.io/jobset",
    version="v0.12.0",
    image="registry.k8s.io/jobset/jobset:v0.12.0",
    definitions=("config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml",),
    role="config/components/rbac/role.yaml",
    arguments=("--zap-log-level=info", "--metrics-bind-address=0", "--leader-elect=false"),
    webhooks=Webhooks(
        manifest="config/components/webhook/manifests.yaml",
        configurations=(
            ("MutatingWebhookConfiguration", "jobset-mutating-webhook-configuration"),
            ("ValidatingWebhookConfiguration", "jobset-validating-webhook-configuration"),
        ),
        service="jobset-webhook-service",
        secret="jobset-webhook-server-cert",
        last_path="/validate--v1-pod",
        others=frozenset({"pods"}),
        label="jobset.sigs.k8s.io/jobset-name",
    ),
)
TRAINER_CONFIGURATION = """\
apiVersion: config.trainer.kubeflow.org/v1alpha1
kind: Configuration
metrics: {bindAddress: "0"}
"""
TRAINER_RELEASE = Release(
    name="trainer",
    module="github.com/kubeflow/trainer/v2",
    version="v2.3.0",
    image="ghcr.io/kubeflow/trainer/trainer-controller-manager:v2.3.0",
    definitions=tuple(
        f"manifests/base/crds/trainer.kubeflow.org_{kind}.yaml"
        for kind in ("clustertrainingruntimes", "trainingruntimes", "trainjobs")
    ),
    role="manifests/base/rbac/role.yaml",
    # The configuration does not enable leader election.
    unneeded=frozenset({"leases"}),
    arguments=("--config=/etc/trainer/configuration.yaml",),
    webhooks=Webhooks(
        manifest="manifests/base/webhook/manifests.yaml",
        configurations=(
            ("MutatingWebhookConfiguration", "defaulter.trainer.kubeflow.org"),
            ("ValidatingWebhookConfiguration", "validator.trainer.kubeflow.org"),
        ),
        service="kubeflow-trainer-controller-manager",
        secret="kubeflow-trainer-webhook-cert",
        last_path="/validate-trainer-kubeflow-org-v1alpha1-trainjob",
    ),
    files=(("/etc/trainer/configuration.yaml", TRAINER_CONFIGURATION),),
    requires=frozenset({"jobset"}),
)
KUBERAY_OPERATOR_RELEASE = Release(
    name="kuberay-operator",
    module="github.com/ray-project/kuberay/ray-operator",
    version="v1.6.2",
    image="quay.io/kuberay/operator:v1.6.2",
    # The operator does not start without the CRD of RayService, although stacks do not use RayServices.
    definitions=tuple(f"config/crd/bases/ray.io_{kind}.yaml" for kind in ("rayclusters", "rayjobs", "rayservices")),
    role="config/rbac/role.yaml",
    # Resources for unused features: cron jobs, autoscaling, ingresses, gateways, leader election and OpenShift.
    unneeded=_with_subresources("raycronjobs")
    | {"gateways", "httproutes", "ingressclasses", "ingresses", "leases", "rolebindings", "roles", "routes"}
    | {"endpointslices", "pods/proxy", "pods/resize", "serviceaccounts", "services/proxy"},
    arguments=("--enable-leader-election=false", "--metrics-addr=0"),
    health_port=8082,
)
QUEUED_KINDS = {
    "jobs": "batch/job",
    "jobsets": "jobset.x-k8s.io/jobset",
    "mpijobs": "kubeflow.org/mpijob",
    "pytorchjobs": "kubeflow.org/pytorchjob",
    "rayjobs": "ray.io/rayjob",
    "trainjobs": "trainer.kubeflow.org/trainjob",
}
"""Resource that Kueue queues -> its name in Kueue. Kueue ignores kinds until they are installed."""
DISABLED_FEATURES = (
    "ElasticJobsViaWorkloadSlices",
    "KueueDRAIntegration",
    "KueueDRAIntegrationExtendedResource",
    "KueueDRAIntegrationPartitionableDevices",
    "MultiKueue",
    "TASFailedNodeReplacement",
    "TASFailedNodeReplacementFailFast",
    "TASHandleOverlappingFlavors",
    "TASMultiLayerTopology",
    "TASProfileMixed",
    "TASRecomputeAssignmentWithinSchedulingCycle",
    "TASReplaceNodeOnNodeTaints",
    "TASReplaceNodeOnPodTermination",
    "TopologyAwareScheduling",
    "VisibilityOnDemand",
)
"""Kueue features that Trainyard disables. By default they are on and read nodes, pods, devices or other clusters.

Kueue rejects the TAS* features without TopologyAwareScheduling (TAS).
"""
KUEUE_CONFIGURATION = f"""\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health: {{healthProbeBindAddress: ":{HEALTH_PORT}"}}
metrics: {{bindAddress: "0"}}
leaderElection: {{leaderElect: false}}
internalCertManagement:
  enable: true
  webhookServiceName: kueue-webhook-service
  webhookSecretName: kueue-webhook-server-cert
clientConnection: {{qps: 50, burst: 100}}
manageJobsWithoutQueueName: false
# Kueue would evict a job whose pods are not all ready after 30 minutes. Images, large models and nodes take longer.
waitForPodsReady: {{timeout: 8760h, recoveryTimeout: 0s}}
integrations: {{frameworks: {json.dumps(sorted(QUEUED_KINDS.values()))}}}
featureGates: {json.dumps(dict.fromkeys(DISABLED_FEATURES, False))}
"""
KUEUE_RELEASE = Release(
    name="kueue",
    module="sigs.k8s.io/kueue",
    version="v0.19.2",
    image="registry.k8s.io/kueue/kueue:v0.19.2",
    definitions=tuple(
        f"config/components/crd/bases/kueue.x-k8s.io_{kind}.yaml"
        for kind in (
            "admissionchecks",
            "clusterqueues",
            "cohorts",
            "localqueues",
            "provisioningrequestconfigs",
            "resourceflavors",
            "workloadpriorityclasses",
            "workloads",
        )
    ),
    role="config/components/rbac/role.yaml",
    # Kinds that Trainyard does not install or does not queue directly, and resources of disabled features.
    unneeded=_with_subresources("appwrappers", "jaxjobs", "paddlejobs", "pods", "rayservices")
    | _with_subresources("leaderworkersets", "multikueueclusters", "sparkapplications")
    | _with_subresources("tfjobs", "topologies", "xgboostjobs")
    | {
        "deployments",
        "multikueueconfigs",
        "rayclusters/finalizers",
        "rayclusters/status",
        "replicasets",
        "statefulsets",
    }
    | {"flowschemas", "flowschemas/status", "nodes", "prioritylevelconfigurations"}
    | {"deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"},
    arguments=("--zap-log-level=info", "--config=/etc/kueue/configuration.yaml"),
    webhooks=Webhooks(
        manifest="config/components/webhook/manifests.yaml",
        configurations=(
            ("MutatingWebhookConfiguration", "kueue-mutating-webhook-configuration"),
            ("ValidatingWebhookConfiguration", "kueue-validating-webhook-configuration"),
        ),
        service="kueue-webhook-service",
        secret="kueue-webhook-server-cert",
        last_path="/validate-kueue-x-k8s-io-v1beta2-cohort",
        conversions=frozenset({"clusterqueues", "cohorts", "localqueues", "workloads"}),
        others=frozenset(QUEUED_KINDS),
        label=QUEUE_LABEL,
    ),
    files=(("/etc/kueue/configuration.yaml", KUEUE_CONFIGURATION),),
    follows=frozenset({"jobset", "kuberay-operator", "mpi-operator", "trainer", "training-operator"}),
)
RELEASES = {
    release.name: release
    for release in (
        TRAINING_OPERATOR_RELEASE,
        TRAINING_OPERATOR_MXJOB_RELEASE,
        MPI_OPERATOR_RELEASE,
        JOBSET_RELEASE,
        TRAINER_RELEASE,
        KUBERAY_OPERATOR_RELEASE,
        KUEUE_RELEASE,
    )
}
"""Operators by name, each after the operators that it requires or follows."""

TOTAL_REQUEST = Capacity(
    millicores=len(RELEASES) * OPERATOR_REQUEST.millicores, memory=len(RELEASES) * OPERATOR_REQUEST.memory
)
"""Resource requests of all operators together, which can run on one node."""


def needed_releases(names: Iterable[str]) -> list[Release]:
    """Return the operators `names` and the operators that they require, each after its requirements.

    Raises ValueError for an unknown name.
    """
    needed = set(names)
    if unknown := needed - RELEASES.keys():
        raise ValueError(f"{', '.join(sorted(unknown))} is not an operator; write one of {', '.join(RELEASES)}")
    while required := {requirement for name in needed for requirement in RELEASES[name].requires} - needed:
        needed |= required
    return [release for name, release in RELEASES.items() if name in needed]


def system_reserved(machine: Capacity, num_nodes: int) -> Capacity:
    """Return the capacity that each of `num_nodes` equal nodes on one machine reserves (`systemReserved`).

    Each kubelet sees the whole machine, so a node reserves the other nodes' shares, minus the requests of all
    operators. Operators then do not reduce the share for jobs. A single node reserves nothing, so its operators reduce
    the share for jobs.
    """
    reserved = reserved_for_other_nodes(machine, num_nodes) - TOTAL_REQUEST
    return Capacity(millicores=max(0, reserved.millicores), memory=max(0, reserved.memory))


def left_for_jobs(machine: Capacity, num_nodes: int, num_operators: int) -> Capacity:
    """Return a node's capacity for jobs in the worst case: all `num_operators` operators run on that node."""
    spare = reserved_for_other_nodes(machine, num_nodes) - system_reserved(machine, num_nodes)
    return node_share(machine, num_nodes) - Capacity(
        millicores=max(0, num_operators * OPERATOR_REQUEST.millicores - spare.millicores),
        memory=max(0, num_operators * OPERATOR_REQUEST.memory - spare.memory),
    )
