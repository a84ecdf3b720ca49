"""Which kinds the server has and where each lives, asked a group at a time and asked again when a kind is missing."""

import threading
from dataclasses import dataclass

from setup.stand_ins.kubernetes.api import Api, ApiError
from setup.stand_ins.kubernetes.objects import GroupVersionKind, Object, pluck

NAMESPACED = frozenset(
    [
        "Binding",
        "ConfigMap",
        "ControllerRevision",
        "CronJob",
        "CSIStorageCapacity",
        "DaemonSet",
        "Deployment",
        "Endpoints",
        "EndpointSlice",
        "Event",
        "HorizontalPodAutoscaler",
        "Ingress",
        "Job",
        "Lease",
        "LimitRange",
        "NetworkPolicy",
        "PersistentVolumeClaim",
        "Pod",
        "PodDisruptionBudget",
        "PodTemplate",
        "ReplicaSet",
        "ReplicationController",
        "ResourceQuota",
        "Role",
        "RoleBinding",
        "Secret",
        "Service",
        "ServiceAccount",
        "StatefulSet",
    ]
)
CLUSTER_WIDE = frozenset(
    [
        "APIService",
        "CertificateSigningRequest",
        "ClusterRole",
        "ClusterRoleBinding",
        "CSIDriver",
        "CSINode",
        "CustomResourceDefinition",
        "FlowSchema",
        "IngressClass",
        "MutatingWebhookConfiguration",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PriorityClass",
        "PriorityLevelConfiguration",
        "RuntimeClass",
        "StorageClass",
        "ValidatingWebhookConfiguration",
        "VolumeAttachment",
    ]
)
BUILT_IN_GROUPS = frozenset(
    ["", "apps", "autoscaling", "batch", "extensions", "policy"]
    + [
        f"{name}.k8s.io"
        for name in [
            "admissionregistration",
            "apiextensions",
            "apiregistration",
            "certificates",
            "coordination",
            "discovery",
            "events",
            "flowcontrol.apiserver",
            "networking",
            "node",
            "rbac.authorization",
            "resource",
            "scheduling",
            "storage",
            "storagemigration",
        ]
    ]
)


class NoSuchKind(Exception):
    """The server serves no such kind; `str()` is worded as kubectl words it."""

    def __init__(self, kind: GroupVersionKind) -> None:
        super().__init__(f'no matches for kind "{kind.kind}" in version "{kind.api_version}"')


@dataclass(frozen=True)
class Resource:
    """Where the objects of one kind live."""

    kind: GroupVersionKind
    plural: str
    namespaced: bool

    def path(self, namespace: str, name: str = "") -> str:
        """The URL path of one object, or of them all; objects that name no namespace lie in `default`."""
        root = f"/apis/{self.kind.api_version}" if self.kind.group else f"/api/{self.kind.version}"
        scope = f"/namespaces/{namespace or 'default'}" if self.namespaced else ""
        return f"{root}{scope}/{self.plural}" + (f"/{name}" if name else "")


def is_built_in(kind: GroupVersionKind) -> bool:
    """Whether the kind belongs to Kubernetes itself, not to a custom resource definition."""
    return kind.group in BUILT_IN_GROUPS


class Discovery:
    """A cache of the server's kinds, and of the definitions that the program is about to create."""

    def __init__(self, api: Api | None) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._groups: dict[str, dict[str, Resource]] = {}
        self._planned_scopes: dict[tuple[str, str], bool] = {}

    def find(self, kind: GroupVersionKind) -> Resource:
        """Where the objects of a kind live. Raises NoSuchKind when the server, asked again, does not have it."""
        for fresh in (False, True):
            if resource := self._group(kind, fresh=fresh).get(kind.kind):
                return resource
        raise NoSuchKind(kind)

    def has(self, kind: GroupVersionKind) -> bool:
        """Whether the server serves the kind now."""
        if self._api is None:
            return False
        try:
            self.find(kind)
        except NoSuchKind:
            return False
        return True

    def plan(self, crd: Object) -> None:
        """Remember the scope that a definition of the program gives its kind, before the server knows it."""
        key = (str(pluck(crd, "spec", "group")), str(pluck(crd, "spec", "names", "kind")))
        self._planned_scopes[key] = pluck(crd, "spec", "scope") == "Namespaced"

    def is_namespaced(self, kind: GroupVersionKind) -> bool:
        """Whether a kind's objects lie in namespaces; one that nobody knows yet is taken to do so."""
        if is_built_in(kind):
            name = kind.kind.removesuffix("Patch")
            if name in NAMESPACED or name in CLUSTER_WIDE:
                return name in NAMESPACED
        if (kind.group, kind.kind) in self._planned_scopes:
            return self._planned_scopes[kind.group, kind.kind]
        resource = self._group(kind, fresh=False).get(kind.kind) if self._api else None
        return resource is None or resource.namespaced

    def _group(self, kind: GroupVersionKind, *, fresh: bool) -> dict[str, Resource]:
        assert self._api is not None
        key = kind.api_version
        with self._lock:
            if fresh or key not in self._groups:
                path = f"/apis/{key}" if kind.group else f"/api/{kind.version}"
                try:
                    listed = self._api.request("GET", path)["resources"]
                except ApiError as error:
                    if error.code != 404:
                        raise
                    listed = []
                self._groups[key] = {
                    entry["kind"]: Resource(
                        GroupVersionKind(kind.group, kind.version, entry["kind"]), entry["name"], entry["namespaced"]
                    )
                    for entry in listed
                    if "/" not in entry["name"]
                }
            return self._groups[key]
