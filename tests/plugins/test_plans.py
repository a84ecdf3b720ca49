"""Previews and state of a deployed stack: steps, the properties that cause them, generated names, and secrets."""

import re
from collections.abc import Callable

import pytest

from tests.plugins.stack import Stack

PROGRAM = """
settings = k8s.core.v1.ConfigMap("settings", metadata=meta(), data={"lr": edit("lr", "0.1")}, opts=on_cluster)
password = k8s.core.v1.Secret(
    "password", metadata=meta("password"), string_data={"token": config.require_secret("token")}, opts=on_cluster)
mixed = k8s.core.v1.ConfigMap(
    "mixed", metadata=meta("mixed"), opts=on_cluster,
    data={"token": config.require_secret("token"), "plain": "in clear"})
service = k8s.core.v1.Service("service", metadata=meta("digits"), opts=on_cluster, spec={
    "cluster_ip": "None", "selector": {"job": "digits"}, "ports": [{"name": "c10d", "port": edit("port", 29500)}]})
claim = k8s.core.v1.PersistentVolumeClaim(
    "claim", metadata=meta("bucket", annotations={"pulumi.com/skipAwait": "true"}), opts=on_cluster,
    spec={"access_modes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1.5Gi"}}})
job = k8s.batch.v1.Job(
    "job", metadata=meta("digits", annotations={"pulumi.com/skipAwait": "true"}), opts=on_cluster, spec={
        "completions": edit("hosts", 2), "parallelism": edit("hosts", 2), "completion_mode": "Indexed",
        "template": {"spec": {"restart_policy": "Never", "containers": [{
            "name": "trainer", "image": edit("image", "trainer:1"),
            "resources": {"limits": {"cpu": "1000m", "memory": "1.5Gi"}}}]}}})
pulumi.export("name", settings.metadata.name)
"""


@pytest.fixture(scope="module")
def deployed(new_stack: Callable[[str], Stack]) -> Stack:
    """Return the stack after its first `up`. The tests of this module do not change the stack."""
    stack = new_stack(PROGRAM)
    stack.run("config", "set", "--secret", "token", "open-sesame")
    stack.up()
    return stack


def test_second_preview_has_no_changes(deployed: Stack) -> None:
    assert set(deployed.preview_operations().values()) == {"same"}


def test_unnamed_object_is_named_after_its_resource(deployed: Stack) -> None:
    names = [item.metadata.name for item in deployed.core().list_namespaced_config_map(deployed.namespace).items]
    (name,) = [name for name in names if name.startswith("settings-")]
    assert len(name) == len("settings-") + 8  # Pulumi appends eight random characters.
    outputs = deployed.state()["settings"]["outputs"]
    assert outputs["metadata"]["annotations"] == {"pulumi.com/autonamed": "true"}


def test_secrets_are_encrypted_in_the_state(deployed: Stack) -> None:
    everything = "".join(
        path.read_text() for path in (deployed.folder / "backend").rglob("*.json*") if path.suffix in (".json", ".bak")
    )
    for clear in ("open-sesame", "b3Blbi1zZXNhbWU="):  # the token in plain text and in base64
        assert clear not in everything
    assert "in clear" in everything
    assert "ciphertext" in deployed.state()["password"]["outputs"]["data"]
    assert "ciphertext" in deployed.state()["mixed"]["outputs"]["data"]["token"]
    assert "open-sesame" not in deployed.run("stack", "output", "--json")


def test_state_has_the_field_manager_and_the_inputs(deployed: Stack) -> None:
    outputs = deployed.state()["service"]["outputs"]
    assert outputs["__fieldManager"].startswith("pulumi-kubernetes-")
    assert outputs["__initialApiVersion"] == "v1"
    assert outputs["__inputs"]["spec"]["ports"] == [{"name": "c10d", "port": 29500}]


def test_edit_shows_only_its_own_difference(deployed: Stack) -> None:
    steps = deployed.plan(port=29501, image="trainer:2", lr="0.2")
    changed = {name: step for name, step in steps.items() if step["op"] != "same"}
    assert set(changed) == {"service", "job", "settings"}
    assert changed["service"]["op"] == "update"
    assert list(changed["service"]["detailedDiff"]) == ["spec.ports[0].port"]
    job = changed["job"]
    assert list(job["detailedDiff"]) == ["spec.template.spec.containers[0].image"]
    assert job["detailedDiff"]["spec.template.spec.containers[0].image"]["kind"] == "update-replace"
    assert job["replaceReasons"] == ["spec.template.spec.containers[0].image"]
    assert changed["settings"]["replaceReasons"] == ["data.lr"]


def test_named_object_is_deleted_before_its_replacement_and_auto_named_object_after(deployed: Stack) -> None:
    output = deployed.run("preview", "--diff", "--show-replacement-steps", hosts=1, lr="0.3")
    steps = re.findall(r"^ *(\S+?) ?kubernetes:\S+:(ConfigMap|Job): \((\S+)\)$", output, re.MULTILINE)
    order = {kind: [operation for _, other, operation in steps if other == kind] for kind in ("ConfigMap", "Job")}
    assert order["Job"][0] == "delete-replaced"
    assert order["ConfigMap"][-1] == "delete-replaced"
