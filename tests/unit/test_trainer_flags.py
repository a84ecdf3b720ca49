"""Flags of jobs: the stack accepts and rejects the same values as the trainer's own parser."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from trainer.config import parse
from trainer.exit_codes import ConfigurationError
from trainer.language.sizes import Parallelism
from workloads.trainer_flags import ALIASES, GROUP_NAMES, Values, flag_problems


def flag_messages(recipe: str, **flags: Any) -> list[str]:
    """Return the flag and the message of each problem."""
    return [f"{each.path[-1]}: {each.message}" for each in flag_problems(recipe, flags)]


FLAG_TEXTS: dict[str, tuple[list[str], list[str]]] = {
    "job": (["a", "a.b", "a b", "a:b", "$(HOME)", "a" * 255], ["", ".a", "..", "a/b", "a ", "a\nb", "a*", "a" * 256]),
    "profile_steps": (["", "1-1", "3-9"], ["4", "a-b", "15-10", "0-3", "1-1000000001", f"1-{'9' * 20}"]),
    "bucket": (
        ["", "file:///bucket/a", "gs://team", "gs://team_a.b/runs/1", "s3://team-a/my runs"],
        ["gs://b?token=abc", "gs://my bucket/x", "s3://My_Bucket/x", "gs:/x/y", "GS://x/y", "az://x/y", "file:///"],
    ),
    "data_dir": (
        ["/data", "data", "file:///data", "gs://team/a b", "s3://team"],
        ["az://x/y", "http://x/y", "gs:/x/y", "s3://My_Bucket/x", "file://x", "s3://", "simplecache::s3://team/x"],
    ),
    "threads": (["0", "1024"], ["-1", "1025", "many"]),
    "learning_rate": (["1e-9", "1e37"], ["0", "1.1e37", "nan", "inf"]),
    "warmup": (["0", "1"], ["-0.1", "1.1"]),
    "optimizer": (["adamw", "sgd"], ["lion"]),
}
"""Flag -> accepted texts, rejected texts."""
REQUIRED_FLAGS = ("--no-fake-data", "--data-dir=/data", "--bucket=file:///bucket")
"""Flags that the flags of `FLAG_TEXTS` require."""


@pytest.mark.parametrize("name", FLAG_TEXTS)
def test_stack_and_trainer_accept_the_same_flag_texts(name: str) -> None:
    accepted, rejected = FLAG_TEXTS[name]
    assert [text for text in accepted if flag_messages("imagenet", **{name: text})] == []
    assert [text for text in rejected if not flag_messages("imagenet", **{name: text})] == []
    for text in accepted:
        parse(["imagenet", *REQUIRED_FLAGS, f"--{name}={text}"] if text else ["imagenet", f"--{name}="])
    for text in rejected:
        with pytest.raises(ConfigurationError, match=rf"{name} = |{name.replace('_', '-')}"):
            parse(["imagenet", *REQUIRED_FLAGS, f"--{name}={text}"])


def test_flag_data_dir_of_digits_is_local_folder() -> None:
    assert flag_messages("digits", data_dir="s3://team/digits")
    assert flag_messages("digits", data_dir="")
    assert flag_messages("digits", data_dir="/data") == []


@pytest.mark.parametrize("alias", ALIASES)
def test_flag_alias_is_accepted_by_trainer(alias: str) -> None:
    given = "resnet18" if alias == "model" else "1"
    value: Values = {alias: given}
    assert list(flag_problems("imagenet", value)) == []
    parse(["imagenet", f"--{alias}={given}"])


@pytest.mark.parametrize(
    ("recipe", "flags", "code", "flag"),
    [
        ("digits", {"epoch": 3}, "unknown", "epoch"),
        ("digits", {"arch": "resnet18"}, "only_for_other_recipe", "arch"),
        ("digits", {"image-size": 64}, "only_for_other_recipe", "image-size"),
        ("imagenet", {"fake": True}, "unknown", "fake"),
        ("digits", {"no-augment": True}, "negated", "no-augment"),
        ("digits", {"batch-size": 2.5}, "wrong_value", "batch-size"),
        ("digits", {"epochs": True}, "wrong_value", "epochs"),
        ("digits", {"wandb": False}, "wrong_value", "wandb"),
        ("digits", {"lr": 1, "learning_rate": 2}, "duplicate", "learning_rate"),
        ("digits", {"bucket": "my-bucket"}, "wrong_value", "bucket"),
        ("imagenet", {"arch": "ResNet-50"}, "wrong_value", "arch"),
        ("digits", {"profile_port": 70_000}, "wrong_value", "profile_port"),
    ],
)
def test_flag_problem_has_code_and_path(recipe: str, flags: dict[str, Any], code: str, flag: str) -> None:
    found = [(each.code, each.path) for each in flag_problems(recipe, flags)]
    assert found == [(f"job.flags.{code}", ("flags", flag))]


def test_flag_message_names_allowed_values() -> None:
    assert flag_messages("digits", epoch=3)[0].startswith("epoch: is not a flag of recipe digits; write epochs")
    assert flag_messages("digits", wandb=False)[0].startswith("wandb: must be one of off, auto, offline, online")


@pytest.mark.parametrize("arch", ["resnet50", "timm/resnet50", "vit_base_patch16_224.augreg_in21k", "swin_v2_t"])
def test_flag_arch_accepts_torchvision_and_timm(arch: str) -> None:
    assert flag_messages("imagenet", arch=arch) == []


def test_flag_arch_of_user_image_is_not_checked() -> None:
    assert list(flag_problems("imagenet", {"arch": "Mine"}, has_user_image=True)) == []
    assert list(flag_problems("imagenet", {"arch": "Mine"}))


def test_flag_number_as_text_is_accepted() -> None:
    assert flag_messages("digits", learning_rate="1e-3", epochs="3") == []


@pytest.mark.parametrize("name", ["warmup", "decay"])
def test_share_above_one_is_rejected_by_stack_and_trainer(name: str) -> None:
    message = f"{name}: must be a number from 0 to 1, a share of the run's steps"
    assert flag_messages("digits", **{name: 500}) == [message]
    with pytest.raises(ConfigurationError, match="must be from 0 to 1, a share of the run's steps"):
        parse(["digits", f"--{name}=500"])


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("shard=0", "shard is 0, which must be from 1 to 999999, or auto; write sizes of the groups"),
        ("data=2,shard=many", "shard is many, which must be from 1 to 999999, or auto; write sizes of the groups"),
        ("pipeline=2", "pipeline is not a group; write sizes of the groups data, shard and tensor, such as shard=8"),
        ("shard:4", "must be sizes of the groups"),
    ],
)
def test_invalid_parallelism_has_message(text: str, problem: str) -> None:
    (message,) = flag_messages("language", parallelism=text)
    assert message.startswith(f"parallelism: {problem}")


def test_group_names_equal_those_of_trainer() -> None:
    assert set(GROUP_NAMES) == {field.name for field in fields(Parallelism)}
