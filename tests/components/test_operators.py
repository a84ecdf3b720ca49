"""Operators component: objects of each release, their order, webhooks, and the pods of the controllers."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi_kubernetes.core.v1 import Namespace

from infra.hardware import Capacity
from infra.operator_releases import OPERATOR_REQUEST, RELEASES, save_objects
from infra.operators import Operators, OperatorsArgs
from settings.kubernetes_values import parse_cpu, parse_memory
from settings.types import OPERATORS_NAMESPACE
from tests.operator_objects import objects_of
from tests.recording import RecordingEngine, run

pytestmark = pytest.mark.usefixtures("operator_objects")


def operator_graph(*names: str, **others: Any) -> RecordingEngine:
    """Return the component's registrations for some operators."""
    args = OperatorsArgs(needed=frozenset(names), **others)
    return run(lambda: Operators("operators", args).versions)


def pod(name: str, **others: Any) -> dict[str, Any]:
    """Return the pod of an operator."""
    (deployment,) = [
        each
        for each in operator_graph(name, **others).of_type(":Deployment")
        if each.name.endswith(f"-{name}-controller")
    ]
    found: dict[str, Any] = deployment.inputs["spec"]["template"]["spec"]
    return found


def test_operators_requirements_are_installed_first() -> None:
    engine = operator_graph("trainer")
    assert {each.name for each in engine.of_type("infra:Operator")} == {"operators-jobset", "operators-trainer"}
    assert "operators-jobset-controller" in engine.dependencies("operators-trainer-controller")


def test_operator_controller_depends_on_its_objects() -> None:
    before = {"jobsets", "account", "role", "binding", "certificate", "webhooks"}
    engine = operator_graph("jobset")
    assert engine.dependencies("operators-jobset-controller") >= {f"operators-jobset-{each}" for each in before}


def test_operator_webhooks_wait_for_certificate() -> None:
    engine = operator_graph(*RELEASES)
    configurations = [each for each in engine.records if each.type.endswith("WebhookConfiguration")]
    assert {each.inputs["metadata"]["name"] for each in configurations} == {
        name for release in RELEASES.values() if release.webhooks for _, name in release.webhooks.configurations
    }
    for each in configurations:
        annotations = each.inputs["metadata"]["annotations"]
        assert annotations == {"pulumi.com/waitFor": "jsonpath={.webhooks[0].clientConfig.caBundle}"}
        assert "service" in each.inputs["webhooks"][0]["clientConfig"]
        operator = each.name.rpartition("-")[0]
        assert each.name not in engine.dependencies(f"{operator}-controller")


