"""Set-up steps of operators: their objects from Go modules, their programs and their images."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import IO, Any

from infra.local.image_store import is_stored, program_reference, store_program
from infra.operator_releases import OperatorObjects, Release, needed_releases, objects_file, save_objects
from setup.go_programs import MODULES, GoProgram, build_all
from setup.progress import Step

PROGRAM_MINUTES = 2
"""Minutes to build one operator on two idle cores."""
TOOL_PACKAGE = "tool"
"""Package pattern for the `tool` line of a go.mod."""

DEFAULT_PROXY = "https://proxy.golang.org"
ANSWER_SECONDS = 60

Document = dict[str, Any]


def program_of(name: str) -> GoProgram:
    """Return the Go program of the operator called `name`."""
    return GoProgram(module=name, package=TOOL_PACKAGE, binary=name)


def steps(names: Iterable[str], *, cluster: bool) -> list[Step]:
    """Return the steps for the operators `names` and their required operators. `cluster` adds programs and images."""
    releases = needed_releases(names)
    if not releases:
        return []
    listed = ", ".join(release.name for release in releases)
    found = [
        Step(
            name=f"objects of {listed}",
            is_done=lambda: all(objects_file(release).is_file() for release in releases),
            do=lambda _progress: _write_objects(releases),
        )
    ]
    if cluster:
        programs = [program_of(release.name) for release in releases]
        found += [
            Step(
                name=f"programs of {listed} from Go modules",
                is_done=lambda: all(program.is_built() for program in programs),
                do=lambda _progress: build_all(programs),
                first_minutes=PROGRAM_MINUTES * len(programs),
            ),
            Step(
                name=f"images of {listed}",
                is_done=lambda: all(is_stored(release.name) for release in releases),
                do=lambda progress: _store_images(programs, progress),
            ),
        ]
    return found


def objects_of(release: Release, files: Mapping[str, bytes]) -> OperatorObjects:
    """Return the objects to install, from a module's files. Omit kinds that Trainyard does not install.

    Raises ValueError if the role's file has no ClusterRole with rules for all definitions.
    """
    definitions = [_definition(document) for name in release.definitions for document in _documents(files[name])]
    plurals = {definition["spec"]["names"]["plural"] for definition in definitions}
    roles = [each for each in _documents(files[release.role]) if each["kind"] == "ClusterRole"]
    role = next((each for each in roles if plurals <= _resources(each)), None)
    if role is None:
        resources = ", ".join(sorted(plurals))
        raise ValueError(f"{release.role} of {release.name} has no ClusterRole with rules for {resources}")
    webhooks = {}
    if release.webhooks is not None and release.webhooks.configurations:
        found = {each["kind"]: each["webhooks"] for each in _documents(files[release.webhooks.manifest])}
        for kind, name in release.webhooks.configurations:
            known = plurals | release.webhooks.others
            webhooks[name] = [
                each if _resources(each) <= plurals else _limited_to_label(each, release.webhooks.label)
                for each in found[kind]
                if _resources(each) <= known
            ]
    return OperatorObjects(definitions=definitions, rules=_rules(role["rules"], release), webhooks=webhooks)


def _write_objects(releases: Iterable[Release]) -> None:
    for release in releases:
        names = {*release.definitions, release.role}
        if release.webhooks is not None and release.webhooks.configurations:
            names.add(release.webhooks.manifest)
        go_sum = MODULES / release.name / "go.sum"
        save_objects(release, objects_of(release, read_files(release.module, release.version, go_sum, names)))


def _store_images(programs: Iterable[GoProgram], progress: Callable[[str], None]) -> None:
    for program in programs:
        if not is_stored(program.module):
            progress(f"storing {program_reference(program.module)}")
            store_program(program.module, program.folder / program.binary)


def _documents(content: bytes) -> list[Document]:
    import yaml

    return [each for each in yaml.load_all(content, yaml.CSafeLoader) if each]


def _definition(document: Document) -> Document:
    """Return a CustomResourceDefinition with its stored version only, which needs no conversion.

    Omit descriptions. They are four fifths of the size, and every update would include them.
    """
    metadata = {"name": document["metadata"]["name"], "annotations": document["metadata"].get("annotations", {})}
    spec = {key: value for key, value in document["spec"].items() if key != "conversion"}
    spec["versions"] = [version for version in spec["versions"] if version["storage"]]
    for version in spec["versions"]:
        version["schema"]["openAPIV3Schema"] = _without_descriptions(version["schema"]["openAPIV3Schema"])
    return {"metadata": metadata, "spec": spec}


def _without_descriptions(schema: Any) -> Any:
    """Return a JSON schema without descriptions of types. A property named `description` stays."""
    if isinstance(schema, list):
        return [_without_descriptions(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {}
    for key, value in schema.items():
        if key == "properties":
            kept[key] = {name: _without_descriptions(each) for name, each in value.items()}
        elif key in ("items", "additionalProperties", "allOf", "anyOf", "oneOf", "not"):
            kept[key] = _without_descriptions(value)
        elif key != "description":
            kept[key] = value
    return kept


def _rules(rules: list[Document], release: Release) -> list[Document]:
    """Return the rules of a role without the resources that the operator does not need."""
    kept = [
        {**rule, "resources": [each for each in rule["resources"] if each not in release.unneeded]} for rule in rules
    ]
    return [_with_webhook_names(rule, release) for rule in kept if rule["resources"]]


def _with_webhook_names(rule: Document, release: Release) -> Document:
    """Return a rule that names the release's webhook configurations. The manifest leaves the names to the installer."""
    configurations = release.webhooks.configurations if release.webhooks else ()
    names = [name for kind, name in configurations if f"{kind.lower()}s" in rule["resources"]]
    return {**rule, "resourceNames": names} if names and "resourceNames" in rule else rule


