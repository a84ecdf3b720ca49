"""`make up` on an existing cluster stops before any change if the cluster has one of the stack's objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from commands import existing_objects, up
from commands.existing_objects import existing, identities, in_state
from commands.review.recorded import ensure_operator_objects, record_file
from commands.stack import PulumiFailed
from infra.existing import Existing, KubeconfigConfig
from stack import config as stack_config
from tests.plugins.api_server import ApiServer
from tests.plugins.stack import Stack

NAMESPACE = "existing-objects"
CRD = ("apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "jobsets.jobset.x-k8s.io")


@pytest.fixture
def cloud(api_server: ApiServer) -> Existing:
    """Return the test's API server as an existing cluster."""
    return Existing(KubeconfigConfig.model_validate(settings(api_server.kubeconfig)["trainyard:platform"]))


@pytest.fixture
def settings_file(api_server: ApiServer, tmp_path: Path) -> Path:
    """Return the settings file of stack `mine`, which uses the existing cluster."""
    file = tmp_path / "Pulumi.mine.yaml"
    file.write_text(yaml.safe_dump({"config": settings(api_server.kubeconfig)}), encoding="utf-8")
    return file


@pytest.fixture(scope="module", autouse=True)
def _operator_objects() -> None:
    """Provide the objects of the operator that the job needs."""
    ensure_operator_objects(["jobset"])


def settings(kubeconfig: Path) -> dict[str, Any]:
    """Return a stack's settings with one job that needs an operator."""
    platform = {
        "kind": "kubeconfig",
        "kubeconfig": str(kubeconfig),
        "context": "test",
        "namespace": NAMESPACE,
        "image": "example.com/trainer:1",
    }
    job = {"name": "digits", "recipe": "digits", "kind": "jobset", "hosts": 2}
    return {"trainyard:platform": platform, "trainyard:jobs": [job]}


def test_existing_returns_only_objects_in_the_cluster(cloud: Existing, api_server: ApiServer, tmp_path: Path) -> None:
    core = Stack(tmp_path, api_server.kubeconfig, NAMESPACE).core()
    wanted = [
        ("v1", "Namespace", "", NAMESPACE),
        ("v1", "ServiceAccount", NAMESPACE, "trainer"),
        ("v1", "ConfigMap", NAMESPACE, "missing"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet", NAMESPACE, "digits"),
        CRD,
    ]
    assert existing(wanted, cloud) == []
    core.create_namespace({"metadata": {"name": NAMESPACE}})
    try:
        core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": "trainer"}})
        assert existing(wanted, cloud) == wanted[:2]
    finally:
        core.delete_namespace(NAMESPACE)


def test_unreachable_cluster_is_an_error_with_its_context(cloud: Existing, tmp_path: Path) -> None:
    content = yaml.safe_load(Path(str(cloud.kubeconfig)).read_text(encoding="utf-8"))
    content["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    with pytest.raises(PulumiFailed, match=r"context = test: .* cannot be read: .*Connection refused"):
        existing([CRD], Existing(cloud.config.model_copy(update={"kubeconfig": str(file)})))


def test_unreadable_object_is_an_error_with_the_missing_permission(
    cloud: Existing, api_server: ApiServer, tmp_path: Path
) -> None:
    core = Stack(tmp_path, api_server.kubeconfig, NAMESPACE).core()
    core.create_namespaced_service_account("default", {"metadata": {"name": "reader"}})
    request: dict[str, Any] = {"spec": {"audiences": []}}
    status = core.create_namespaced_service_account_token("reader", "default", request).status
    content = yaml.safe_load(Path(str(cloud.kubeconfig)).read_text(encoding="utf-8"))
    content["users"][0]["user"] = {"token": status.token}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    permission = "`get` customresourcedefinitions.apiextensions.k8s.io in the whole cluster"
    with pytest.raises(PulumiFailed, match=f"the permission to {permission} is missing"):
        existing([CRD], Existing(cloud.config.model_copy(update={"kubeconfig": str(file)})))


def test_objects_of_the_program_and_of_the_state_have_the_same_identity(settings_file: Path) -> None:
    records = record_file(settings_file.read_text(encoding="utf-8"), stack_config.load_file(settings_file))
    found = identities(records)
    assert {("v1", "Namespace", "", NAMESPACE), CRD} <= found
    resources = [{"type": each.type, "inputs": each.inputs} for each in records]
    assert in_state({"resources": resources}) == found
    assert in_state({}) == set()


def test_up_with_an_existing_object_names_it_and_creates_nothing(
    api_server: ApiServer, settings_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    monkeypatch.setattr(existing_objects, "PROJECT", settings_file.parent)
    monkeypatch.setattr(up, "pulumi", lambda *words, **_named: called.append(words[0]))
    monkeypatch.setattr(up, "read_deployment", lambda _stack: {})
    for name in ("recover", "ensure_stack", "adopt_pending"):
        monkeypatch.setattr(up, name, lambda _stack: None)
    core = Stack(settings_file.parent, api_server.kubeconfig, NAMESPACE).core()
    core.create_namespace({"metadata": {"name": "trainyard-operators"}})
    try:
        with pytest.raises(PulumiFailed) as raised:
            up.bring_up("mine", stack_config.load_file(settings_file))
    finally:
        core.delete_namespace("trainyard-operators")
    message = "Namespace trainyard-operators already exists in the cluster and does not belong to stack mine"
    assert message in str(raised.value)
    assert "`operators: present` uses the existing operators; or delete it first" in str(raised.value)
    assert called == []
