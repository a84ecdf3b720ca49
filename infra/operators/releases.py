"""The operators that Trainyard installs: release, what of it is used, and what its pod asks of a node. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from infra.hardware import MEBIBYTE, Capacity
from infra.naming import QUEUE_LABEL

REQUEST = Capacity(millicores=20, memory=64 * MEBIBYTE)
"""What the pod of one operator asks of its node."""

HEALTH_PORT = 8081
"""Where a controller-runtime manager answers its health checks unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class Webhooks:
    """An operator's admission webhooks; it makes and renews their certificate itself."""

    manifest: str
    """The generated manifest, in the module."""
    configurations: tuple[tuple[str, str], ...]
    """Kind and name of each configuration: the operator looks for them by these names."""
    service: str
    """Name of the Service that the certificate is made for."""
    secret: str
    """Name of the Secret that holds the certificate."""
    last_path: str
    """Path of the webhook that the operator registers last: when it answers, all do."""
    others: frozenset[str] = frozenset()
    """Resources of others, such as pods, that webhooks are asked about where they carry `label`; no webhook for any
    further resource of others is installed."""
    label: str | None = None
    """That label: what does not carry it is not theirs."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """One operator at one version."""

    name: str
    """Name of the operator, of its folder below setup/go and of its objects."""
    module: str
    """Go module that it is released as."""
    version: str
    """Version of the module; its checksum is in setup/go/<name>/go.sum."""
    image: str
    """The image that the project publishes of this version."""
    definitions: tuple[str, ...]
    """Files of its CustomResourceDefinitions, in the module."""
    role: str
    """File of the ClusterRole that it needs, in the module."""
    unneeded: frozenset[str] = frozenset()
    """Resources in that role which it uses for kinds that are not installed."""
    arguments: tuple[str, ...] = ()
    """Command line of the operator."""
    health_port: int = HEALTH_PORT
    """Port of its health check."""
    ready_path: str = "/readyz"
    """Path of the health check that says when it works."""
    webhooks: Webhooks | None = None
    """Its admission webhooks; None where it has none."""
    files: tuple[tuple[str, str], ...] = ()
    """Path and content of configuration files that it reads."""
    requires: frozenset[str] = frozenset()
    """Operators that it hands work to."""
    follows: frozenset[str] = frozenset()
    """Operators after which it starts where they are installed: it looks for their kinds."""


TRAINING_OPERATOR = Release(
    name="training-operator",
    module="github.com/kubeflow/training-operator",
    version="v1.8.1",
    image="docker.io/kubeflow/training-operator:v1-04f9f13",
    definitions=tuple(f"manifests/base/crds/kubeflow.org_{kind}.yaml" for kind in ("mxjobs", "pytorchjobs")),
    role="manifests/base/rbac/role.yaml",
    # The other kinds' own resources, and what only its MPIJob of the first version makes.
    unneeded=frozenset(
        f"{kind}{part}"
        for kind in ("mpijobs", "paddlejobs", "tfjobs", "xgboostjobs")
        for part in ("", "/finalizers", "/status")
    )
    | {"pods/exec", "roles", "rolebindings", "serviceaccounts"},
    arguments=("--enable-scheme=pytorchjob", "--enable-scheme=mxjob", "--metrics-bind-address=0"),
    webhooks=Webhooks(
        manifest="manifests/base/webhook/manifests.yaml",
        configurations=(("ValidatingWebhookConfiguration", "validator.training-operator.kubeflow.org"),),
        service="training-operator",
        secret="training-operator-webhook-cert",
        last_path="/validate-kubeflow-org-v1-mxjob",
    ),
    # No init container in workers: torch itself waits for the master's name, and the default one's image and lack of
    # a security context are refused by clusters without Docker Hub and by namespaces that enforce `restricted`.
    files=(("/etc/config/initContainer.yaml", "[]\n"),),
)
MPI_OPERATOR = Release(
    name="mpi-operator",
    module="github.com/kubeflow/mpi-operator",
    version="v0.6.0",
    image="docker.io/mpioperator/mpi-operator:0.6.0",
    definitions=("manifests/base/kubeflow.org_mpijobs.yaml",),
    role="manifests/base/cluster-role.yaml",
    arguments=("-logtostderr", "-lock-namespace=$(MY_POD_NAMESPACE)", "-kube-api-qps=50", "-kube-api-burst=100"),
    health_port=8080,
    ready_path="/healthz",
)
JOBSET = Release(
    name="jobset",
    module="sigs.k8s.io/jobset",
    version="v0.8.2",
    image="registry.k8s.io/jobset/jobset:v0.8.2",
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
TRAINER = Release(
    name="trainer",
    module="github.com/kubeflow/trainer/v2",
    version="v2.0.0",
    image="ghcr.io/kubeflow/trainer/trainer-controller-manager:v2.0.0",
    definitions=tuple(
        f"manifests/base/crds/trainer.kubeflow.org_{kind}.yaml"
        for kind in ("clustertrainingruntimes", "trainingruntimes", "trainjobs")
    ),
    role="manifests/base/rbac/role.yaml",
    webhooks=Webhooks(
        manifest="manifests/base/webhook/manifests.yaml",
        configurations=(("ValidatingWebhookConfiguration", "validator.trainer.kubeflow.org"),),
        service="kubeflow-trainer-controller-manager",
        secret="kubeflow-trainer-webhook-cert",
        last_path="/validate-trainer-kubeflow-org-v1alpha1-trainjob",
    ),
    requires=frozenset({"jobset"}),
)
QUEUED_KINDS = {
    "jobs": "batch/job",
    "jobsets": "jobset.x-k8s.io/jobset",
    "mpijobs": "kubeflow.org/mpijob",
    "pytorchjobs": "kubeflow.org/pytorchjob",
    "trainjobs": "trainer.kubeflow.org/trainjob",
}
"""Resources that Kueue admits to a queue, and its names for them; it waits for those that are not installed."""
KUEUE_CONFIGURATION = f"""\
apiVersion: config.kueue.x-k8s.io/v1beta1
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
integrations: {{frameworks: {json.dumps(sorted(QUEUED_KINDS.values()))}}}
featureGates: {{MultiKueue: false, TopologyAwareScheduling: false, VisibilityOnDemand: false}}
"""
KUEUE = Release(
    name="kueue",
    module="sigs.k8s.io/kueue",
    # The one whose TrainJob is Trainer 2.0's: from 0.14.5 on it is that of 2.1.
    version="v0.14.0",
    image="registry.k8s.io/kueue/kueue:v0.14.0",
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
    # Kinds that are not installed or not queued by themselves, and what its features need that are off.
    unneeded=frozenset(
        f"{kind}{part}"
        for kind in ("appwrappers", "jaxjobs", "paddlejobs", "pods", "rayclusters", "rayjobs", "tfjobs", "xgboostjobs")
        for part in ("", "/finalizers", "/status")
    )
    | {"deployments", "replicasets", "statefulsets", "leaderworkersets"}
    | {"multikueueclusters", "multikueueclusters/status", "multikueueconfigs", "topologies", "topologies/finalizers"}
    | {"nodes", "flowschemas", "flowschemas/status", "prioritylevelconfigurations"}
    | {"resourceclaims", "resourceclaimtemplates"},
    arguments=("--zap-log-level=info", "--config=/etc/kueue/configuration.yaml"),
    webhooks=Webhooks(
        manifest="config/components/webhook/manifests.yaml",
        configurations=(
            ("MutatingWebhookConfiguration", "kueue-mutating-webhook-configuration"),
            ("ValidatingWebhookConfiguration", "kueue-validating-webhook-configuration"),
        ),
        service="kueue-webhook-service",
        secret="kueue-webhook-server-cert",
        last_path="/validate-trainer-kubeflow-org-v1alpha1-trainjob",
        others=frozenset(QUEUED_KINDS),
        label=QUEUE_LABEL,
    ),
    files=(("/etc/kueue/configuration.yaml", KUEUE_CONFIGURATION),),
    follows=frozenset({"jobset", "mpi-operator", "trainer", "training-operator"}),
)
RELEASES = {release.name: release for release in (TRAINING_OPERATOR, MPI_OPERATOR, JOBSET, TRAINER, KUEUE)}
"""Every operator by its name, each after those that it requires or follows."""

ROOM = Capacity(millicores=len(RELEASES) * REQUEST.millicores, memory=len(RELEASES) * REQUEST.memory)
"""What all operators together ask, should they meet on one node."""


def needed_releases(names: Iterable[str]) -> list[Release]:
    """The operators called `names` and those that they require, each after what it requires.

    Raises ValueError for a name that is none.
    """
    wanted = set(names)
    if unknown := wanted - RELEASES.keys():
        raise ValueError(f"no operator is called {', '.join(sorted(unknown))}; there are {', '.join(RELEASES)}")
    while required := {each for name in wanted for each in RELEASES[name].requires} - wanted:
        wanted |= required
    return [release for name, release in RELEASES.items() if name in wanted]