def test_operator_webhook_refers_to_its_service() -> None:
    engine = operator_graph("jobset")
    (service,) = engine.of_type(":Service")
    (configuration,) = engine.of_type(":ValidatingWebhookConfiguration")
    service_reference = configuration.inputs["webhooks"][0]["clientConfig"]["service"]
    assert service_reference == {
        "name": service.inputs["metadata"]["name"],
        "namespace": OPERATORS_NAMESPACE,
        "path": "/z",
    }
    (deployment,) = engine.of_type(":Deployment")
    labels = deployment.inputs["spec"]["template"]["metadata"]["labels"]
    assert service.inputs["spec"]["selector"].items() <= labels.items()
    assert deployment.inputs["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("name", RELEASES)
def test_operator_pods_satisfy_restricted_standard(name: str) -> None:
    found = pod(name)
    assert found["securityContext"]["runAsNonRoot"] is True
    assert found["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = found["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_training_operators_share_one_certificate() -> None:
    # Both operators write their certificate authority into the same webhook configuration.
    engine = operator_graph("training-operator-mxjob")
    (secret,) = engine.of_type(":Secret")
    (service,) = engine.of_type(":Service")
    (configuration,) = engine.of_type(":ValidatingWebhookConfiguration")
    assert configuration.name == "operators-training-operator-validating"
    assert service.inputs["spec"]["selector"] == {"app.kubernetes.io/name": "training-operator"}
    volumes = [each.inputs["spec"]["template"]["spec"]["volumes"] for each in engine.of_type(":Deployment")]
    mounted = [each["secret"]["secretName"] for found in volumes for each in found if "secret" in each]
    assert mounted == [secret.inputs["metadata"]["name"]] * 2
    # The first controller fills the shared Secret, so the second must start after it.
    before = engine.dependencies("operators-training-operator-mxjob-controller")
    assert "operators-training-operator-controller" in before


def test_operator_object_names_are_unique() -> None:
    engine = operator_graph(*RELEASES)
    for kind in (":ServiceAccount", ":ClusterRole", ":Role", ":Secret", ":Service", ":ConfigMap", ":Deployment"):
        names = [each.inputs["metadata"]["name"] for each in engine.of_type(kind)]
        assert len(names) == len(set(names)), kind


def test_operator_role_changes_only_the_secret_of_its_certificate() -> None:
    engine = operator_graph("jobset")
    (role,) = engine.of_type(":Role")
    (write, read) = role.inputs["rules"]
    assert (write["resourceNames"], write["verbs"]) == (["jobset-webhook-server-cert"], ["get", "update"])
    assert (read["resources"], read["verbs"]) == (["secrets"], ["list", "watch"])
    assert role.inputs["metadata"]["namespace"] == OPERATORS_NAMESPACE
    assert "operators-jobset-secret-binding" in engine.dependencies("operators-jobset-controller")


def test_operator_role_keeps_resource_names() -> None:
    rule = {"apiGroups": ["a"], "resources": ["b"], "resourceNames": ["c"], "verbs": ["get"]}
    save_objects(RELEASES["jobset"], replace(objects_of(RELEASES["jobset"]), rules=[rule]))
    (role,) = operator_graph("jobset").of_type(":ClusterRole")
    assert role.inputs["rules"] == [rule]


def test_operator_kueue_definitions_have_conversion_webhook() -> None:
    # Kueue starts only when the conversion webhook of each of its CRDs has its certificate.
    engine = operator_graph("kueue", "jobset")
    found = {each.name: each.inputs["spec"] for each in engine.of_type(":CustomResourceDefinition")}
    assert "conversion" not in found["operators-jobset-jobsets"]
    conversion = found["operators-kueue-clusterqueues"]["conversion"]
    assert conversion["strategy"] == "Webhook"
    service_reference = conversion["webhook"]["clientConfig"]["service"]
    services = {each.inputs["metadata"]["name"] for each in engine.of_type(":Service")}
    assert service_reference["name"] in services
    assert service_reference["namespace"] == OPERATORS_NAMESPACE


def test_operator_namespace_enforces_restricted_standard() -> None:
    (namespace,) = operator_graph("jobset").of_type(":Namespace")
    assert namespace.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("name", RELEASES)
def test_operator_pods_request_reserved_capacity_and_have_no_empty_list(name: str) -> None:
    def has_empty_list(value: Any) -> bool:
        if isinstance(value, dict):
            return any(has_empty_list(each) for each in value.values())
        return isinstance(value, list) and (not value or any(has_empty_list(each) for each in value))

    found = pod(name)
    assert not has_empty_list(found)
    resources = found["containers"][0]["resources"]
    cpu, memory = resources["requests"]["cpu"], resources["requests"]["memory"]
    assert Capacity(millicores=parse_cpu(cpu), memory=parse_memory(memory)) == OPERATOR_REQUEST
    assert "cpu" not in resources["limits"]


def test_operator_startup_probe_uses_last_webhook() -> None:
    (container,) = pod("training-operator")["containers"]
    assert container["startupProbe"]["httpGet"] == {
        "path": "/validate-kubeflow-org-v1-pytorchjob",
        "port": 9443,
        "scheme": "HTTPS",
    }
    (other,) = pod("mpi-operator")["containers"]
    assert other["startupProbe"]["httpGet"] == {"path": "/healthz", "port": 8080}


def test_operator_files_are_mounted() -> None:
    engine = operator_graph("training-operator")
    (files,) = engine.of_type(":ConfigMap")
    assert files.inputs["data"] == {"initContainer.yaml": "[]\n"}
    (container,) = pod("training-operator")["containers"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == "files"]
    assert mount["mountPath"] == "/etc/config/initContainer.yaml"
    assert files.inputs["metadata"]["name"] == "training-operator"


def test_operator_image_of_platform_replaces_the_published_image() -> None:
    (replaced,) = pod("jobset", images={"jobset": "example.com/jobset:1"})["containers"]
    assert replaced["image"] == "example.com/jobset:1"
    (published,) = pod("jobset")["containers"]
    assert published["image"] == RELEASES["jobset"].image


def test_operator_controller_waits_for_images() -> None:
    def program() -> pulumi.Output[Any]:
        images = Namespace("images")
        args = OperatorsArgs(needed=frozenset({"mpi-operator"}), after=[images])
        return Operators("operators", args).versions

    engine = run(program)
    assert "images" in engine.dependencies("operators-mpi-operator-controller")


def test_operator_versions_are_outputs() -> None:
    found: dict[str, Any] = {}

    def program() -> pulumi.Output[None]:
        return Operators("operators", OperatorsArgs(needed=frozenset({"trainer"}))).versions.apply(found.update)

    run(program)
    assert found == {name: RELEASES[name].version for name in ("jobset", "trainer")}


def test_operator_without_set_up_objects_names_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    version = re.escape(RELEASES["jobset"].version)
    with pytest.raises(ValueError, match=rf"operator jobset {version} is not set up; run `make up`, or"):
        operator_graph("jobset")
