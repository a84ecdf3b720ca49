"""Resources that the program declares for a stack's settings, now or at an earlier commit.

The program runs with mocks of Pulumi's engine and of the clouds. `python -m commands.review.recorded STACK` prints the
resources as JSON.
"""

from __future__ import annotations

import hashlib
import json
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pulumi
import yaml
from pulumi.runtime.mocks import MockCallArgs, MockMonitor, MockResourceArgs, Mocks
from pulumi.runtime.proto import resource_pb2, source_pb2

from commands.environment import PROJECT
from commands.interrupts import hold_signals
from commands.workflows import changed_paths, is_named, is_program
from infra import cloud_image
from infra.builtin_images import TRAINER
from infra.local import lifecycle
from infra.local.trainer_image import image_reference
from infra.project import CHECKOUT
from setup import operators as operator_steps
from setup.progress import run_steps
from stack.config import CONFIG_NAMESPACE, StackConfig, load_file
from workloads import user_files

MODULE = "commands.review.recorded"
"""Name of this module. It runs in an archive of an earlier commit to record the program of that commit."""
PLACEHOLDER = "not the secret"
"""Value of every secret in a recording."""
LOCAL_CLUSTER = {
    "uid": "0123456789abcdef",
    "kubeconfig": "apiVersion: v1",
    "kubeconfig_path": "/cluster/admin.kubeconfig",
    "bucket_path": "/cluster/bucket",
    "node_names": ["local-0", "local-1"],
}
"""Outputs of the resource that represents the local cluster."""


def _cloud_outputs(args: MockResourceArgs) -> dict[str, Any]:
    """Return the outputs of a cloud resource that the program reads and that are not among its inputs."""
    inputs = args.inputs
    if args.typ == "gcp:container/cluster:Cluster":
        dns: dict[str, Any] = {
            "dnsEndpointConfig": {"endpoint": "gke-1.us-central1.gke.goog", "allowExternalTraffic": True}
        }
        auth: dict[str, Any] = {
            "clusterCaCertificate": "Q0E=",
            "clientCertificateConfig": {"issueClientCertificate": False},
        }
        return {"endpoint": "203.0.113.7", "masterAuth": auth, "controlPlaneEndpointsConfig": dns}
    if args.typ == "gcp:serviceaccount/account:Account":
        email = f"{inputs['accountId']}@{inputs['project']}.iam.gserviceaccount.com"
        name = f"projects/{inputs['project']}/serviceAccounts/{email}"
        return {"email": email, "member": f"serviceAccount:{email}", "name": name}
    if args.typ == "gcp:storage/bucket:Bucket":
        return {"name": inputs.get("name") or f"{args.name}-0123456"}
    if args.typ == "gcp:artifactregistry/repository:Repository":
        return {"name": inputs["repositoryId"]}
    if args.typ == "aws:s3/bucket:Bucket":
        name = inputs.get("bucket") or f"{args.name}-0123456"
        return {"bucket": name, "arn": f"arn:aws:s3:::{name}"}
    if args.typ == "aws:eks/cluster:Cluster":
        return {
            "arn": "arn:aws:eks:us-west-2:123456789012:cluster/mock",
            "endpoint": "https://eks.example.com",
            "certificateAuthority": {"data": "Q0E="},
            "vpcConfig": {**inputs["vpcConfig"], "clusterSecurityGroupId": "sg-cluster"},
        }
    if args.typ == "aws:ec2/launchTemplate:LaunchTemplate":
        # A changed template gets a new version. Changed tags do not change the version:
        # hashicorp/terraform-provider-aws internal/service/ec2/ec2_launch_template.go, CustomizeDiff of latest_version.
        contents = {key: value for key, value in inputs.items() if key != "tags"}
        return {"latestVersion": 1 + zlib.crc32(json.dumps(contents, sort_keys=True).encode())}
    if args.typ == "aws:iam/role:Role":
        return {"name": f"{args.name}-0123456", "arn": f"arn:aws:iam::123456789012:role/{args.name}-0123456"}
    if args.typ == "aws:ec2/placementGroup:PlacementGroup":
        return {"name": f"{args.name}-0123456"}
    if args.typ == "aws:ecr/repository:Repository":
        return {"repositoryUrl": f"123456789012.dkr.ecr.us-west-2.amazonaws.com/{inputs['name']}"}
    return {"arn": f"arn:aws:mock:{args.name}"} if args.typ.startswith("aws:") else {}


