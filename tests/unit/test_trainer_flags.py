"""Flags of jobs are validated by the table that the trainer generates. Errors contain a remedy."""

from __future__ import annotations

from typing import Any

import pytest

from trainer.config import parse
from trainer.exit_codes import ConfigurationError
from workloads.trainer_flags import ALIASES, Values, flag_problems

MODEL = "must be a classifier of torchvision or timm, such as resnet50"


def refused(recipe: str, **flags: Any) -> list[str]:
    return [f"{each.path[-1]}: {each.message}" for each in flag_problems(recipe, flags)]


WORDS: dict[str, tuple[list[str], list[str]]] = {
    "job": (
        [
            "a",
            "a.b",
            "a b",
            "-a_b",
            "a:b",
            "a@b=c,d+e",
            "$(HOME)",
            "gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n",
            "a" * 255,
        ],
        [
            *("", ".a", "..", "a/b", "a ", " a", "a\nb", "a\\b", "a*", "a?", "a[0]", "a]", "a#1", "a%2fb", "a::b"),
            *("a\N{NO-BREAK SPACE}", "a\N{LINE SEPARATOR}b", "a\udc80", "a" * 256),
            "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 128,
        ],
    ),
    "profile_steps": (
        ["", "1-1", "3-9", "1-1000000000"],
        ["4", "a-b", f"1-{'9' * 20}", "1-\N{ARABIC-INDIC DIGIT TWO}"],
    ),
    "bucket": (
        ["", "file:///bucket/a", "gs://team", "gs://team_a.b/runs/1", "s3://team-a/my runs", "file:///a#b"],
        [
            *(
                "gs://b?token=abc",
                "gs://my bucket/x",
                "gs://b/x ",
                "s3://My_Bucket/x",
                "s3://a_b",
                "gs:/x/y",
                "GS://x/y",
            ),
            *("az://x/y", "file:///a ", "gs://b/x#y", "s3://-a", "gs://b\n", "file:///", "file:///a::gs://b"),
            *("gs://b/x::file:///a", "s3://team/a::b", "file:///a\udc80"),
        ],
    ),
    "data_dir": (
        ["/data", "data", "file:///data", "gs://team/a b", "s3://team", "az://team/a"],
        [
            *("azure://x", "hdfs://x/y", "http://x/y", "GS://x/y", "gs:/x/y", "s3://My_Bucket/x", "file://x", "s3://"),
            *("gs://b/x?y", "gs://b/x ", "gs://b/x::y", "/data::y", "simplecache::s3://team/x"),
        ],
    ),
    "threads": (["0", "1024"], ["-1", "1025", "many", "nan", "inf", "1" * 400]),
    "learning_rate": (["1e-9", "1e37"], ["0", "1.1e37", "nan", "inf"]),
    "warmup": (["0", "1"], ["-0.1", "1.1", "nan"]),
    "optimizer": (["adamw", "sgd"], ["lion"]),
}
"""Flag -> texts that are allowed, and texts that are not."""
PAIRS = ("--no-fake-data", "--data-dir=/data", "--bucket=file:///bucket")
"""Flags that other flags require."""


@pytest.mark.parametrize("name", WORDS)
def test_stack_and_trainer_accept_the_same_texts(name: str) -> None:
    right, wrong = WORDS[name]
    assert [text for text in right if refused("imagenet", **{name: text})] == []
    assert [text for text in wrong if not refused("imagenet", **{name: text})] == []
    for text in right:
        parse(["imagenet", *PAIRS, f"--{name}={text}"] if text else ["imagenet", f"--{name}="])
    for text in wrong:
        with pytest.raises(ConfigurationError, match=rf"{name} is|{name.replace('_', '-')}"):
            parse(["imagenet", *PAIRS, f"--{name}={text}"])


def test_folder_of_digits_is_not_a_url() -> None:
    assert refused("digits", data_dir="s3://team/digits")
    assert refused("digits", data_dir="")
    assert refused("digits", data_dir="/data") == []


