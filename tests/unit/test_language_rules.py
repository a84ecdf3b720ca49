"""Rules of the recipe `language`: sizes of the model, groups of ranks, memory of the devices, and texts."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from infra.hardware.gpus import GPUS
from stack.config import parse
from stack.language_estimate import language_estimates
from tests.problems import problems_of
from tests.unit.stack_settings import job
from trainer.config import LanguageConfig
from trainer.config import parse as parse_trainer
from trainer.exit_codes import ConfigurationError
from trainer.language.sizes import PRESETS, check_tensor_size, divide_ranks
from workloads.language_model import GIB, estimated_memory, language_training, least_memory, model_sizes
from workloads.spec import JobSpec, yaml_blocks
from workloads.validation.conflicts import conflicts

LLAMA: dict[str, Any] = {"preset": "8b", "context": 8192, "amp": True, "batch_size": 1, "parallelism": "shard=8"}
LLAMA_BLOCK_ACTIVATIONS = 83_968
"""Activation values that each of the 32 blocks of `LLAMA` keeps for a token. Each value has 2 bytes."""
H100S: dict[str, Any] = {"accelerator": "nvidia-h100-80gb", "accelerators_per_host": 8}
T4S: dict[str, Any] = {"accelerator": "nvidia-tesla-t4", "accelerators_per_host": 8}


def spec(*, hosts: int = 2, processes: int = 2, **values: Any) -> JobSpec:
    """Return a job with recipe `language`, by default on CPUs with 500 TiB of memory."""
    flags = values.pop("flags", {})
    settings = {"name": "a", "recipe": "language", "hosts": hosts, "processes_per_host": processes, "flags": flags}
    return JobSpec.model_validate({**settings, "resources": {"cpu": 1, "memory": "500Ti"}, **values})


def code_and_path(job: JobSpec) -> list[tuple[str, str]]:
    """Return code and path of each problem of a job."""
    return [(problem.code, ".".join(map(str, problem.path))) for problem in conflicts(job)]


ACCEPTED_FLAGS: list[dict[str, Any]] = [
    {},
    {"preset": "70b", "parallelism": "shard=auto"},
    {"parallelism": "data=2,shard=2"},
    {"parallelism": "shard=2,tensor=2", "compile": True},
    {"parallelism": "data=auto,tensor=2"},
    {"width": 96, "heads": 6, "kv-heads": "3"},
    {"tokenizer": "bpe", "vocabulary": 1024, "activation_checkpointing": "selective"},
    {"parallelism": "shard=2,tensor=2", "lora_rank": 8, "init_from": "/bucket/llama"},
    {"lora_rank": "128", "lora_alpha": 32, "init_from": "/bucket/llama"},
    {"lora_rank": "0"},
    {"tokenizer": "s3://team/llama/tokenizer.json", "init_from": "s3://team/llama", "lora_rank": 8, "rope_factor": 32},
]
REJECTED_FLAGS: list[tuple[dict[str, Any], str, str]] = [
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
    ({"lora_rank": 8}, "job.lora_rank.no_weights", "lora_rank"),
    ({"lora_rank": 129, "init_from": "/bucket/llama"}, "job.lora_rank.above_width", "lora_rank"),
    ({"lora_rank": 65, "hidden": 64, "init_from": "/bucket/llama"}, "job.lora_rank.above_width", "lora_rank"),
    ({"lora_alpha": 8}, "job.lora_alpha.no_rank", "lora_alpha"),
    ({"lora-alpha": 8, "lora_rank": 0}, "job.lora_alpha.no_rank", "lora_alpha"),
    ({"lora_rank": -1}, "job.flags.wrong_value", "lora_rank"),
    ({"init_from": "http://example.com/llama"}, "job.flags.wrong_value", "init_from"),
    ({"tokenizer": "words"}, "job.flags.wrong_value", "tokenizer"),
    ({"tokenizer": "gs://Team/tokenizer.json"}, "job.flags.wrong_value", "tokenizer"),
    ({"activation_checkpointing": "some"}, "job.flags.wrong_value", "activation_checkpointing"),
    ({"rope_factor": 0.5}, "job.flags.wrong_value", "rope_factor"),
    ({"arch": "resnet50"}, "job.flags.only_for_other_recipe", "arch"),
]


@pytest.mark.parametrize("flags", ACCEPTED_FLAGS, ids=str)
def test_language_flags_within_the_rules_are_accepted(flags: dict[str, Any]) -> None:
    assert code_and_path(spec(flags=flags)) == []


def test_parallelism_as_a_mapping_becomes_text() -> None:
    groups = {"data": "auto", "tensor": 2}
    assert spec(flags={"parallelism": groups}).flags["parallelism"] == "data=auto,tensor=2"


@pytest.mark.parametrize(("flags", "code", "flag"), REJECTED_FLAGS)
def test_language_flags_that_break_a_rule_are_rejected(flags: dict[str, Any], code: str, flag: str) -> None:
    problems = code_and_path(spec(flags=flags))
    assert (code, f"flags.{flag}") in [(found, path.replace("-", "_")) for found, path in problems]


def test_elastic_job_with_groups_that_need_several_hosts_is_rejected() -> None:
    elastic = {"min_hosts": 1, "max_hosts": 3}
    assert code_and_path(spec(hosts=3, elastic=elastic, flags={"parallelism": "shard=2"})) == []
    for text in ("shard=6", "data=3,shard=2"):
        job = spec(hosts=3, elastic=elastic, flags={"parallelism": text})
        assert code_and_path(job) == [("job.parallelism.elastic", "flags.parallelism")]


def on_tpus(flags: dict[str, Any], **keys: Any) -> list[tuple[str, str]]:
    """Return code and path of each problem of a job on a v5p slice: four hosts with four chips each."""
    return code_and_path(spec(hosts=4, processes=1, accelerator="v5p-32", flags=flags, **keys))


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"parallelism": "shard=16"},
        {"parallelism": "data=4,shard=4"},
        {"parallelism": "shard=2"},
        {"preset": "8b", "parallelism": "shard=16", "activation_checkpointing": "full", "amp": True},
        {"parallelism": "shard=8", "lora_rank": 8, "init_from": "gs://team/llama"},
    ],
    ids=str,
)
def test_groups_of_tpu_chips_are_accepted(flags: dict[str, Any]) -> None:
    assert on_tpus(flags) == []


@pytest.mark.parametrize(
    ("flags", "code", "flag"),
    [
        ({"parallelism": "shard=32"}, "parallelism.product", "parallelism"),
        ({"parallelism": "shard=8,tensor=2"}, "parallelism.tensor_on_xla", "parallelism"),
        ({"parallelism": "tensor=auto"}, "parallelism.tensor_on_xla", "parallelism"),
        ({"parallelism": "shard=16", "width": 24, "heads": 4}, "parallelism.shard_on_xla", "parallelism"),
        ({"activation_checkpointing": "selective"}, "activation_checkpointing.on_xla", "activation_checkpointing"),
    ],
)
def test_groups_that_xla_cannot_form_are_rejected(flags: dict[str, Any], code: str, flag: str) -> None:
    assert (f"job.{code}", f"flags.{flag}") in on_tpus(flags)


def test_shards_with_a_process_for_each_chip_are_rejected() -> None:
    job = spec(hosts=4, processes=4, accelerator="v5p-32", flags={"parallelism": "shard=16"})
    assert ("job.parallelism.shard_on_xla", "flags.parallelism") in code_and_path(job)
    assert code_and_path(spec(hosts=4, processes=4, accelerator="v5p-32")) == []


def test_virtual_devices_of_a_cpu_count_as_devices() -> None:
    keys = {"runtime": "xla", "environment": {"CPU_NUM_DEVICES": "8"}, "flags": {"parallelism": "shard=8"}}
    assert code_and_path(spec(hosts=1, processes=1, **keys)) == []
    keys["environment"] = {}
    assert code_and_path(spec(hosts=1, processes=1, **keys)) == [("job.parallelism.product", "flags.parallelism")]


def test_model_that_exceeds_the_memory_of_chips_is_rejected_with_flags_that_fit() -> None:
    job = spec(hosts=4, processes=1, accelerator="v5p-32", flags={**LLAMA, "batch_size": 4, "parallelism": ""})
    (problem,) = conflicts(job)
    assert problem.code == "job.preset.memory"
    assert "a device of TPU v5p has 95.0 GiB; write `parallelism: shard=" in problem.message
    changes = yaml.safe_load("\n".join(re.findall("`([^`]+)`", problem.message)))
    assert on_tpus({**LLAMA, "batch_size": 4, **changes}) == []


def test_example_language_spmd_fits_a_v5p_slice_by_the_estimate() -> None:
    pool = {"name": "v5p", "accelerator": "v5p-32", "capacity": "spot"}
    platform = {"kind": "gke", "project": "team-1", "zone": "us-east5-a", "pools": [pool]}
    config = parse({"platform": platform, "jobs": yaml.safe_load(yaml_blocks("language-spmd")[1])})
    (estimate,) = language_estimates(config)
    assert (estimate.num_devices, estimate.device, estimate.memory_limit_gib) == (16, "a device of TPU v5p", 95)
    assert estimate.memory_gib == pytest.approx(13, abs=0.5)
    assert estimate.lines()[0].startswith("- language-spmd: 6,981.9 million parameters.")


def test_tpu7x_has_two_devices_a_chip() -> None:
    training = language_training(spec(hosts=1, processes=1, accelerator="tpu7x-8", flags={"batch_size": 16}))
    assert (training.data, training.batch_size) == (8, 2)


def test_attention_on_xla_keeps_a_score_for_each_pair_of_tokens() -> None:
    flags = {**LLAMA, "parallelism": "shard=16", "batch_size": 4}
    training = language_training(spec(hosts=4, processes=1, accelerator="v5p-32", flags=flags))
    assert training.rows == 1
    scores_per_token = 32 * 8192  # Each of 32 attention heads has a score for each of 8192 tokens.
    assert estimated_memory(training).activations == 2 * (LLAMA_BLOCK_ACTIVATIONS + scores_per_token) * 32 * 8192
    assert least_memory(training).activations == 2 * LLAMA_BLOCK_ACTIVATIONS * 32 * 8192


@pytest.mark.parametrize("image", ["cuda12", "frameworks"])
def test_flags_of_a_builtin_image_are_checked(image: str) -> None:
    job = spec(flags={"parallelism": "shard=3"}, image=image)
    assert code_and_path(job) == [("job.parallelism.product", "flags.parallelism")]


def test_flags_of_a_users_image_are_not_checked() -> None:
    assert code_and_path(spec(flags={"parallelism": "shard=3"}, image="example.com/mine:1")) == []


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
    assert [problem for problem in code_and_path(job) if "parallelism" in problem[0]] == expected


TOO_LARGE_TRAININGS: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({**LLAMA, "parallelism": ""}, H100S, "preset", "parallelism: shard=4"),
    ({**LLAMA, "parallelism": "data=8,shard=2", "context": 512}, T4S, "parallelism", "parallelism: shard=16"),
    ({**LLAMA, "preset": "70b", "context": 256}, T4S, "parallelism", "preset: 8b"),
    ({**LLAMA, "batch_size": 8}, H100S, "batch_size", "accumulate: "),
    ({**LLAMA, "context": 262_144}, H100S, "context", "context: "),
    ({"context": 20_000}, {"resources": {"cpu": 1, "memory": "2Gi"}}, "batch_size", "accumulate: "),
    ({"context": 1_000_000}, {"resources": {"cpu": 1, "memory": "2Gi"}}, "context", "context: "),
    ({"preset": "1b", "context": 2}, {"resources": {"cpu": 1, "memory": "2Gi"}}, "preset", "preset: "),
]
"""Flags, the job's other keys, the flag of the problem, and a part of the advice in the message."""