@dataclass(frozen=True)
class Record:
    """Resource that the program registered."""

    type: str
    name: str
    inputs: dict[str, Any]
    kept: bool = False
    """True if the resource stays in the cloud after its removal from the stack."""
    provider: str = ""
    """URN of the resource's provider; empty for the default provider."""
    depends: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Input -> URNs of the resources whose outputs it uses."""
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Outputs that differ from the inputs, and `id`."""
    ignore_changes: tuple[str, ...] = ()
    """Pulumi's option: inputs that keep their old values."""
    replace_on_changes: tuple[str, ...] = ()
    """Pulumi's option: inputs whose change replaces the resource."""
    deletes_first: bool = False
    """Pulumi's option `delete_before_replace`."""

    @property
    def key(self) -> str:
        """End of the resource's URN: type and name."""
        return f"{self.type}::{self.name}"


def key_of(urn: str) -> str:
    """Return the `key` of the resource with a URN."""
    *_, kind, name = urn.split("::")
    return f"{kind.rpartition('$')[2]}::{name}"


@dataclass
class RecordingEngine(Mocks):
    """Mocks of Pulumi's engine that accept and record every resource."""

    image_digest: str = "0" * 64
    """Hexadecimal digest of every image that the program builds."""
    records: list[Record] = field(default_factory=list)
    """Registered resources, components included."""
    registered: list[resource_pb2.RegisterResourceRequest] = field(default_factory=list)
    """Registration requests, with parents and options."""

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        """Record the resource. Return its id and its outputs: its inputs and the values that a cloud would add."""
        inputs, added = args.inputs, dict[str, Any]()
        if args.typ.startswith("pulumi-python:dynamic"):
            added = LOCAL_CLUSTER
        elif args.typ == "docker-build:index:Image":
            # The real provider sets this as an output. Record it as an input, so that changed sources show a change.
            inputs = {**inputs, "contextHash": self.image_digest}
            added = {"ref": f"{inputs['tags'][0]}@sha256:{self.image_digest}"}
        if args.typ.startswith("kubernetes:") and "name" not in args.inputs.get("metadata", {}):
            added = {"metadata": {**args.inputs.get("metadata", {}), "name": f"{args.name}-auto"}}
        added = {**added, **_cloud_outputs(args)}
        computed = {key: value for key, value in added.items() if value != args.inputs.get(key)}
        id_ = f"{args.name}-id"
        if args.typ == "aws:ec2/launchTemplate:LaunchTemplate":
            id_ = f"lt-{zlib.crc32(args.name.encode()):017x}"
        self.records.append(Record(args.typ, args.name, inputs, outputs={"id": id_, **computed}))
        return id_, {**args.inputs, **added}

    def call(self, args: MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
        """Raise NotImplementedError: the program must not call functions of providers."""
        raise NotImplementedError(args.token)


class _Monitor(MockMonitor):
    """Monitor that passes each complete registration to the engine, because mocks get only the inputs."""

    def __init__(self, engine: RecordingEngine) -> None:
        super().__init__(engine)
        self._engine = engine

    def RegisterResource(self, request: resource_pb2.RegisterResourceRequest) -> Any:
        self._engine.registered.append(request)
        return super().RegisterResource(request)  # type: ignore[no-untyped-call]  # Pulumi's mocks have no types


def run(program: Callable[[], Any], engine: RecordingEngine | None = None) -> RecordingEngine:
    """Run a program until Pulumi has resolved every registration."""
    engine = engine or RecordingEngine()
    pulumi.runtime.set_mocks(engine, project="trainyard", stack="test", preview=False, monitor=_Monitor(engine))
    # Delay signals, because asyncio would print tracebacks. Skip the stack trace of each resource: it takes a quarter
    # of the time, and no code reads it.
    with mock.patch("pulumi.runtime.resource._get_stack_trace", return_value=source_pb2.StackTrace()), hold_signals():
        pulumi.runtime.test(program)()  # type: ignore[no-untyped-call]  # Pulumi's mocks have no types
    return engine


def ensure_operator_objects(operators: Iterable[str]) -> None:
    """Download the operators' objects, which the program reads, to the cache. Raises RuntimeError if this fails."""
    with redirect_stdout(sys.stderr):
        run_steps(operator_steps.steps(operators, cluster=False))


def record_file(text: str, config: StackConfig) -> list[Record]:
    """Return the resources that the program registers for `text`, a stack's file. `config` has its settings."""
    content: dict[str, Any] = yaml.safe_load(text)["config"]
    named = {str(key) if ":" in str(key) else f"{CONFIG_NAMESPACE}:{key}": value for key, value in content.items()}
    values = {key.partition(":")[2]: value for key, value in named.items() if key.partition(":")[0] == CONFIG_NAMESPACE}
    return record_program(values, sorted({name for job in config.jobs for name in job.secrets.values()}))


def record_program(values: Mapping[str, Any], secrets: Iterable[str]) -> list[Record]:
    """Return the resources that the program registers for `values`, the settings without the prefix `trainyard:`.

    `secrets` are the names of the secrets in the settings. Raises the program's RunError.
    """
    named = [f"secrets:{name}" for name in secrets]
    digest = hashlib.sha256(image_reference(TRAINER).encode()).hexdigest()

    def program() -> Awaitable[None]:
        settings = {f"trainyard:{key}": json.dumps(value, default=str) for key, value in values.items()}
        pulumi.runtime.set_all_config(settings | dict.fromkeys(named, PLACEHOLDER), named)
        main: Callable[[], Awaitable[None]] = runpy.run_path(str(CHECKOUT / "__main__.py"))["main"]
        return main()

    with (
        mock.patch.object(cloud_image, "prepare_context", return_value=None),
        mock.patch.object(cloud_image, "write_context", return_value=None),
        mock.patch.object(lifecycle, "check_machine", return_value=[]),
    ):
        engine = run(program, RecordingEngine(image_digest=digest))
    requests = {f"{each.type}::{each.name}": each for each in engine.registered}
    return [_with_options(each, requests[each.key]) for each in engine.records]


def _with_options(record: Record, request: resource_pb2.RegisterResourceRequest) -> Record:
    return replace(
        record,
        kept=request.retainOnDelete,
        provider=request.provider.rpartition("::")[0],
        depends={name: tuple(found.urns) for name, found in request.propertyDependencies.items()},
        ignore_changes=tuple(request.ignoreChanges),
        replace_on_changes=tuple(request.replaceOnChanges),
        deletes_first=request.deleteBeforeReplace,
    )


def records_before(stack: str, text: str, config: StackConfig | None, commit: str) -> tuple[list[Record], str]:
    """Return the resources of a stack at a commit, and the reason if a comparison with them is incomplete.

    `text` is the stack's file at the commit. `config` has its settings; None if the current program cannot read it.
    """
    has_program = PROJECT == CHECKOUT
    if has_program and config and not any(is_program(path) or is_named(path, text) for path in changed_paths(commit)):
        return record_file(text, config), ""
    try:
        return (_record_at_commit if has_program else _record_project_at_commit)(stack, commit), ""
    except RuntimeError as error:
        part = "program before the change cannot run" if has_program else "project before the change cannot be read"
        why = f"the {part} ({error})"
    if config:
        return record_file(text, config), f"Only the settings are compared: {why}."
    return [], f"Nothing is compared: {why}."


@contextmanager
def _files_at_commit(commit: str) -> Iterator[str]:
    """Yield a temporary folder with the project's files of a commit."""
    with tempfile.TemporaryDirectory(prefix="trainyard-before-") as folder:
        archive = subprocess.run(["git", "archive", commit], cwd=PROJECT, capture_output=True, check=True).stdout
        subprocess.run(["tar", "--extract", f"--directory={folder}"], input=archive, check=True)
        yield folder


def _record_at_commit(stack: str, commit: str) -> list[Record]:
    """Return the resources of a stack from the program of the commit. Raises RuntimeError if that program fails."""
    with _files_at_commit(commit) as folder:
        done = subprocess.run(
            [sys.executable, "-m", MODULE, stack],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0 or not done.stdout.strip():
        raise RuntimeError((done.stderr.strip().splitlines() or ["it prints no records"])[-1])
    return [_parse_record(each) for each in json.loads(done.stdout.replace(folder, str(CHECKOUT)))]


def _record_project_at_commit(stack: str, commit: str) -> list[Record]:
    """Return the resources of a stack from the settings, scripts and requirements of the commit.

    The commits of a project outside of the checkout have no program. Raises RuntimeError for invalid files.
    """
    with _files_at_commit(commit) as folder:
        _repoint_dangling_links(Path(folder))
        for path in _ignored_sources():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(PROJECT / path, Path(folder) / path)

        def read_at_commit(read: Callable[..., Any]) -> Callable[..., Any]:
            return lambda path, project, *more: read(path, Path(folder) if project == PROJECT else project, *more)

        file = Path(folder) / f"Pulumi.{stack}.yaml"
        with (
            mock.patch.object(user_files, "read_script", read_at_commit(user_files.read_script)),
            mock.patch.object(user_files, "read_requirements", read_at_commit(user_files.read_requirements)),
        ):
            try:
                config = load_file(file, checks_availability=False, checks_machine=False)
                ensure_operator_objects(config.operators)
                return record_file(file.read_text(encoding="utf-8"), config)
            except (ValueError, pulumi.RunError) as error:
                raise RuntimeError(str(error).replace(folder, str(PROJECT)).splitlines()[-1]) from error


def _repoint_dangling_links(folder: Path) -> None:
    """Point each broken symbolic link in `folder` to the target that the same link has in the project today.

    In the temporary folder, a relative link to a file outside the project is broken.
    """
    for link in [each for each in folder.rglob("*") if each.is_symlink() and not each.exists()]:
        link.unlink()
        link.symlink_to((PROJECT / link.relative_to(folder)).resolve())


def _ignored_sources() -> list[str]:
    """Return the source files of the project that git ignores. No commit has these files, but the jobs get them."""
    words = ["git", "check-ignore", "-z", "--stdin"]
    top = PROJECT.resolve()
    # git rejects a path below a link.
    found = [each for each in user_files.source_files(top) if each.parent.resolve() == each.parent]
    sources = "\0".join(str(each.relative_to(top)) for each in found)
    done = subprocess.run(words, cwd=PROJECT, input=sources, capture_output=True, text=True, check=False)
    return [each for each in done.stdout.split("\0") if each]


def _parse_record(found: dict[str, Any]) -> Record:
    depends = {name: tuple(urns) for name, urns in found["depends"].items()}
    options = {name: tuple(found.get(name, ())) for name in ("ignore_changes", "replace_on_changes")}
    return Record(**{**found, **options, "depends": depends})


def main(stack: str) -> int:
    """Print the resources of a stack as JSON. Raises the errors of its settings and of the program."""
    file = PROJECT / f"Pulumi.{stack}.yaml"
    config = load_file(file, checks_availability=False, checks_machine=False)
    ensure_operator_objects(config.operators)
    print(json.dumps([asdict(each) for each in record_file(file.read_text(encoding="utf-8"), config)]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
