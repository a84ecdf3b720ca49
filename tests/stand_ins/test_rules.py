"""The provider's pure rules: spelling of quantities, differences, paths, kubeconfigs, field managers, manifests."""

import json
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime.proto import provider_pb2

from setup.stand_ins.kubernetes import configuration, field_managers, kubeconfig, naming, normalize, state
from setup.stand_ins.kubernetes.awaiting.conditions import WaitForError, rule_for
from setup.stand_ins.kubernetes.awaiting.rules import awaits_deletion
from setup.stand_ins.kubernetes.decode_yaml import decode
from setup.stand_ins.kubernetes.diff import detailed_diff, is_ignored, merge_patch, parse_property_path, render
from setup.stand_ins.kubernetes.discovery import Discovery
from setup.stand_ins.kubernetes.force_new import force_new_fields
from setup.stand_ins.kubernetes.kubeconfig import KubeconfigError
from setup.stand_ins.kubernetes.objects import prune
from setup.stand_ins.kubernetes.operation import Operation
from setup.stand_ins.kubernetes.quantities import canonical
from setup.stand_ins.kubernetes.values import UNKNOWN, Secret, from_wire, to_wire

Kind = provider_pb2.PropertyDiff
NO_OPERATION: Any = None


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("1000m", "1"), ("0.5", "500m"), ("1.5Gi", "1536Mi"), ("2048Mi", "2Gi"), ("2000", "2k"), ("0", "0"),
        ("1e3", "1e3"), ("100Ki", "100Ki"), ("0.5Ki", "512"), ("1500m", "1500m"), ("20Gi", "20Gi"), ("what", "what"),
    ],
)  # fmt: skip
def test_a_quantity_has_the_spelling_in_which_the_server_stores_it(written: str, stored: str) -> None:
    assert canonical(written) == stored


def changes(old: Any, new: Any, *force_new: str) -> dict[str, int]:
    """The detailed difference of two objects as path and kind."""
    found = detailed_diff(merge_patch(old, new), old, new, old, force_new)
    return {path: change.kind for path, change in found.items()}


def test_a_difference_names_the_property_and_the_kind_of_change() -> None:
    old = {"a": {"b": 1, "gone": 2}, "list": [{"x": 1, "y": 2}, {"x": 3}], "same": True}
    new = {"a": {"b": 2, "new.key": 1}, "list": [{"x": 1}], "same": True, "later": UNKNOWN}
    assert changes(old, new) == {
        "a.b": Kind.UPDATE,
        "a.gone": Kind.DELETE,
        'a["new.key"]': Kind.ADD,
        "list[0].y": Kind.DELETE,
        "list[1]": Kind.DELETE,
        "later": Kind.ADD,
    }
    assert changes(old, old) == {}


def test_a_field_that_cannot_change_replaces_by_itself_in_its_parent_and_in_a_list() -> None:
    old = {"spec": {"containers": [{"image": "a", "name": "n"}], "template": {"x": 1}}}
    new = {"spec": {"containers": [{"image": "b", "name": "m"}], "template": {"x": 2}}}
    assert changes(old, new, ".spec.template", ".spec.containers[*].image") == {
        "spec.containers[0].image": Kind.UPDATE_REPLACE,
        "spec.containers[0].name": Kind.UPDATE,
        "spec.template.x": Kind.UPDATE_REPLACE,
    }
    assert changes({}, {"spec": {"template": 1}}, ".spec.template") == {"spec": Kind.ADD_REPLACE}


def test_data_replaces_unless_the_provider_may_change_it_in_place() -> None:
    settings = {"apiVersion": "v1", "kind": "ConfigMap"}
    assert ".data" in force_new_fields(settings, secrets_mutable=False, config_maps_mutable=False)
    assert ".data" not in force_new_fields(settings, secrets_mutable=False, config_maps_mutable=True)
    assert ".data" in force_new_fields(settings | {"immutable": True}, secrets_mutable=True, config_maps_mutable=True)


def test_property_paths_are_read_and_written() -> None:
    path = ("metadata", "annotations", "a.b/c", 0)
    assert render(path) == 'metadata.annotations["a.b/c"][0]'
    assert parse_property_path(render(path)) == path
    assert is_ignored("spec.ports[0].port", ["spec.ports[*].port"])
    assert not is_ignored("spec.ports", ["spec.ports[0]"])