@pytest.mark.parametrize(("flags", "keys", "flag", "advice"), TOO_LARGE_TRAININGS)
def test_training_that_cannot_fit_is_rejected_with_flags_that_fit(
    flags: dict[str, Any], keys: dict[str, Any], flag: str, advice: str
) -> None:
    gpus = keys.get("accelerators_per_host", 2)
    training = spec(hosts=2, processes=gpus, flags=flags, **keys)
    (problem,) = conflicts(training)
    assert (problem.code, problem.path) == (f"job.{flag}.memory", ("flags", flag))
    assert advice in problem.message
    changes = yaml.safe_load("\n".join(re.findall("`([^`]+)`", problem.message)))
    assert code_and_path(spec(hosts=2, processes=gpus, flags={**flags, **changes}, **keys)) == []


@pytest.mark.parametrize("accelerator", [None, *GPUS])
def test_float8_is_rejected_on_hardware_without_it(accelerator: str | None) -> None:
    keys: dict[str, Any] = {"accelerator": accelerator, "accelerators_per_host": 2} if accelerator else {}
    has_float8 = accelerator is not None and GPUS[accelerator].has_float8
    flags = {"float8": "rowwise", "amp": True}
    assert code_and_path(spec(flags=flags, **keys)) == (
        [] if has_float8 else [("job.float8.no_hardware", "flags.float8")]
    )
    assert code_and_path(spec(flags={**flags, "float8": "none"}, **keys)) == []


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ({"amp": False}, "job.float8.no_amp"),
        ({"lora_rank": 8, "init_from": "/bucket/llama"}, "job.float8.lora"),
        ({"context": 100}, "job.float8.context"),
        ({"float8": "delayed"}, "job.flags.wrong_value"),
    ],
)
def test_stack_and_trainer_reject_the_same_flags_with_float8(flags: dict[str, Any], code: str) -> None:
    both = {"float8": "tensorwise", "amp": True, **flags}
    assert code_and_path(spec(processes=8, flags=both, **H100S)) == [(code, "flags.float8")]
    words = [f"--{key.replace('_', '-')}={value}" for key, value in both.items() if key != "amp"]
    with pytest.raises(ConfigurationError):
        parse_trainer(["language", *words, "--amp" if both["amp"] else "--no-amp"])


