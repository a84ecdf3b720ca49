"""The provider's own settings: checking them, telling when another cluster is meant, and reading them."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from setup.stand_ins.kubernetes import kubeconfig
from setup.stand_ins.kubernetes.api import Api, ApiError, Unreachable
from setup.stand_ins.kubernetes.diff import same
from setup.stand_ins.kubernetes.kubeconfig import KubeconfigError
from setup.stand_ins.kubernetes.objects import Object
from setup.stand_ins.kubernetes.values import Unknown

PREFIX = "kubernetes:config:"
IDENTIFIER = "clusterIdentifier"
ENVIRONMENT = {
    "deleteUnreachable": "PULUMI_K8S_DELETE_UNREACHABLE",
    "skipUpdateUnreachable": "PULUMI_K8S_SKIP_UPDATE_UNREACHABLE",
    "enableServerSideApply": "PULUMI_K8S_ENABLE_SERVER_SIDE_APPLY",
    "enablePatchForce": "PULUMI_K8S_ENABLE_PATCH_FORCE",
    "upsertExistingObjects": "PULUMI_K8S_UPSERT_EXISTING_OBJECTS",
    "enableConfigMapMutable": "PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE",
    "enableSecretMutable": "PULUMI_K8S_ENABLE_SECRET_MUTABLE",
    "suppressHelmHookWarnings": "PULUMI_K8S_SUPPRESS_HELM_HOOK_WARNINGS",
}
UNSUPPORTED = ("renderYamlToDirectory", "alwaysRender")


@dataclass(frozen=True)
class Settings:
    """What the program asks of the provider."""

    accept_secrets: bool
    """The engine understands secrets in what it gets back."""
    namespace: str
    """Where objects lie that name no namespace."""
    server_side: bool
    patch_force: bool
    upsert: bool
    delete_unreachable: bool
    skip_update_unreachable: bool
    secrets_mutable: bool
    config_maps_mutable: bool
    suppress_helm_hook_warnings: bool
    api: Api | None
    """None where no cluster is reached."""
    unreachable: str
    """Why not."""


def check(news: Object) -> list[tuple[str, str]]:
    """What is wrong with the settings: pairs of property and reason."""
    failures = [
        (
            name,
            f'"{name}" is not supported by this stand-in of the kubernetes provider: unset it, or install the real one',
        )
        for name in UNSUPPORTED
        if news.get(name)
    ]
    if str(news.get("strictMode", "")).lower() == "true":
        for name in ("kubeconfig", "context"):
            if not news.get(name):
                failures.append((name, f'strict mode requires Provider "{name}" argument'))
    return failures


def diff(olds: Object, news: Object) -> tuple[list[str], list[str]]:
    """Which settings changed, and which of them mean another cluster, so that all in it must be made anew.

    A cluster has no identity of its own, so the program may give one: while that stays the same nothing is replaced.
    Without one, the active cluster's entry in the kubeconfig stands for it.
    """
    changed = sorted(key for key in {*olds, *news} if not same(olds.get(key), news.get(key)))
    replaces: list[str] = []
    if IDENTIFIER in olds and IDENTIFIER in news:
        if IDENTIFIER not in changed:
            return changed, []
        replaces.append(IDENTIFIER)
    for key in ("kubeconfig", "context", "cluster"):
        if isinstance(news.get(key), Unknown):
            return [key], [*replaces, key]
    old, new = _active_cluster(olds), _active_cluster(news)
    if old is not None and new is not None and old != new:
        replaces += [key for key in ("kubeconfig", "context", "cluster") if key in changed]
    return changed, replaces


def _active_cluster(settings: Object) -> Mapping[str, Any] | None:
    given = settings.get("kubeconfig")
    if not given:
        return None
    try:
        config = kubeconfig.parse(given if isinstance(given, str) else json.dumps(given))
        access = kubeconfig.active(config, context=settings.get("context") or "", cluster=settings.get("cluster") or "")
    except KubeconfigError:
        return None
    return access.cluster


def read(variables: Mapping[str, str], *, accept_secrets: bool) -> Settings:
    """Read the settings and try to reach the cluster; one that is not reached is for each operation to judge."""

    def flag(name: str, default: bool = False) -> bool:
        value = variables.get(PREFIX + name, os.environ.get(ENVIRONMENT[name]))
        return default if value is None else value == "true"

    namespace = variables.get(f"{PREFIX}namespace", "")
    api: Api | None = None
    unreachable = ""
    try:
        access = _access(variables)
        namespace = namespace or access.namespace
        api = _connect(access, variables)
    except (KubeconfigError, OSError, ValueError) as error:
        unreachable = f"failed to parse kubeconfig data in `kubernetes:config:kubeconfig`- {error}"
    except (Unreachable, ApiError) as error:
        unreachable = f"unable to load schema information from the API server: {error}"
    return Settings(
        accept_secrets=accept_secrets,
        namespace=namespace,
        server_side=flag("enableServerSideApply", default=True),
        patch_force=flag("enablePatchForce"),
        upsert=flag("upsertExistingObjects"),
        delete_unreachable=flag("deleteUnreachable"),
        skip_update_unreachable=flag("skipUpdateUnreachable"),
        secrets_mutable=flag("enableSecretMutable"),
        config_maps_mutable=flag("enableConfigMapMutable"),
        suppress_helm_hook_warnings=flag("suppressHelmHookWarnings"),
        api=api,
        unreachable=unreachable,
    )


def _access(variables: Mapping[str, str]) -> kubeconfig.Access:
    given = variables.get(f"{PREFIX}kubeconfig", "")
    config = kubeconfig.parse(given) if given else kubeconfig.ambient()
    context, cluster = variables.get(f"{PREFIX}context", ""), variables.get(f"{PREFIX}cluster", "")
    return kubeconfig.active(config, context=context, cluster=cluster)


def _connect(access: kubeconfig.Access, variables: Mapping[str, str]) -> Api:
    client = json.loads(variables.get(f"{PREFIX}kubeClientSettings") or "{}")
    seconds = client.get("timeout") or os.environ.get("PULUMI_K8S_CLIENT_TIMEOUT")
    api = Api(access, timeout=float(seconds) if seconds else None)
    api.request("GET", "/version")
    return api
