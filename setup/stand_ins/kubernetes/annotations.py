"""The annotations by which a program steers the provider."""

from setup.stand_ins.kubernetes.objects import Object, annotation

AUTONAMED = "pulumi.com/autonamed"
SKIP_AWAIT = "pulumi.com/skipAwait"
WAIT_FOR = "pulumi.com/waitFor"
TIMEOUT_SECONDS = "pulumi.com/timeoutSeconds"
REPLACE_UNREADY = "pulumi.com/replaceUnready"
PATCH_FORCE = "pulumi.com/patchForce"
PATCH_FIELD_MANAGER = "pulumi.com/patchFieldManager"
DELETION_PROPAGATION = "pulumi.com/deletionPropagationPolicy"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
HELM_HOOK = "helm.sh/hook"

DEFAULT_TIMEOUT = 600.0
"""Seconds."""


def is_true(manifest: Object, key: str) -> bool:
    """Whether the annotation says "true"."""
    return annotation(manifest, key) == "true"


def timeout(manifest: Object, custom_timeout: float) -> float:
    """Seconds to wait: the resource option's, else the annotation's, else ten minutes."""
    text = annotation(manifest, TIMEOUT_SECONDS)
    if custom_timeout:
        return custom_timeout
    return float(text) if text.lstrip("+-").isdigit() else DEFAULT_TIMEOUT


def deletion_propagation(manifest: Object) -> str:
    """How a deletion treats what the object owns; in the foreground unless the annotation says otherwise."""
    policy = annotation(manifest, DELETION_PROPAGATION).lower()
    return {"orphan": "Orphan", "background": "Background"}.get(policy, "Foreground")
