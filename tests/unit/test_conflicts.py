"""Rendering of all accepted jobs: names fit for every kind and number of hosts."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.naming import check_label
from tests.golden.manifests import ON_GPUS, ON_TPUS, manifests
from workloads.kinds import KINDS as ALL_KINDS
from workloads.spec import JobKind, JobSpec
from workloads.validation.conflicts import conflicts

KINDS: tuple[JobKind, ...] = get_args(JobKind)

specs = st.fixed_dictionaries(
    {"kind": st.sampled_from(KINDS), "name": st.sampled_from(["a", "b" * 40, "c" * 52])},
    optional={
        "recipe": st.sampled_from(["digits", "imagenet"]),
        "script": st.just("train.py"),
        "accelerator": st.sampled_from(["v4-32", "v5litepod-8", "nvidia-l4"]),
        "slices": st.integers(1, 3),
        "accelerators_per_host": st.integers(1, 8),
        "elastic": st.fixed_dictionaries({"min_hosts": st.integers(1, 3), "max_hosts": st.integers(1, 3)}),
        "hosts": st.integers(1, 4),
        "processes_per_host": st.integers(1, 4),
        "rendezvous": st.sampled_from(["static", "c10d", "etcd"]),
        "restarts": st.integers(0, 2),
        "min_bandwidth_gbps": st.just(1),
        "queue": st.just("research"),
        "torchrun": st.booleans(),
        "suspend": st.booleans(),
        "interactive": st.booleans(),
    },
)


@pytest.mark.parametrize("kind", KINDS)
@given(hosts=st.integers(1, 10_000))
def test_job_name_longest_is_accepted_and_longer_rejected(kind: JobKind, hosts: int) -> None:
    spec = JobSpec(name="a", kind=kind, script="a.py", hosts=hosts)
    longest = "a" * (63 - len(ALL_KINDS[kind].longest_suffix(spec)))
    assert all(check_label(longest + suffix) for suffix in ALL_KINDS[kind].label_suffixes(spec))
    too_long = JobSpec(name=longest + "a", kind=kind, script="a.py", hosts=hosts)
    assert [each.code for each in conflicts(too_long)] == ["job.name.too_long"]


@settings(max_examples=300, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(values=specs)
def test_job_spec_without_conflicts_renders_valid_names(values: dict[str, Any]) -> None:
    spec = JobSpec.model_validate(values)
    problems = conflicts(spec)
    assert all(each.path[0] in JobSpec.model_fields and each.message for each in problems)
    if not problems:
        found = manifests(spec, ON_TPUS if spec.tpu else ON_GPUS)
        assert all(check_label(each["metadata"].get("name", "a")) for each in found)
