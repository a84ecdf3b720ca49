"""`make up`: changes in a cloud, another cache, unfollowed jobs, failed installations of packages, printed outputs."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from subprocess import CalledProcessError
from typing import Any

import pytest

from commands import up
from commands.down import CLUSTER_RESOURCE
from commands.environment import PROJECT, PulumiFailed
from commands.interrupts import CommandError
from commands.job_results import unfollowed
from commands.up import explain_requirements_error, print_outputs
from infra.local.settings import stack_cluster
from stack.config import parse
from tests.unit.stack_settings import CLUSTER, JOB, KUBECONFIG, PLATFORM, eks

EXISTING = {**CLUSTER, "kubeconfig": str(KUBECONFIG)}
LOCAL = parse({"platform": PLATFORM, "jobs": []})
CLUSTER_URN = "urn:pulumi:mine::trainyard::aws:eks/cluster:Cluster::cluster-eks"


def state_with_version(version: str) -> dict[str, Any]:
    """Return a deployment with an EKS cluster of this version and its VPC, in the default zones."""
    cluster = {"urn": CLUSTER_URN, "type": "aws:eks/cluster:Cluster", "id": "mine", "outputs": {"version": version}}
    vpc = {"urn": "urn:vpc", "type": "aws:ec2/vpc:Vpc", "id": "vpc-1", "outputs": {"cidrBlock": "10.0.0.0/16"}}
    subnets = [
        {
            "urn": f"urn::network-private-us-west-2{letter}",
            "type": "aws:ec2/subnet:Subnet",
            "id": letter,
            "outputs": {"cidrBlock": f"10.0.{64 * index}.0/18", "availabilityZone": f"us-west-2{letter}"},
        }
        for index, letter in enumerate("abc")
    ]
    return {"resources": [cluster, vpc, *subnets]}


@pytest.fixture
def recovered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `up` find an existing stack that needs no recovery."""
    for name in ("recover", "ensure_stack", "adopt_pending"):
        monkeypatch.setattr(up, name, lambda _stack: None)


def without_aws(*_words: str) -> Any:
    """Raise the error of a missing `aws`."""
    raise FileNotFoundError(2, "No such file or directory", "aws")


def with_log_group(*words: str) -> Any:
    """Return an account's answers: the cluster's log group exists, but the cluster does not. Reject queries of EC2."""
    if words[1] == "ec2":
        raise CalledProcessError(254, words)
    return {"logGroups": [{"logGroupName": "/aws/eks/eks-dist/cluster"}]} if words[1] == "logs" else {"clusters": []}


@pytest.mark.usefixtures("recovered")
def test_up_with_a_leftover_log_group_fails_before_it_creates_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(up, "pulumi", lambda *words: commands.append(words))
    monkeypatch.setattr(up, "read_deployment", lambda _stack: {})
    monkeypatch.setattr(up, "run_json", with_log_group)
    config = parse({"platform": eks(), "jobs": []})
    with pytest.raises(PulumiFailed, match="the log group /aws/eks/eks-dist/cluster exists"):
        up.bring_up("mine", config)
    assert commands == []
    monkeypatch.setattr(up, "run_json", without_aws)
    up.prepare("mine", config)


