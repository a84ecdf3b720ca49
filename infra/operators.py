"""Operators component: the operators that a stack's jobs require, each with its CRDs, webhooks, permissions and pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi_kubernetes.admissionregistration.v1 import MutatingWebhookConfiguration, ValidatingWebhookConfiguration
from pulumi_kubernetes.apiextensions.v1 import CustomResourceDefinition
from pulumi_kubernetes.apps.v1 import Deployment, DeploymentSpecArgs, DeploymentStrategyArgs
from pulumi_kubernetes.core.v1 import (
    CapabilitiesArgs,
    ConfigMap,
    ConfigMapVolumeSourceArgs,
    ContainerArgs,
    EnvVarArgs,
    EnvVarSourceArgs,
    HTTPGetActionArgs,
    Namespace,
    ObjectFieldSelectorArgs,
    PodSecurityContextArgs,
    PodSpecArgs,
    PodTemplateSpecArgs,
    ProbeArgs,
    ResourceRequirementsArgs,
    SeccompProfileArgs,
    Secret,
    SecretVolumeSourceArgs,
    SecurityContextArgs,
    Service,
    ServiceAccount,
    ServicePortArgs,
    ServiceSpecArgs,
    VolumeArgs,
    VolumeMountArgs,
)
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs
from pulumi_kubernetes.rbac.v1 import (
    ClusterRole,
    ClusterRoleBinding,
    PolicyRuleArgs,
    Role,
    RoleBinding,
    RoleRefArgs,
    SubjectArgs,
)

from infra.naming import stack_labels
from infra.operator_releases import OPERATOR_REQUEST, OperatorObjects, Release, Webhooks, load_objects, needed_releases
from settings.kubernetes_values import format_cpu, format_memory
from settings.types import OPERATORS_NAMESPACE

WEBHOOK_PORT = 9443
CERTIFICATE_FOLDER = "/tmp/k8s-webhook-server/serving-certs"
"""Folder in which controller-runtime looks for the certificate of its webhooks."""
USER = 65532
MEMORY_LIMIT = "2Gi"
"""Memory limit of an operator, which caches all pods of the cluster."""
STARTUP_SECONDS = 300
"""Seconds until the startup probe fails. A kubelet may need 90 s to update a changed Secret in a pod."""


def operator_pod(release: Release, image: pulumi.Input[str], labels: Mapping[str, str]) -> PodTemplateSpecArgs:
    """Return the pod of one operator. Its service account has the operator's name.

    Empty lists become None, as in the API server's answers. Otherwise every update would contain a change.
    """
    return PodTemplateSpecArgs(
        metadata=ObjectMetaArgs(labels=labels),
        spec=PodSpecArgs(
            service_account_name=release.name,
            enable_service_links=False,
            termination_grace_period_seconds=10,
            security_context=PodSecurityContextArgs(
                run_as_non_root=True,
                run_as_user=USER,
                run_as_group=USER,
                fs_group=USER,
                seccomp_profile=SeccompProfileArgs(type="RuntimeDefault"),
            ),
            containers=[_container(release, image)],
            volumes=_volumes(release) or None,
        ),
    )


def _container(release: Release, image: pulumi.Input[str]) -> ContainerArgs:
    requests = {"cpu": format_cpu(OPERATOR_REQUEST.millicores), "memory": format_memory(OPERATOR_REQUEST.memory)}
    namespace = EnvVarSourceArgs(field_ref=ObjectFieldSelectorArgs(field_path="metadata.namespace"))
    return ContainerArgs(
        name="operator",
        image=image,
        image_pull_policy="IfNotPresent",
        args=list(release.arguments) or None,
        # Namespace for operators that do not read it from the service account.
        env=[EnvVarArgs(name="MY_POD_NAMESPACE", value_from=namespace)],
        resources=ResourceRequirementsArgs(requests=requests, limits={"memory": MEMORY_LIMIT}),
        security_context=SecurityContextArgs(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=CapabilitiesArgs(drop=["ALL"]),
        ),
        startup_probe=_startup_probe(release),
        readiness_probe=ProbeArgs(http_get=_health(release, release.ready_path), period_seconds=10),
        liveness_probe=ProbeArgs(http_get=_health(release, "/healthz"), period_seconds=20, timeout_seconds=5),
        volume_mounts=_mounts(release) or None,
    )


def _health(release: Release, path: str) -> HTTPGetActionArgs:
    return HTTPGetActionArgs(port=release.health_port, path=path)


def _startup_probe(release: Release) -> ProbeArgs:
    """Return a probe of the webhook that the operator registers last, or of `ready_path` without webhooks.

    The webhook answers a request without an AdmissionReview with status 200 and an error in the body.
    """
    request = _health(release, release.ready_path)
    if release.webhooks is not None:
        request = HTTPGetActionArgs(port=WEBHOOK_PORT, path=release.webhooks.last_path, scheme="HTTPS")
    return ProbeArgs(http_get=request, period_seconds=1, failure_threshold=STARTUP_SECONDS)


def _mounts(release: Release) -> list[VolumeMountArgs]:
    mounts = [
        VolumeMountArgs(name="files", mount_path=path, sub_path=path.rpartition("/")[2], read_only=True)
        for path, _ in release.files
    ]
    if release.webhooks is not None:
        mounts.append(VolumeMountArgs(name="certificate", mount_path=CERTIFICATE_FOLDER, read_only=True))
    return mounts


def _volumes(release: Release) -> list[VolumeArgs]:
    volumes = []
    if release.files:
        volumes.append(VolumeArgs(name="files", config_map=ConfigMapVolumeSourceArgs(name=release.name)))
    if release.webhooks is not None:
        secret = SecretVolumeSourceArgs(secret_name=release.webhooks.secret)
        volumes.append(VolumeArgs(name="certificate", secret=secret))
    return volumes


CONFIGURATIONS = {
    "MutatingWebhookConfiguration": MutatingWebhookConfiguration,
    "ValidatingWebhookConfiguration": ValidatingWebhookConfiguration,
}
WAIT_FOR_CERTIFICATE = {"pulumi.com/waitFor": "jsonpath={.webhooks[0].clientConfig.caBundle}"}
"""Annotation that makes Pulumi wait until the operator has written its certificate authority into the configuration."""
WAIT_FOR_ESTABLISHED = {"pulumi.com/waitFor": "condition=Established"}
"""Annotation that makes Pulumi wait until the API server serves the kind."""
SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}
"""Annotation of the Service. Pulumi need not wait for the Service, because it waits for the Deployment."""
MIN_READY_SECONDS = 2
"""Seconds that a pod must be ready, so that all API servers and proxies have time to learn its address."""


class Operator(pulumi.ComponentResource):
    """Operator with the CRDs, rules and webhooks of its project, and other objects that Trainyard defines.

    The resources `after` must exist before its pod starts. They include the required operators.
    """

    version: pulumi.Output[str]
    """Version of the operator, known once it is ready."""

    def __init__(
        self,
        name: str,
        *,
        release: Release,
        image: pulumi.Input[str],
        namespace: pulumi.Input[str],
        after: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions,
    ) -> None:
        super().__init__("trainyard:infra:Operator", name, None, opts)
        self._name, self._release, self._namespace = name, release, namespace
        self._selector = {"app.kubernetes.io/name": release.name}
        self._labels = {**stack_labels(), **self._selector, "app.kubernetes.io/version": release.version}
        self._subject = SubjectArgs(kind="ServiceAccount", name=release.name, namespace=namespace)
        self._child = pulumi.ResourceOptions(parent=self)
        objects = load_objects(release)
        dependencies = [*self._definitions(objects), *self._permissions(objects), *self._configuration()]
        if release.webhooks is not None:
            dependencies += self._secret_permissions(release.webhooks.secret)
            if release.webhooks.configurations:
                dependencies += self._secret_and_service(release.webhooks)
        deployment = self._deployment(image, [*dependencies, *after])
        configurations = [] if release.webhooks is None else self._webhook_configurations(release.webhooks, objects)
        ids = [deployment.id, *(configuration.id for configuration in configurations)]
        self.version = pulumi.Output.all(*ids).apply(lambda _: release.version)
        self.register_outputs({"version": self.version})

    def _metadata(self, name: str | None = None, annotations: dict[str, str] | None = None) -> ObjectMetaArgs:
        name = name or self._release.name
        return ObjectMetaArgs(name=name, namespace=self._namespace, labels=self._labels, annotations=annotations)

    def _cluster_metadata(self, name: str, annotations: dict[str, str] | None = None) -> ObjectMetaArgs:
        return ObjectMetaArgs(name=name, labels=self._labels, annotations=annotations)

    def _definitions(self, objects: OperatorObjects) -> Sequence[pulumi.Resource]:
        return [
            CustomResourceDefinition(
                f"{self._name}-{definition['spec']['names']['plural']}",
                metadata=self._cluster_metadata(
                    definition["metadata"]["name"], {**definition["metadata"]["annotations"], **WAIT_FOR_ESTABLISHED}
                ),
                spec=self._with_conversion(definition["spec"]),
                opts=self._child,
            )
            for definition in objects.definitions
        ]

    def _with_conversion(self, spec: Any) -> Any:
        """Return a definition's spec. Add a conversion webhook if `conversions` contains the definition.

        The API server never calls the conversion webhook, because each definition has one version.
        """
        webhooks = self._release.webhooks
        if webhooks is None or spec["names"]["plural"] not in webhooks.conversions:
            return spec
        service = {"name": webhooks.service, "namespace": self._namespace, "path": "/convert"}
        webhook = {"clientConfig": {"service": service}, "conversionReviewVersions": ["v1"]}
        return {**spec, "conversion": {"strategy": "Webhook", "webhook": webhook}}

    def _permissions(self, objects: OperatorObjects) -> Sequence[pulumi.Resource]:
        name = f"trainyard:{self._release.name}"
        account = ServiceAccount(f"{self._name}-account", metadata=self._metadata(), opts=self._child)
        role = ClusterRole(
            f"{self._name}-role",
            metadata=self._cluster_metadata(name),
            rules=objects.rules,
            opts=self._child,
        )
        binding = ClusterRoleBinding(
            f"{self._name}-binding",
            metadata=self._cluster_metadata(name),
            role_ref=RoleRefArgs(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name=name),
            subjects=[self._subject],
            opts=self._child,
        )
        return [account, role, binding]

    def _secret_permissions(self, secret: str) -> Sequence[pulumi.Resource]:
        """Grant access to the certificate's Secret.

        RBAC cannot restrict an unfiltered list by name, so the operator can list all Secrets of its namespace.
        """
        name = self._release.name
        rules = [
            PolicyRuleArgs(api_groups=[""], resources=["secrets"], resource_names=[secret], verbs=["get", "update"]),
            PolicyRuleArgs(api_groups=[""], resources=["secrets"], verbs=["list", "watch"]),
        ]
        role = Role(f"{self._name}-secret-role", metadata=self._metadata(), rules=rules, opts=self._child)
        binding = RoleBinding(
            f"{self._name}-secret-binding",
            metadata=self._metadata(),
            role_ref=RoleRefArgs(api_group="rbac.authorization.k8s.io", kind="Role", name=name),
            subjects=[self._subject],
            opts=self._child,
        )
        return [role, binding]

    def _configuration(self) -> Sequence[pulumi.Resource]:
        files = self._release.files
        if not files:
            return []
        data = {path.rpartition("/")[2]: content for path, content in files}
        return [ConfigMap(f"{self._name}-files", metadata=self._metadata(), data=data, opts=self._child)]

    def _secret_and_service(self, webhooks: Webhooks) -> Sequence[pulumi.Resource]:
        """Create the Secret for the operator's certificate and the Service of its webhooks."""
        secret = Secret(f"{self._name}-certificate", metadata=self._metadata(webhooks.secret), opts=self._child)
        service = Service(
            f"{self._name}-webhooks",
            metadata=self._metadata(webhooks.service, SKIP_AWAIT),
            spec=ServiceSpecArgs(
                selector=self._selector,
                ports=[ServicePortArgs(name="webhooks", port=443, target_port=WEBHOOK_PORT)],
            ),
            opts=self._child,
        )
        return [secret, service]

    def _webhook_configurations(self, webhooks: Webhooks, objects: OperatorObjects) -> Sequence[pulumi.CustomResource]:
        configurations = []
        for kind, name in webhooks.configurations:
            configurations.append(
                CONFIGURATIONS[kind](
                    f"{self._name}-{kind.partition('Webhook')[0].lower()}",
                    metadata=self._cluster_metadata(name, WAIT_FOR_CERTIFICATE),
                    webhooks=[self._with_service(webhook, webhooks.service) for webhook in objects.webhooks[name]],
                    opts=self._child,
                )
            )
        return configurations

    def _with_service(self, webhook: dict[str, Any], name: str) -> dict[str, Any]:
        """Return a webhook that calls the Service in the operator's namespace."""
        path = webhook["clientConfig"]["service"]["path"]
        service = {"name": name, "namespace": self._namespace, "path": path}
        return {**webhook, "clientConfig": {"service": service}}

    def _deployment(self, image: pulumi.Input[str], dependencies: Sequence[pulumi.Resource]) -> Deployment:
        release = self._release
        return Deployment(
            f"{self._name}-controller",
            metadata=self._metadata(),
            spec=DeploymentSpecArgs(
                replicas=1,
                # Two controllers would reconcile the same jobs.
                strategy=DeploymentStrategyArgs(type="Recreate"),
                min_ready_seconds=None if release.webhooks is None else MIN_READY_SECONDS,
                selector=LabelSelectorArgs(match_labels=self._selector),
                template=operator_pod(release, image, self._labels),
            ),
            opts=pulumi.ResourceOptions(parent=self, depends_on=dependencies),
        )


