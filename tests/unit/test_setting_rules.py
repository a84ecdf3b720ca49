"""Validation of settings: code and path of each problem, and the text of some messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from settings.problems import SYNONYMS, TIME_TO_LIVE, ConfigError
from stack.config import parse
from tests.problems import problems_of
from tests.unit.stack_settings import (
    JOB,
    KUBECONFIG,
    PLATFORM,
    code_ids,
    error_lines,
    existing_cluster,
    job,
    job_on_cluster,
    job_without,
    local_platform,
)

GKE = {"platform": {"kind": "gke", "project": "some-project", "deletion_protection": True}, "jobs": []}
L4 = {"accelerator": "nvidia-l4"}
SETTING_MESSAGES: dict[str, tuple[dict[str, Any], str]] = {
    "number": (job(hosts=0), "jobs[0].hosts = 0: must be an integer from 1 to 10000; write `hosts: 1`"),
    "quotes": (
        job(hosts="2"),
        'jobs[0].hosts = "2": must be an integer from 1 to 10000; write `hosts: 2`, without quotes',
    ),
    "unit": (job(deadline_seconds="1h"), "write `deadline_seconds: 3600`"),
    "missing key": (job_without("name"), "jobs[0].name: is missing"),
    "missing list": ({"platform": PLATFORM}, "jobs: is missing: Jobs that run at the same time"),
    "flag of the trainer as a key": (job(preset="8m"), "write flags.preset, which is `flags: {preset: ...}`"),
    "flag with a list": (
        job(flags={"epochs": [1, 2]}),
        "must be a string, a number, true or false, or a mapping of names to strings",
    ),
    "unknown key": (job(zzz=2), "jobs[0].zzz = 2: unknown key; remove this key; allowed here: name, kind"),
    "example in place of recipe": (job(recipe="mnist-spmd"), "is an example in docs/recipes"),
    "mapping": ({"platform": "local", "jobs": []}, "kind (one of local, kubeconfig, gke, eks)"),
}
"""Subject of each message -> a configuration, and a part of its error line."""
SETTING_PROBLEMS: list[tuple[dict[str, Any], str, str]] = [
    (job(flags="--epochs=2"), "settings.dict_type", "jobs.0.flags"),
    (job(recipe="mnist-spmd"), "settings.recipe_of_docs", "jobs.0.recipe"),
    (job(environment={"A-B": "1"}), "settings.key.variable_name", "jobs.0.environment.A-B"),
    ({"platform": PLATFORM, "jobs": [7]}, "settings.model_type", "jobs.0"),
    ({**GKE, "ttl_hours": 8}, "stack.ttl_hours.protected", "ttl_hours"),
    (job_without("recipe"), "job.recipe.missing", "jobs.0.recipe"),
    ({"platform": PLATFORM, "jobs": ["digit"]}, "stack.jobs.unknown_example", "jobs.0"),
    (job(flags={"epoch": 3}), "job.flags.unknown", "jobs.0.flags.epoch"),
    (job(flags={"arch": "resnet18"}), "job.flags.only_for_other_recipe", "jobs.0.flags.arch"),
    (job(flags={"device": "cuda"}), "job.device.no_gpu", "jobs.0.flags.device"),
    (job(flags={"device": "xla"}), "job.device.no_xla", "jobs.0.flags.device"),
    (job_on_cluster(accelerator="v4-32", flags={"device": "cpu"}), "job.device.not_cpu", "jobs.0.flags.device"),
    (job(runtime="xla", flags={"compile": True}), "job.compile.on_xla", "jobs.0.flags.compile"),
    (job(recipe="imagenet", flags={"fake_data": False}), "job.fake_data.no_data_dir", "jobs.0.flags.fake_data"),
    (job_on_cluster(**L4, processes_per_host=2), "job.processes_per_host.too_many", "jobs.0.processes_per_host"),
    (existing_cluster(namespace="default"), "kubeconfig.namespace.reserved", "platform.namespace"),
    (existing_cluster(kubeconfig="/no/such/file"), "kubeconfig.context.unknown", "platform.kubeconfig"),
    (job(hosts=-2), "settings.greater_than_equal", "jobs.0.hosts"),
    (job(hosts="two"), "settings.int_type", "jobs.0.hosts"),
    (job(hosts=True), "settings.int_type", "jobs.0.hosts"),
    (job(deadline_seconds="2 days"), "settings.int_type", "jobs.0.deadline_seconds"),
    ({**job(), "ttl_hours": "1d"}, "settings.float_type", "ttl_hours"),
    (job(name=7), "settings.string_type", "jobs.0.name"),
    (job(name="a" * 64), "settings.dns_label", "jobs.0.name"),
    (job(name="a" * 62), "job.name.too_long", "jobs.0.name"),
    (job(time_to_live=60), "settings.unknown_key", "jobs.0.time_to_live"),
    (job(resources={"cpu": 0}), "settings.cpu", "jobs.0.resources.cpu"),
    (job(resources={"memory": "2GB"}), "settings.memory", "jobs.0.resources.memory"),
    (job(flags={"epochs": "two"}), "job.flags.wrong_value", "jobs.0.flags.epochs"),
    (job(flags={"--lr": 1}), "settings.key.flag_name", "jobs.0.flags.--lr"),
    (job(flags={"lr": [1]}), "settings.flag_value", "jobs.0.flags.lr"),
    (job(environment={"PET_NNODES": "9"}), "settings.key.variable_reserved", "jobs.0.environment.PET_NNODES"),
    ({**job(), "budget": float("inf")}, "settings.finite_number", "budget"),
    ({**job(), "budget": 0}, "settings.greater_than", "budget"),
    (job(min_bandwidth_gbps="fast"), "settings.float_type", "jobs.0.min_bandwidth_gbps"),
    (job(environment={"A": True}), "settings.variable_value", "jobs.0.environment.A"),
    (job(image="my image"), "settings.image_reference", "jobs.0.image"),
    ({"platform": PLATFORM, "jobs": [JOB, JOB]}, "job.name.taken", "jobs.1.name"),
    ({"jobs": [JOB]}, "settings.missing", "platform"),
    ({"platform": PLATFORM}, "settings.missing", "jobs"),
    ({"platform": {}, "jobs": []}, "settings.missing_kind", "platform.kind"),
    ({"platform": {"kind": "azure"}, "jobs": []}, "settings.unknown_kind", "platform.kind"),
    (local_platform(context="x"), "settings.unknown_key", "platform.context"),
    (local_platform(namespace="kube-system"), "settings.namespace_not_deletable", "platform.namespace"),
    (local_platform(name="My_Cluster"), "settings.cluster_name", "platform.name"),
    (
        existing_cluster(namespace="kube-system", create_namespace=False),
        "settings.namespace_of_others",
        "platform.namespace",
    ),
    ({"platform": {"kind": "kubeconfig", "image": "x"}, "jobs": []}, "settings.missing", "platform.context"),
    (existing_cluster(bucket={}), "settings.missing_kind", "platform.bucket.kind"),
    (existing_cluster(bucket={"kind": "url", "url": "ftp://x"}), "settings.bucket_url", "platform.bucket.url"),
    (existing_cluster(bucket={"kind": "claim", "url": "s3://x"}), "settings.unknown_key", "platform.bucket.url"),
]
"""Configuration, and the code and path of its problem."""


@pytest.mark.parametrize("name", SETTING_MESSAGES)
def test_invalid_setting_has_message(name: str) -> None:
    values, part = SETTING_MESSAGES[name]
    (line,) = error_lines(values)
    assert part in line


@pytest.mark.parametrize(
    ("values", "intended"),
    [
        (job(replicas=2), "hosts"),
        (job(deadline=60), "deadline_seconds"),
        (job(ttl=2), "deadline_seconds"),
        ({"platform": PLATFORM, "jobs": [JOB], "ttl": 2}, "ttl_hours"),
        (job(cpu=2), "resources.cpu, which is `resources: {cpu: ...}`"),
        (job(wandb="online"), "flags.wandb, which is `flags: {wandb: ...}`"),
        (job(resources={"mem": "2Gi"}), "memory"),
    ],
    ids=str,
)
def test_unknown_key_suggests_intended_key(values: dict[str, Any], intended: str) -> None:
    [(code, _)] = problems_of(values)
    assert code == "settings.unknown_key"
    assert f"unknown key; write {intended};" in error_lines(values)[0]


@pytest.mark.parametrize(("values", "code", "path"), SETTING_PROBLEMS, ids=code_ids(SETTING_PROBLEMS))
def test_invalid_setting_has_code_and_path(values: dict[str, Any], code: str, path: str) -> None:
    assert problems_of(values) == [(code, path)]


def test_protected_stack_without_ttl_is_accepted() -> None:
    assert parse(GKE).ttl_hours is None


def test_problems_are_reported_together_in_order_of_keys() -> None:
    values = {"platform": {"kind": "local", "nodes": 0, "prot": 1}, "jobs": [{**JOB, "hosts": 0}, {**JOB, "name": "B"}]}
    assert [path for _, path in problems_of(values)] == [
        "platform.nodes",
        "platform.prot",
        "jobs.0.hosts",
        "jobs.1.name",
    ]


def test_message_shortens_a_long_value() -> None:
    (line,) = error_lines(job(name="A" * 500))
    assert len(line) < 260


def test_unknown_context_lists_contexts(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("contexts: [{name: kind-one}, {name: k3d-two}]", encoding="utf-8")
    (line,) = error_lines(existing_cluster(kubeconfig=str(file)))
    assert line.endswith("write one of kind-one, k3d-two")
    assert parse(existing_cluster(kubeconfig=str(file), context="k3d-two")).platform.kind == "kubeconfig"


@pytest.mark.parametrize("namespace", ["default", "kube-team"])
def test_existing_namespace_may_have_reserved_name(namespace: str) -> None:
    values = existing_cluster(kubeconfig=str(KUBECONFIG), namespace=namespace, create_namespace=False)
    assert parse(values).platform.namespace == namespace


def test_invalid_kubeconfig_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("- 1", encoding="utf-8")
    assert [path for _, path in problems_of(existing_cluster(kubeconfig=str(file)))] == ["platform.kubeconfig"]


def test_invalid_default_kubeconfig_error_shows_only_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("- 1", encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", str(file))
    (line,) = error_lines(existing_cluster())
    assert line.startswith(f"trainyard:platform.kubeconfig: {file} is not a kubeconfig; ")


def test_unreadable_kubeconfig_is_rejected() -> None:
    # Even root cannot read the start of this file.
    (line,) = error_lines(existing_cluster(kubeconfig="/proc/self/mem"))
    assert " /proc/self/mem cannot be read (Input/output error); " in line


def test_message_never_shows_secret() -> None:
    key = "0123456789abcdef0123456789abcdef01234567"
    for values in (job(secrets={"A": key}), job(environment={"A_TOKEN": key}), job(secrets={"A": key[:20]})):
        assert key[:20] not in "".join(error_lines(values))


def test_secret_of_stack_must_be_encrypted() -> None:
    values = job(secrets={"WANDB_API_KEY": "wandb"})
    with pytest.raises(ConfigError) as caught:
        parse(values, {"wandb": False})
    assert [each.code for each in caught.value.problems] == ["job.secrets.in_clear"]
    assert parse(values, {"wandb": True}).jobs[0].secrets == {"WANDB_API_KEY": "wandb"}


@pytest.mark.parametrize("key", sorted({*SYNONYMS.values(), *TIME_TO_LIVE}))
def test_suggested_key_is_in_reference(key: str) -> None:
    reference = (Path(__file__).parents[2] / "docs" / "config.md").read_text(encoding="utf-8")
    assert f"| `{key.rpartition('.')[2]}`" in reference


def test_missing_kubeconfig_is_an_error_about_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = str(tmp_path / "nofile")
    (line,) = error_lines(existing_cluster(kubeconfig=missing))
    assert line.startswith("trainyard:platform.kubeconfig = ")
    assert ": does not exist; " in line
    monkeypatch.setenv("KUBECONFIG", missing)
    (line,) = error_lines(existing_cluster())
    assert line.startswith("trainyard:platform.context = ")
    assert f": is not a context, because {missing} does not exist; " in line


def test_number_above_the_maximum_names_only_the_range() -> None:
    (line,) = error_lines(job(hosts=123456789))
    assert line.endswith("jobs[0].hosts = 123456789: must be an integer from 1 to 10000")
