"""Wrong sizes of a language model and of its groups of ranks are rejected when a stack's settings are read."""

from __future__ import annotations

from typing import Any

import pytest

from trainer.config import LanguageConfig
from trainer.exit_codes import ConfigurationError
from trainer.language.sizes import PRESETS, check_tensor_size, divide_ranks
from workloads.spec import JobSpec
from workloads.validation.conflicts import conflicts
from workloads.validation.language import model_sizes


def spec(*, hosts: int = 2, processes: int = 2, **values: Any) -> JobSpec:
    """Return a job on CPUs."""
    flags = values.pop("flags", {})
    settings = {"name": "a", "recipe": "language", "hosts": hosts, "processes_per_host": processes, "flags": flags}
    return JobSpec.model_validate({**settings, "resources": {"cpu": 1, "memory": "4Gi"}, **values})


def found(job: JobSpec) -> list[tuple[str, str]]:
    """Return code and flag of each problem."""
    return [(problem.code, ".".join(map(str, problem.path))) for problem in conflicts(job)]


ALLOWED: list[dict[str, Any]] = [
    {},
    {"preset": "70b", "parallelism": "shard=auto"},
    {"parallelism": "data=2,shard=2"},
    {"parallelism": "shard=2,tensor=2", "compile": True},
    {"parallelism": "data=auto,tensor=2"},
    {"width": 96, "heads": 6, "kv-heads": "3"},
    {"tokenizer": "bpe", "vocabulary": 1024, "activation_checkpointing": "selective"},
    {"tokenizer": "s3://team/llama/tokenizer.json", "init_from": "s3://team/llama", "lora_rank": 8, "rope_factor": 32},
]
REJECTED: list[tuple[dict[str, Any], str, str]] = [
    ({"preset": "9b"}, "job.flags.wrong_value", "preset"),
    ({"parallelism": "shard:4"}, "job.flags.wrong_value", "parallelism"),
    ({"width": 100}, "job.width.uneven", "width"),
    ({"kv-heads": 3}, "job.kv_heads.uneven", "kv_heads"),
    ({"parallelism": "shard=2,shard=2"}, "job.parallelism.twice", "parallelism"),
    ({"parallelism": "data=auto,shard=auto"}, "job.parallelism.twice", "parallelism"),
    ({"parallelism": "shard=3"}, "job.parallelism.product", "parallelism"),
    ({"parallelism": "data=2,shard=1"}, "job.parallelism.product", "parallelism"),
    ({"parallelism": "tensor=4"}, "job.parallelism.tensor", "parallelism"),
    ({"parallelism": "tensor=2", "hidden": 333}, "job.parallelism.tensor", "parallelism"),
    ({"parallelism": "tensor=2", "context": 255}, "job.parallelism.tensor", "parallelism"),
    ({"parallelism": "tensor=2", "lora_rank": 8, "init_from": "/bucket/llama"}, "job.lora_rank.tensor", "lora_rank"),
    ({"lora_rank": 8}, "job.lora_rank.no_weights", "lora_rank"),
    ({"lora_rank": -1}, "job.flags.wrong_value", "lora_rank"),
    ({"init_from": "http://example.com/llama"}, "job.flags.wrong_value", "init_from"),
    ({"tokenizer": "words"}, "job.flags.wrong_value", "tokenizer"),
    ({"tokenizer": "gs://Team/tokenizer.json"}, "job.flags.wrong_value", "tokenizer"),
    ({"activation_checkpointing": "some"}, "job.flags.wrong_value", "activation_checkpointing"),
    ({"rope_factor": 0.5}, "job.flags.wrong_value", "rope_factor"),
    ({"arch": "resnet50"}, "job.flags.of_other_recipe", "arch"),
]


@pytest.mark.parametrize("flags", ALLOWED)
def test_sizes_that_fit_are_accepted(flags: dict[str, Any]) -> None:
    assert found(spec(flags=flags)) == []


@pytest.mark.parametrize(("flags", "code", "flag"), REJECTED)
def test_wrong_sizes_are_rejected(flags: dict[str, Any], code: str, flag: str) -> None:
    assert (code, f"flags.{flag}") in [(code, path.replace("-", "_")) for code, path in found(spec(flags=flags))]


def test_groups_of_an_elastic_job_fit_into_a_host() -> None:
    elastic = {"min_hosts": 1, "max_hosts": 3}
    assert found(spec(hosts=3, elastic=elastic, flags={"parallelism": "shard=2"})) == []
    for text in ("shard=6", "data=3,shard=2"):
        job = spec(hosts=3, elastic=elastic, flags={"parallelism": text})
        assert found(job) == [("job.parallelism.elastic", "flags.parallelism")]


def test_language_model_on_xla_is_rejected() -> None:
    assert ("job.recipe.not_on_xla", "recipe") in found(spec(hosts=1, processes=1, runtime="xla"))


def test_sizes_of_users_image_are_not_checked() -> None:
    assert found(spec(flags={"parallelism": "shard=3"}, image="example.com/mine:1")) == []


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("tensor", [1, 2, 3, 4, 8])
def test_stack_and_trainer_accept_the_same_tensor_sizes(preset: Any, tensor: int) -> None:
    text, ranks = f"tensor={tensor}", 24
    job = spec(hosts=1, processes=ranks, flags={"preset": preset, "parallelism": text})
    config = LanguageConfig(preset=preset, parallelism=text)
    assert model_sizes(job)["hidden"] == config.sizes.hidden
    assert divide_ranks(text, ranks).tensor == tensor
    try:
        check_tensor_size(config.sizes, tensor, context=config.context, vocabulary=config.vocabulary)
        expected = []
    except ConfigurationError:
        expected = [("job.parallelism.tensor", "flags.parallelism")]
    assert [problem for problem in found(job) if "parallelism" in problem[0]] == expected