def test_advice_has_sizes_that_the_tensor_group_divides() -> None:
    keys = {"resources": {"cpu": 1, "memory": "4Gi"}}
    # The preset 100m would fit, but its 4 key-value heads cannot be divided by 8.
    flags: dict[str, Any] = {"preset": "70b", "context": 8, "batch_size": 1, "parallelism": "tensor=8"}
    (problem,) = conflicts(spec(hosts=1, processes=8, flags=flags, **keys))
    assert problem.message.endswith("; raise `resources.memory`, or use more hosts")
    # A context of 12,501 would fit, but the tensor group of 2 does not divide it.
    flags = {"preset": "1m", "context": 50_004, "batch_size": 1, "parallelism": "tensor=2,shard=4"}
    keys = {"resources": {"cpu": 1, "memory": "1600Mi"}}
    (problem,) = conflicts(spec(hosts=1, processes=8, flags={**flags, "activation_checkpointing": "full"}, **keys))
    assert problem.message.endswith("; write `context: 6250`")


def test_published_weights_that_do_not_fit_get_advice_to_use_more_hardware() -> None:
    flags = {**LLAMA, "preset": "70b", "context": 256, "parallelism": "", "init_from": "gs://team/llama"}
    (problem,) = conflicts(spec(hosts=1, processes=8, flags=flags, **T4S))
    assert problem.message.endswith("; use devices with more memory, or more hosts")


