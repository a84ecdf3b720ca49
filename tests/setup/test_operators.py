"""Objects that set-up generates from an operator's release, and the image of the operator's program."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.local import image_store
from infra.operator_releases import (
    JOBSET_RELEASE,
    RELEASES,
    Release,
    Webhooks,
    load_objects,
    objects_file,
    save_objects,
)
from setup import operators

RELEASE = Release(
    name="made-up",
    module="example.com/made-up",
    version="v1.0.0",
    image="example.com/made-up:1",
    definitions=("crd.yaml",),
    role="role.yaml",
    unneeded=frozenset({"others"}),
    webhooks=Webhooks(
        manifest="webhooks.yaml",
        configurations=(("ValidatingWebhookConfiguration", "validator"),),
        service="webhook",
        secret="certificate",
        last_path="/last",
        others=frozenset({"pods"}),
        label="made-up.example.com/job",
    ),
)
SCHEMA = {
    "description": "prose",
    "type": "object",
    "properties": {
        "description": {"type": "string", "description": "prose"},
        "list": {"type": "array", "items": {"description": "prose", "type": "string"}},
    },
}
DEFINITION = {
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "jobs.example.com", "creationTimestamp": None, "annotations": {"made-by": "generator"}},
    "spec": {
        "conversion": {"strategy": "Webhook"},
        "names": {"plural": "jobs"},
        "versions": [
            {"name": "v1beta1", "storage": False, "schema": {"openAPIV3Schema": SCHEMA}},
            {"name": "v1", "storage": True, "schema": {"openAPIV3Schema": SCHEMA}},
        ],
    },
    "status": {"conditions": []},
}
ROLE = {
    "kind": "ClusterRole",
    "rules": [
        {"apiGroups": ["example.com"], "resources": ["jobs", "others"], "verbs": ["get"]},
        {"apiGroups": ["example.com"], "resources": ["others"], "verbs": ["delete"]},
    ],
}


def webhook(resource: str) -> dict[str, Any]:
    """Return a webhook for one resource."""
    return {"name": f"{resource}.example.com", "rules": [{"resources": [resource]}], "clientConfig": {}}


def files(*resources: str) -> dict[str, bytes]:
    """Return the files of a release with webhooks for these resources."""
    configuration = {"kind": "ValidatingWebhookConfiguration", "webhooks": [webhook(each) for each in resources]}
    documents = {"crd.yaml": DEFINITION, "role.yaml": ROLE, "webhooks.yaml": configuration}
    return {name: f"---\n{yaml.safe_dump(document)}".encode() for name, document in documents.items()}


def test_crds_keep_only_the_stored_version_without_descriptions_and_conversion() -> None:
    (definition,) = operators.objects_of(RELEASE, files()).definitions
    assert definition["metadata"] == {"name": "jobs.example.com", "annotations": {"made-by": "generator"}}
    assert set(definition) == {"metadata", "spec"}
    assert "conversion" not in definition["spec"]
    (version,) = definition["spec"]["versions"]
    assert version["name"] == "v1"
    assert version["schema"]["openAPIV3Schema"] == {
        "type": "object",
        "properties": {"description": {"type": "string"}, "list": {"type": "array", "items": {"type": "string"}}},
    }


def test_rules_omit_resources_that_are_not_installed() -> None:
    objects = operators.objects_of(RELEASE, files())
    assert objects.rules == [{"apiGroups": ["example.com"], "resources": ["jobs"], "verbs": ["get"]}]


def test_rules_name_the_webhook_configurations_that_are_installed() -> None:
    # The role in a release names the configuration without the prefix that installers add.
    rule = {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["validatingwebhookconfigurations"],
        "resourceNames": ["validating-webhook-configuration"],
        "verbs": ["update"],
    }
    without_names = {key: value for key, value in rule.items() if key != "resourceNames"}
    jobs = {"apiGroups": ["example.com"], "resources": ["jobs"], "verbs": ["get"]}
    role = {"kind": "ClusterRole", "rules": [rule, without_names, jobs]}
    objects = operators.objects_of(RELEASE, {**files(), "role.yaml": yaml.safe_dump(role).encode()})
    assert objects.rules == [{**rule, "resourceNames": ["validator"]}, without_names, jobs]


def test_rules_come_from_the_cluster_role_that_covers_the_crds() -> None:
    urls = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    other = {"kind": "ClusterRole", "rules": [urls, {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}
    both = yaml.safe_dump_all([other, ROLE]).encode()
    objects = operators.objects_of(RELEASE, {**files(), "role.yaml": both})
    assert objects.rules == [{"apiGroups": ["example.com"], "resources": ["jobs"], "verbs": ["get"]}]
    with pytest.raises(ValueError, match=r"role.yaml of made-up has no ClusterRole with rules for jobs"):
        operators.objects_of(RELEASE, {**files(), "role.yaml": yaml.safe_dump(other).encode()})


def test_release_without_webhooks_has_no_webhook_objects() -> None:
    assert RELEASE.webhooks is not None
    release = replace(RELEASE, webhooks=replace(RELEASE.webhooks, configurations=()))
    assert operators.objects_of(release, {name: files()[name] for name in ("crd.yaml", "role.yaml")}).webhooks == {}


def test_webhooks_are_limited_to_installed_kinds_and_labelled_pods() -> None:
    (jobs, pods) = operators.objects_of(RELEASE, files("jobs", "others", "pods")).webhooks["validator"]
    assert jobs == webhook("jobs")
    assert pods["objectSelector"] == {"matchExpressions": [{"key": "made-up.example.com/job", "operator": "Exists"}]}


def test_load_objects_returns_the_saved_objects_of_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(ValueError, match=r"operator made-up v1.0.0 is not set up; run `make up`, or"):
        load_objects(RELEASE)
    objects = operators.objects_of(RELEASE, files("jobs"))
    save_objects(RELEASE, objects)
    assert load_objects(RELEASE) == objects
    assert len({objects_file(each) for each in [RELEASE, *RELEASES.values()]}) == 1 + len(RELEASES)


def test_program_image_has_only_the_program(tmp_path: Path) -> None:
    program = tmp_path / "jobset"
    program.write_bytes(b"program")
    archive_file = io.BytesIO()
    image_store.write_archive("trainyard.local/operator-jobset:1", program, archive_file)
    archive_file.seek(0)
    with tarfile.open(fileobj=archive_file) as archive:
        content = {name: file.read() for name in archive.getnames() if (file := archive.extractfile(name))}

    def blob(descriptor: dict[str, Any]) -> bytes:
        found = content[f"blobs/{descriptor['digest'].replace(':', '/')}"]
        assert len(found) == descriptor["size"]
        assert f"sha256:{hashlib.sha256(found).hexdigest()}" == descriptor["digest"]
        return found

    (image,) = json.loads(content["index.json"])["manifests"]
    assert image["annotations"] == {"io.containerd.image.name": "trainyard.local/operator-jobset:1"}
    manifest = json.loads(blob(image))
    config = json.loads(blob(manifest["config"]))
    (layer,) = manifest["layers"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    assert config["config"] == {"User": "65532:65532", "Entrypoint": ["/jobset"]}
    with tarfile.open(fileobj=io.BytesIO(blob(layer))) as root:
        (entry,) = root.getmembers()
        assert (entry.name, entry.mode) == ("jobset", 0o755)


def test_program_image_name_depends_on_the_programs_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobset").mkdir()
    (tmp_path / "jobset" / "go.mod").write_text("module a\n", encoding="ascii")
    monkeypatch.setattr(image_store, "MODULES", tmp_path)
    first = image_store.program_reference("jobset")
    assert image_store.is_program(first)
    (tmp_path / "jobset" / "go.mod").write_text("module b\n", encoding="ascii")
    assert image_store.program_reference("jobset") != first


def test_missing_program_image_error_names_the_set_up_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(RuntimeError, match="is not set up; run `make up`, or"):
        image_store.stored_writer(image_store.program_reference(JOBSET_RELEASE.name))


def test_set_up_has_only_the_steps_that_a_stack_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert operators.steps([], cluster=True) == []
    (objects_step,) = operators.steps(["trainer"], cluster=False)
    assert objects_step.name == "objects of jobset, trainer"
    assert not objects_step.is_done()
    _, *other_steps = operators.steps(["mpi-operator"], cluster=True)
    assert [step.name for step in other_steps] == ["programs of mpi-operator from Go modules", "images of mpi-operator"]
    assert not any(step.is_done() for step in other_steps)
