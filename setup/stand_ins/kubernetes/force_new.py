"""Fields that the API server never changes in a live object: a change replaces it. As the real plugin 4.34 has them."""

from setup.stand_ins.kubernetes.objects import Object, is_core_kind, kind_of

IDENTITY = (".metadata.name", ".metadata.namespace")

_SELECTOR = [".spec.selector"]
_WORKLOAD = {"Deployment": _SELECTOR, "DaemonSet": _SELECTOR}
_STATEFUL_SET = [
    *_SELECTOR,
    ".spec.podManagementPolicy",
    ".spec.revisionHistoryLimit",
    ".spec.serviceName",
    ".spec.volumeClaimTemplates",
]
_JOB = [*_SELECTOR, ".spec.completions", ".spec.parallelism", ".spec.template"]
_CONTAINER = """args command env image imagePullPolicy lifecycle livenessProbe ports readinessProbe resources
    securityContext stdin stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts
    workingDir"""
_POD = """affinity automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks hostAliases hostIPC hostNetwork
    hostPID hostname imagePullSecrets nodeName nodeSelector overhead preemptionPolicy priority priorityClassName
    readinessGates restartPolicy runtimeClassName schedulerName securityContext serviceAccount serviceAccountName
    shareProcessNamespace subdomain terminationGracePeriodSeconds volumes"""
_VOLUME = """awsElasticBlockStore azureDisk azureFile cephfs cinder csi fc flexVolume flocker gcePersistentDisk
    glusterfs hostPath iscsi local nfs photonPersistentDisk portworxVolume quobyte rbd scaleIO storageos
    vsphereVolume"""
_ROLE_BINDING = [".roleRef"]

_BY_KIND: dict[tuple[str, str], dict[str, list[str]]] = {
    ("apps", "v1beta1"): {"StatefulSet": _STATEFUL_SET},
    ("apps", "v1beta2"): {**_WORKLOAD, "StatefulSet": _STATEFUL_SET},
    ("apps", "v1"): {**_WORKLOAD, "StatefulSet": _STATEFUL_SET},
    ("", "v1"): {
        "PersistentVolume": [f".spec.{name}" for name in _VOLUME.split()],
        "PersistentVolumeClaim": [*_SELECTOR, ".spec.accessModes", ".spec.storageClassName", ".spec.volumeName"],
        "Pod": [f".spec.{name}" for name in _POD.split()]
        + [f".spec.{list_}[*].{name}" for list_ in ("containers", "initContainers") for name in _CONTAINER.split()],
        "ResourceQuota": [".spec.scopes"],
        "Secret": [".type"],
        "Service": [".spec.clusterIP"],
    },
    ("policy", "v1beta1"): {"PodDisruptionBudget": [".spec"]},
    **{
        ("rbac.authorization.k8s.io", version): {"ClusterRoleBinding": _ROLE_BINDING, "RoleBinding": _ROLE_BINDING}
        for version in ("v1alpha1", "v1beta1", "v1")
    },
    ("storage.k8s.io", "v1"): {"StorageClass": [".parameters", ".provisioner"]},
    **{("batch", version): {"Job": _JOB} for version in ("v1beta1", "v1", "v2alpha1")},
}


def force_new_fields(manifest: Object, *, secrets_mutable: bool, config_maps_mutable: bool) -> list[str]:
    """The paths whose change replaces this object. `[*]` stands for each element of a list.

    The data of a Secret or a ConfigMap counts among them unless the provider was told to change it in place: pods
    that have read it would not learn of the change.
    """
    kind = kind_of(manifest)
    fields = list(IDENTITY)
    by_kind = _BY_KIND.get((kind.group, kind.version), {})
    immutable = manifest.get("immutable") is True
    if is_core_kind(manifest, "Secret") and by_kind and (not secrets_mutable or immutable):
        fields += [".type", ".stringData", ".data"]
    elif kind.kind in by_kind:
        fields += by_kind[kind.kind]
    elif is_core_kind(manifest, "ConfigMap") and by_kind and (not config_maps_mutable or immutable):
        fields += [".binaryData", ".data"]
    return fields