def test_least_memory_counts_the_larger_of_recomputed_block_and_logits() -> None:
    flags = {**LLAMA, "activation_checkpointing": "full", "batch_size": 8}
    large_vocabulary, small_vocabulary = (
        least_memory(language_training(spec(hosts=1, processes=8, flags={**flags, "vocabulary": size})))
        for size in (128_256, 320)
    )
    # Factors: bytes per value, rows, tokens of a row, and values per token (32 blocks of width 4096).
    inputs = 2 * 8 * 8192 * 32 * 4096
    block = 2 * 8 * 8192 * LLAMA_BLOCK_ACTIVATIONS
    logits = 10 * 8 * 8192 * 128_256
    assert (large_vocabulary.activations, large_vocabulary.logits) == (inputs, logits)
    assert (small_vocabulary.activations, small_vocabulary.logits) == (inputs + block, 0)


def test_lora_needs_two_thirds_of_the_operations() -> None:
    flags = {"preset": "1b", "context": 4, "init_from": "gs://team/llama"}
    whole, adapted = (language_training(spec(flags={**flags, "lora_rank": rank})) for rank in (0, 8))
    assert adapted.flops_per_token / whole.flops_per_token == pytest.approx(2 / 3, rel=1e-3)


def test_training_too_large_for_any_flags_gets_advice_to_use_more_hardware() -> None:
    keys = {"accelerator": "nvidia-tesla-t4", "accelerators_per_host": 1}
    (problem,) = conflicts(spec(hosts=1, processes=1, flags={"preset": "70b", "layers": 80}, **keys))
    assert problem.message.endswith("; use devices with more memory, or more hosts")


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"amp": True},
        {"amp": True, "compile": True, "parallelism": "shard=4"},
        {"parallelism": "shard=2,tensor=2", "accumulate": 4},
        {"optimizer": "sgd", "context": 1024, "vocabulary": 32768},
    ],
    ids=str,
)
def test_least_memory_is_at_most_estimate(preset: str, flags: dict[str, Any]) -> None:
    training = language_training(spec(flags={"preset": preset, **flags}))
    least, estimate = least_memory(training), estimated_memory(training)
    assert 0 < least.total <= estimate.total
    for name, size in vars(least).items():
        assert size <= vars(estimate)[name], name