@dataclass(frozen=True, kw_only=True)
class OperatorsArgs:
    """Arguments of the operators."""

    needed: frozenset[str]
    """Names of the operators that the jobs require. The component adds the operators that these require."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Operator -> image; by default the image that the project publishes."""
    after: Sequence[pulumi.Resource] = ()
    """Resources that must exist before a pod can start."""


class Operators(pulumi.ComponentResource):
    """Operators in a separate namespace that enforces the `restricted` Pod Security Standard.

    Pulumi creates dependents of this component after every webhook answers. On destroy, Pulumi deletes the dependents
    first, then the controllers, and the CRDs last.
    """

    versions: pulumi.Output[Mapping[str, str]]
    """Operator -> version, known once all operators are ready."""

    def __init__(self, name: str, args: OperatorsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:infra:Operators", name, None, opts)
        releases = needed_releases(args.needed)
        pod_security = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
        namespace = Namespace(
            f"{name}-namespace",
            metadata=ObjectMetaArgs(name=OPERATORS_NAMESPACE, labels={**stack_labels(), **pod_security}),
            opts=pulumi.ResourceOptions(parent=self),
        )
        operators: dict[str, Operator] = {}
        for release in releases:
            predecessors = sorted((release.requires | release.follows) & operators.keys())
            operators[release.name] = Operator(
                f"{name}-{release.name}",
                release=release,
                image=args.images.get(release.name, release.image),
                namespace=namespace.metadata.name,
                after=[*args.after, *(operators[predecessor] for predecessor in predecessors)],
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.versions = pulumi.Output.all(**{name: operator.version for name, operator in operators.items()})
        self.register_outputs({"versions": self.versions})