def test_live_state_is_cut_to_the_shape_of_the_inputs() -> None:
    live = {"spec": {"a": 1, "b": 2, "list": [{"x": 1, "y": 2}, {"x": 3}]}, "status": {}}
    assert prune(live, {"spec": {"a": 0, "list": [{"x": 0}]}}) == {"spec": {"a": 1, "list": [{"x": 1}]}}


def test_values_cross_the_wire_with_their_secrets_and_unknowns() -> None:
    properties = {"a": Secret({"b": [1, 1.5, None, True]}), "c": UNKNOWN, "d": {"e": "text"}}
    assert from_wire(to_wire(properties, keep_secrets=True)) == properties
    assert from_wire(to_wire(properties, keep_secrets=False))["a"] == {"b": [1, 1.5, None, True]}


def test_what_was_secret_in_the_inputs_is_secret_in_the_outputs() -> None:
    outputs = {"kind": "Job", "spec": {"env": [{"v": "s"}], "x": 1, "deep": {"k": "s", "o": "p"}}}
    state.mark_secrets(outputs, {"spec": {"env": [{"v": Secret("s")}], "deep": {"k": Secret("s"), "o": "p"}}})
    assert outputs["spec"] == {"env": Secret([{"v": "s"}]), "x": 1, "deep": {"k": Secret("s"), "o": "p"}}


def test_secret_data_is_compared_as_the_server_keeps_it() -> None:
    inputs = {"apiVersion": "v1", "kind": "Secret", "stringData": {"a": "b"}, "data": {"c": "ZA\n=="}}
    assert normalize.normalize(inputs)["data"] == {"a": "Yg==", "c": "ZA=="}


def ready(expression: str, live: Any) -> bool:
    """Whether a waitFor annotation is satisfied."""
    return rule_for(expression)(NO_OPERATION, live).ready


def test_wait_for_reads_conditions_and_paths() -> None:
    live = {
        "metadata": {"generation": 2},
        "status": {"phase": "Running", "list": [{"a": 1}, {"a": 2}], "conditions": [
            {"type": "Ready", "status": "False"}, {"type": "Old", "status": "True", "observedGeneration": 1}]},
    }  # fmt: skip
    assert ready("jsonpath={.status.phase}=Running", live)
    assert ready("jsonpath={.status.list[1].a}=2", live)
    assert ready("jsonpath={.status['phase']}", live)
    assert not ready("jsonpath={.status.missing}", live)
    assert ready("condition=ready=false", live)
    assert not ready("condition=Ready", live)
    assert not ready("condition=Old", live)
    assert not ready(json.dumps(["jsonpath={.status.phase}", "condition=Ready"]), live)
    for wrong in ("phase=Running", "jsonpath={.a[?(@.b==1)]}", "jsonpath=.status.phase", "[]"):
        with pytest.raises(WaitForError):
            rule_for(wrong)