@pytest.mark.usefixtures("recovered")
@pytest.mark.parametrize("platform", [PLATFORM, EXISTING, eks()])
def test_up_that_would_replace_the_cluster_by_another_platform_changes_nothing(
    platform: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    component = {
        "urn": "urn:pulumi:mine::trainyard::trainyard:gcp:GkeCluster::cluster",
        "type": "trainyard:gcp:GkeCluster",
    }
    monkeypatch.setattr(up, "read_deployment", lambda _stack: {"resources": [component]})
    with pytest.raises(CommandError, match="destroy the stack's cluster of kind `gke`; nothing was changed"):
        up.prepare("mine", parse({"platform": platform, "jobs": []}))


@pytest.mark.parametrize(("platform", "asks"), [(PLATFORM, False), (EXISTING, True), (eks(), True)])
def test_up_asks_before_it_ends_jobs_except_on_the_local_platform(
    platform: dict[str, Any], asks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def stop(*words: str) -> None:
        called.append(words[0])
        raise PulumiFailed("the test ends here")

    monkeypatch.setattr(up, "prepare", lambda _stack, _config: ["--replace", "urn"])
    monkeypatch.setattr(up, "pulumi", stop)
    with pytest.raises(PulumiFailed):
        up.bring_up("mine", parse({"platform": platform, "jobs": []}), lambda options: called.extend(options))
    assert called == (["--replace", "urn"] if asks else []) + ["up"]


@pytest.mark.usefixtures("recovered")
@pytest.mark.parametrize(("requested", "error"), [("1.35", ""), ("1.36", ""), ("1.37", "2 minor versions above")])
def test_up_checks_the_version_to_which_eks_has_upgraded_the_cluster(
    requested: str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[str, ...]] = []
    state = state_with_version("1.34")

    def pulumi(*words: str) -> None:
        commands.append(words)
        state.update(state_with_version("1.35"))

    monkeypatch.setattr(up, "pulumi", pulumi)
    monkeypatch.setattr(up, "read_deployment", lambda _stack: state)
    monkeypatch.setattr(up, "run_json", without_aws)
    config = parse({"platform": eks(kubernetes_version=requested, check_availability=False), "jobs": []})
    if error:
        with pytest.raises(PulumiFailed, match=error):
            up.prepare("mine", config)
    else:
        up.prepare("mine", config)
    assert commands == [("refresh", "--yes", "--skip-preview", "--target", CLUSTER_URN, "--stack", "mine")]


def test_unfollowed_interactive_and_suspended_jobs_have_reasons() -> None:
    changes = {"trains": {}, "idle": {"interactive": True}, "sleeps": {"suspend": True, "interactive": True}}
    config = parse({"platform": PLATFORM, "jobs": [{**JOB, "name": name, **more} for name, more in changes.items()]})
    assert unfollowed(config) == {
        "idle": "interactive; `make exec JOB=idle RANK=0` opens a shell in a host",
        "sleeps": "suspended; `suspend: false` starts it",
    }


def failed_update(diagnostics: str) -> PulumiFailed:
    """Return the error of a failed update with these diagnostics."""
    error = PulumiFailed("`pulumi up` failed with 1")
    error.diagnostics = diagnostics
    return error


@pytest.mark.usefixtures("recovered")
def test_up_replaces_a_node_group_whose_creation_has_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands: list[tuple[str, ...]] = []
    urn = "urn:pulumi:mine::trainyard::aws:eks/nodeGroup:NodeGroup::gpus-nodes"
    group: dict[str, Any] = {"urn": urn, "type": "aws:eks/nodeGroup:NodeGroup", "id": "mine:gpus", "outputs": {}}
    group["initErrors"] = ["creating gpus: unexpected state 'CREATE_FAILED'"]

    def pulumi(*words: str) -> None:
        commands.append(words)
        group.update(initErrors=[], outputs={"status": "CREATE_FAILED"})

    monkeypatch.setattr(up, "pulumi", pulumi)
    monkeypatch.setattr(up, "read_deployment", lambda _stack: {"resources": [group]})
    monkeypatch.setattr(up, "run_json", without_aws)
    assert up.prepare("mine", parse({"platform": eks(), "jobs": []})) == ["--replace", urn]
    assert commands == [("refresh", "--yes", "--skip-preview", "--target", urn, "--stack", "mine")]
    assert "the creation of gpus-nodes has failed; the update replaces it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("diagnostics", "message"),
    [
        (
            "RuntimeError: requirements: uv cannot install the packages\n",
            "needs.txt: the packages cannot be installed; the reason is above; correct the file, then run `make up`",
        ),
        ("no space left on device\n", "`pulumi up` failed with 1"),
    ],
)
def test_failed_installation_of_packages_names_the_requirements_file(diagnostics: str, message: str) -> None:
    config = parse({"platform": PLATFORM, "jobs": [JOB]})
    config = config.model_copy(update={"jobs": [config.jobs[0].model_copy(update={"requirements": "needs.txt"})]})
    with pytest.raises(PulumiFailed) as raised, explain_requirements_error(config, "`make up`"):
        raise failed_update(diagnostics)
    assert str(raised.value) == message


def test_failed_installation_without_a_requirements_file_keeps_the_error() -> None:
    config = parse({"platform": PLATFORM, "jobs": [JOB]})
    with pytest.raises(PulumiFailed, match="failed with 1"), explain_requirements_error(config, "`make up`"):
        raise failed_update("requirements: x\n")


def test_print_outputs_prints_one_line_each_without_empty_values(capsys: pytest.CaptureFixture[str]) -> None:
    print_outputs(
        {
            "jobs": ["digits", "other"],
            "console": {},
            "image": "trainer:1",
            "run_records": {"digits": {"chips": 0, "accelerator": None, "pools": [], "plan": "sha256:1"}},
        }
    )
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Outputs of the stack:",
        "  image: trainer:1",
        "  jobs: digits, other",
        "  run_records:",
        "    digits:",
        "      chips: 0",
        "      plan: sha256:1",
    ]


def test_up_with_a_cluster_in_another_cache_keeps_the_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commands: list[tuple[str, ...]] = []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "old"))
    cluster = stack_cluster(str(PROJECT), "mine")
    cluster.bucket.mkdir(parents=True)
    urn = f"urn:pulumi:mine::trainyard::pulumi-python:dynamic:Resource{CLUSTER_RESOURCE}"
    outputs = {"owner": cluster.owner, "bucket_path": str(cluster.bucket)}
    monkeypatch.setattr(up, "read_deployment", lambda _stack: {"resources": [{"urn": urn, "outputs": outputs}]})
    monkeypatch.setattr(up, "pulumi", lambda *words: commands.append(words))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    with pytest.raises(CommandError, match=f"run the command with XDG_CACHE_HOME={tmp_path}/old;"):
        up.remove_lost_cluster("mine", LOCAL)
    assert commands == []
    rmtree(tmp_path / "old")
    assert up.remove_lost_cluster("mine", LOCAL)