@pytest.mark.parametrize("alias", ALIASES)
def test_the_trainer_knows_each_alias(alias: str) -> None:
    given = "resnet18" if alias == "model" else "1"
    value: Values = {alias: given}
    assert list(flag_problems("imagenet", value)) == []
    parse(["imagenet", f"--{alias}={given}"])


@pytest.mark.parametrize(
    ("recipe", "flags", "code", "flag"),
    [
        ("digits", {"epoch": 3}, "unknown", "epoch"),
        ("digits", {"arch": "resnet18"}, "of_other_recipe", "arch"),
        ("digits", {"model": "resnet18"}, "of_other_recipe", "model"),
        ("digits", {"image-size": 64}, "of_other_recipe", "image-size"),
        ("digits", {"max_steps": 3}, "unknown", "max_steps"),
        ("digits", {"checkpoint_dir": "/a"}, "unknown", "checkpoint_dir"),
        ("digits", {"num_epoch": 3}, "unknown", "num_epoch"),
        ("imagenet", {"augment": True}, "of_other_recipe", "augment"),
        ("imagenet", {"fake": True}, "unknown", "fake"),
        ("digits", {"no-augment": True}, "negated", "no-augment"),
        ("digits", {"batch-size": 2.5}, "wrong_value", "batch-size"),
        ("digits", {"epochs": True}, "wrong_value", "epochs"),
        ("digits", {"amp": "yes"}, "wrong_value", "amp"),
        ("digits", {"wandb": False}, "wrong_value", "wandb"),
        ("digits", {"lr": 1, "learning_rate": 2}, "duplicate", "learning_rate"),
        ("digits", {"learning_rate": float("nan")}, "wrong_value", "learning_rate"),
        ("digits", {"learning_rate": 10**400}, "wrong_value", "learning_rate"),
        ("digits", {"seed": 2**31}, "wrong_value", "seed"),
        ("digits", {"bucket": "my-bucket"}, "wrong_value", "bucket"),
        ("imagenet", {"arch": "ResNet-50"}, "wrong_value", "arch"),
        ("digits", {"batch_size": 99999999999999999999}, "wrong_value", "batch_size"),
        ("imagenet", {"cache_dir": "/tmp/\0"}, "wrong_value", "cache_dir"),
        ("digits", {"profile_port": 70_000}, "wrong_value", "profile_port"),
    ],
)
def test_refused(recipe: str, flags: dict[str, Any], code: str, flag: str) -> None:
    found = [(each.code, each.path) for each in flag_problems(recipe, flags)]
    assert found == [(f"job.flags.{code}", ("flags", flag))]


@pytest.mark.parametrize(
    ("recipe", "flags", "said"),
    [
        ("digits", {"epoch": 3}, "epoch: is not a flag of recipe digits; write epochs"),
        ("digits", {"max_steps": 3}, "max_steps: is not a flag of recipe digits; write one of epochs, batch_size"),
        ("digits", {"epochs": True}, "epochs: must be an integer from 1 to 1000000000, in quotes"),
        ("digits", {"wandb": False}, "wandb: must be one of off, auto, offline, online, in quotes"),
        ("digits", {"learning_rate": 10**400}, "learning_rate: must be a number above 0, at most 1e+37"),
        ("imagenet", {"arch": "ResNet-50"}, f"arch: {MODEL}"),
    ],
)
def test_message_names_what_is_allowed(recipe: str, flags: dict[str, Any], said: str) -> None:
    assert refused(recipe, **flags)[0].startswith(said)


@pytest.mark.parametrize("arch", ["resnet50", "timm/resnet50", "vit_base_patch16_224.augreg_in21k", "swin_v2_t"])
def test_models_of_both_libraries(arch: str) -> None:
    assert refused("imagenet", arch=arch) == []


def test_image_of_the_user_may_have_models_of_other_names() -> None:
    assert list(flag_problems("imagenet", {"arch": "Mine"}, has_user_image=True)) == []
    assert list(flag_problems("imagenet", {"arch": "Mine"}))


def test_what_yaml_takes_for_a_text_is_still_a_number() -> None:
    assert refused("digits", learning_rate="1e-3", epochs="3") == []