def test_the_deletion_of_what_is_not_awaited_is_awaited_but_for_the_kinds_that_the_real_plugin_excepts() -> None:
    unawaited = {"metadata": {"annotations": {"pulumi.com/skipAwait": "true"}}}
    job = {"apiVersion": "batch/v1", "kind": "Job"}
    assert awaits_deletion(job)
    assert not awaits_deletion(job | unawaited)
    assert awaits_deletion({"apiVersion": "v1", "kind": "Service"} | unawaited)
    assert awaits_deletion({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"} | unawaited)


def config_of(server: str, context: str = "one") -> dict[str, Any]:
    """A kubeconfig with two contexts."""
    return {
        "current-context": context,
        "clusters": [{"name": "c", "cluster": {"server": server, "certificate-authority": "ca.crt"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "ns"}},
            {"name": "two", "context": {"cluster": "missing", "user": "u"}},
        ],
    }


def test_a_kubeconfig_is_text_or_a_path_and_its_files_lie_beside_it(tmp_path: Path) -> None:
    text = json.dumps(config_of("https://a"))
    path = tmp_path / "config"
    path.write_text(text)
    access = kubeconfig.active(kubeconfig.parse(str(path)))
    assert (access.cluster["server"], access.namespace) == ("https://a", "ns")
    assert access.cluster["certificate-authority"] == str(tmp_path / "ca.crt")
    assert "token" not in repr(access)
    assert kubeconfig.active(kubeconfig.parse(text)).user == {"token": "t"}
    for wrong, said in (("/no/such/file", "neither a file nor"), ("{", "neither a file nor YAML")):
        with pytest.raises(KubeconfigError, match=said):
            kubeconfig.parse(wrong)
    for context, said in (("three", "'three' does not exist; it has: one, two"), ("two", "has no server")):
        with pytest.raises(KubeconfigError, match=said):
            kubeconfig.active(kubeconfig.parse(text), context=context)


def test_another_server_replaces_all_unless_the_cluster_says_who_it_is() -> None:
    one, other = json.dumps(config_of("https://a")), json.dumps(config_of("https://b"))
    assert configuration.diff({"kubeconfig": one}, {"kubeconfig": other}) == (["kubeconfig"], ["kubeconfig"])
    assert configuration.diff({"kubeconfig": one}, {"kubeconfig": one + " "}) == (["kubeconfig"], [])
    assert configuration.diff({"kubeconfig": one}, {"kubeconfig": UNKNOWN}) == (["kubeconfig"], ["kubeconfig"])
    same = {"clusterIdentifier": "x"}
    assert configuration.diff({"kubeconfig": one, **same}, {"kubeconfig": other, **same}) == (["kubeconfig"], [])
    assert configuration.diff({"kubeconfig": one, **same}, {"kubeconfig": UNKNOWN, **same}) == (["kubeconfig"], [])
    assert configuration.diff(same, {"clusterIdentifier": "y"})[1] == ["clusterIdentifier"]
    assert configuration.diff(same, same) == ([], [])
    assert configuration.check({"renderYamlToDirectory": "out"})[0][0] == "renderYamlToDirectory"


def test_fields_of_client_side_writes_go_over_to_the_applier_and_others_stay() -> None:
    def entry(manager: str, operation: str, **fields: Any) -> dict[str, Any]:
        return {"manager": manager, "operation": operation, "fieldsV1": fields}

    live = {"metadata": {"resourceVersion": "7", "managedFields": [
        entry("pulumi-kubernetes", "Update", spec={"a": {}}), entry("other", "Apply", x={}),
        entry("kubectl-edit", "Update", spec={"b": {}}), entry("kube-scheduler", "Update", y={})]}}  # fmt: skip
    replaced, version = field_managers.takeover(live, "pulumi-kubernetes-1")
    kept = [(each["manager"], each["operation"]) for each in replaced["value"]]
    assert kept == [("other", "Apply"), ("kube-scheduler", "Update"), ("pulumi-kubernetes-1", "Apply")]
    assert replaced["value"][-1]["fieldsV1"] == {"spec": {"a": {}, "b": {}}}
    assert version["value"] == "7"
    live["metadata"]["managedFields"] = replaced["value"]
    assert field_managers.takeover(live, "pulumi-kubernetes-1") == []


def test_names_come_from_the_resource_and_the_seed() -> None:
    manifest: dict[str, Any] = {"metadata": {}}
    naming.assign(manifest, "urn:pulumi:s::p::kubernetes:core/v1:ConfigMap::settings", b"seed", None)
    assert manifest["metadata"]["name"] == naming.unique_name("settings-", b"seed")
    kept: dict[str, Any] = {"metadata": {}}
    naming.adopt(kept, manifest)
    assert kept == manifest
    unknown: dict[str, Any] = {"metadata": {"name": UNKNOWN}}
    naming.assign(unknown, "urn:pulumi:s::p::t::settings", b"seed", None)
    assert unknown == {"metadata": {"name": UNKNOWN}}


def test_yaml_gives_every_manifest_and_refuses_what_is_none() -> None:
    text = "kind: Pod\napiVersion: v1\n---\n---\nkind: Namespace\napiVersion: v1\nwhen: 2026-01-01\n"
    pod, namespace = decode(text, "ns", Discovery(None))
    assert pod["metadata"] == {"namespace": "ns"}
    assert namespace == {"kind": "Namespace", "apiVersion": "v1", "when": "2026-01-01"}
    with pytest.raises(ValueError, match="expected a Kubernetes manifest, found str"):
        decode("just text", "", Discovery(None))


def test_an_operation_says_a_status_once() -> None:
    class Recorder:
        said: list[str] = []  # noqa: RUF012  (one instance in one test)

        def status(self, _urn: str, message: str, *, warning: bool) -> None:
            self.said.append(f"{message}{warning}")

    recorder: Any = Recorder()
    operation = Operation(NO_OPERATION, recorder, "urn", "manager", NO_OPERATION)
    for _ in range(2):
        operation.say("waiting")
    operation.clear_status()
    assert Recorder.said == ["waitingFalse", "False"]