def test_estimated_memory_of_preset_8b_equals_a_count_by_hand() -> None:
    # Each weight has 16 bytes of state (https://arxiv.org/abs/1910.02054, section 3.1).
    memory = estimated_memory(language_training(spec(hosts=1, processes=8, flags={**LLAMA, "vocabulary": 128_256})))
    state = memory.weights + memory.gradients + memory.optimizer
    assert state == pytest.approx(16 * 8.03e9 / 8, rel=0.001)
    assert memory.activations == 2 * LLAMA_BLOCK_ACTIVATIONS * 32 * 8192
    assert memory.logits == 10 * 8192 * 128_256
    assert memory.total / GIB == pytest.approx(70, abs=3)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("output", ["preset", "tied", "untied"])
def test_stack_and_trainer_count_the_same_weights_and_operations(preset: Any, output: Any) -> None:
    config = LanguageConfig(preset=preset, output=output, context=512, vocabulary=1000)
    training = language_training(spec(flags={"preset": preset, "output": output, "context": 512, "vocabulary": 1000}))
    sizes, model = config.sizes, training.model
    expected = sizes.flops_per_token(context=512, vocabulary=1000)
    assert model.flops_per_token(training.context) == expected
    lookup = 0 if sizes.is_tied else 1000 * sizes.width
    assert model.weights == sizes.matrix_weights(1000) + lookup


LANGUAGE_JOB = {"recipe": "language", "resources": {"cpu": "1m", "memory": "2Gi"}}


@pytest.mark.parametrize(
    ("folder", "code"),
    [
        ("/opt/trainyard/digits", "no_text"),
        ("tiny-imagenet", "no_text"),
        ("/home/me/texts", "not_in_image"),
        ("/bucket/../texts", "not_in_image"),
    ],
)
def test_folder_without_texts_is_rejected(folder: str, code: str) -> None:
    assert problems_of(job(**LANGUAGE_JOB, flags={"data_dir": folder})) == [
        (f"job.data_dir.{code}", "jobs.0.flags.data_dir")
    ]


@pytest.mark.parametrize("folder", ["/bucket/texts", "file:///bucket/texts", "sotu", "s3://team/texts"])
def test_folder_that_may_have_texts_is_accepted(folder: str) -> None:
    assert parse(job(**LANGUAGE_JOB, flags={"data_dir": folder})).jobs[0].flags == {"data_dir": folder}