def _resources(document: Document) -> set[str]:
    """Return the plural names of the resources in the rules of a webhook or a ClusterRole."""
    return {each.partition("/")[0] for rule in document["rules"] for each in rule.get("resources", ())}


def _limited_to_label(webhook: Document, label: str | None) -> Document:
    """Return a webhook for other projects' resources, limited to objects with the label."""
    if label is None:
        raise ValueError(
            f"webhook {webhook['name']} would receive all objects of its kinds; set `label` of the operator's webhooks"
        )
    return {**webhook, "objectSelector": {"matchExpressions": [{"key": label, "operator": "Exists"}]}}


def read_files(module: str, version: str, go_sum: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Return the files `names` of a module from the module proxy, without a Go toolchain.

    Raises RuntimeError for a failed download or a wrong checksum.

    https://go.dev/ref/mod#goproxy-protocol, https://go.dev/ref/mod#go-sum-files
    """
    expected = _checksum(module, version, go_sum)
    url = f"{proxy()}/{_escaped(module)}/@v/{_escaped(version)}.zip"
    with tempfile.TemporaryFile() as archive:
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as reply:
                shutil.copyfileobj(reply, archive)
        except OSError as error:
            raise RuntimeError(f"{url}: {error}; set GOPROXY to a module proxy that this machine can reach") from error
        if (found := archive_checksum(archive)) != expected:
            raise RuntimeError(f"{url} has checksum {found}, not {expected} as in {go_sum}")
        with zipfile.ZipFile(archive) as members:
            return {name: members.read(f"{module}@{version}/{name}") for name in names}


def proxy() -> str:
    """Return the module proxy: the first URL in `$GOPROXY`, else Go's default."""
    listed = re.split(r"[,|]", os.environ.get("GOPROXY", ""))
    return next((each.rstrip("/") for each in listed if each.startswith(("https://", "http://"))), DEFAULT_PROXY)


def archive_checksum(archive: IO[bytes]) -> str:
    """Return the checksum of a module's archive in go.sum's format.

    https://pkg.go.dev/golang.org/x/mod/sumdb/dirhash#Hash1
    """
    with zipfile.ZipFile(archive) as members:
        lines = [f"{_digest(members, name)}  {name}\n" for name in sorted(members.namelist())]
    return f"h1:{base64.b64encode(hashlib.sha256(''.join(lines).encode()).digest()).decode()}"


def _digest(members: zipfile.ZipFile, name: str) -> str:
    with members.open(name) as member:
        return hashlib.file_digest(member, "sha256").hexdigest()  # type: ignore[arg-type]  # its type lacks readinto


def _checksum(module: str, version: str, go_sum: Path) -> str:
    for line in go_sum.read_text(encoding="ascii").splitlines():
        found, at, checksum = line.split(" ")
        if (found, at) == (module, version):
            return checksum
    raise RuntimeError(f"{go_sum} has no checksum of {module} {version}")


def _escaped(text: str) -> str:
    """Return a path or version with escaped capitals: https://go.dev/ref/mod#module-cache."""
    return re.sub(r"[A-Z]", lambda found: f"!{found[0].lower()}", text)
