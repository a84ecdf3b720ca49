"""The table of the trainer's flags says what the trainer itself says, and wrong ones are refused with a remedy."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from trainer.config import DigitsConfig, ImagenetConfig, TrainConfig, parse
from trainer.exit_codes import ConfigurationError
from workloads.refusals.idle_flags import BATCH_SIZES
from workloads.trainer_flags import ALIASES, FLAGS, Flag, Values, flag_problems

RECIPES: dict[str, type[TrainConfig]] = {"digits": DigitsConfig, "imagenet": ImagenetConfig}
TEXTS = ("text", "bucket", "folder", "steps", "model", "digits", "images")
TYPES = {int: ("integer",), float: ("number",), bool: ("switch",), str: TEXTS}
MODEL = "must be a classifier of torchvision or timm, such as resnet50"
EVERY = [(recipe, name) for recipe, flags in FLAGS.items() for name in flags]


def refused(recipe: str, **flags: Any) -> list[str]:
    return [f"{each.path[-1]}: {each.message}" for each in flag_problems(recipe, flags)]


BESIDE = {
    "accumulate": "--batch-size=1000000000",
    "profile_steps": "--bucket=file:///bucket",
    "wandb": "--bucket=file:///bucket",
}
"""What a flag is right beside only."""


def trainer_refuses(recipe: str, name: str, value: object) -> bool:
    try:
        parse([recipe, f"--{name}={value}", *([BESIDE[name]] if name in BESIDE else [])])
    except ConfigurationError:
        return True
    return False


def test_the_table_has_the_trainers_flags() -> None:
    for recipe, config in RECIPES.items():
        assert set(FLAGS[recipe]) == {field.name for field in dataclasses.fields(config)}
    assert set(FLAGS) == set(RECIPES)


@pytest.mark.parametrize(("recipe", "name"), EVERY)
def test_the_table_has_the_trainers_types(recipe: str, name: str) -> None:
    flag, type_ = FLAGS[recipe][name], get_type_hints(RECIPES[recipe])[name]
    if get_origin(type_) is Literal:
        assert (flag.kind, flag.choices) == ("choice", get_args(type_))
    else:
        assert flag.kind in TYPES[type_]


WORDS: dict[str, tuple[list[str], list[str]]] = {
    "folder": (
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
            *("", ".a", ".", "..", "a/b", "a ", " a", "a\nb", "a\\b", "a*", "a?", "a[0]", "a]", "a#1", "a%2fb", "a::b"),
            *("a\N{NO-BREAK SPACE}", "a\N{LINE SEPARATOR}b", "a\udc80", "a" * 256),
            "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 128,
        ],
    ),
    "steps": (
        ["", "1-1", "3-9", "1-1000000000"],
        ["9-3", "0-3", "4", "a-b", "1-1000000001", f"1-{'9' * 20}", f"1-{'9' * 5000}", "1-\N{ARABIC-INDIC DIGIT TWO}"],
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
    "images": (
        ["/data", "data", "file:///data", "gs://team/a b", "s3://team", "az://team/a"],
        [
            *("azure://x", "hdfs://x/y", "http://x/y", "GS://x/y", "gs:/x/y", "s3://My_Bucket/x", "file://x", "s3://"),
            *("gs://b/x?y", "gs://b/x ", "gs://b/x::y", "/data::y", "simplecache::s3://team/x"),
        ],
    ),
    "digits": (["/data", "data"], ["", "s3://team/digits", "file:///data"]),
}


def edges(flag: Flag) -> tuple[list[str], list[str]]:
    """Values at the bounds of a flag that are allowed, and such that are not."""
    right = [bound for bound in (flag.least, flag.most) if bound is not None]
    wrong = [bound for bound in (flag.above,) if bound is not None]
    wrong += [_next(flag, flag.least, -1)] if flag.least is not None else []
    wrong += [_next(flag, flag.most, 1)] if flag.most is not None else []
    right += [_next(flag, flag.above, 1)] if flag.above is not None else []
    shown = int if flag.kind == "integer" else float
    if flag.kind in WORDS:
        return WORDS[flag.kind]
    return [str(shown(each)) for each in right], [
        *(str(shown(each)) for each in wrong),
        "many",
        "nan",
        "inf",
        "1" * 400,
    ]


def _next(flag: Flag, bound: float, way: int) -> float:
    """The number next to a bound, that way."""
    return bound + way if flag.kind == "integer" else math.nextafter(bound, way * math.inf)


@pytest.mark.parametrize(
    ("recipe", "name"),
    [(recipe, name) for recipe, name in EVERY if FLAGS[recipe][name].kind not in ("text", "switch", "model", "images")],
)
def test_the_table_has_the_trainers_bounds(recipe: str, name: str) -> None:
    flag = FLAGS[recipe][name]
    right, wrong = (list(flag.choices), ["other"]) if flag.kind == "choice" else edges(flag)
    for value in right:
        assert (refused(recipe, **{name: value}), trainer_refuses(recipe, name, value)) == ([], False), value
    for value in wrong:
        assert refused(recipe, **{name: value}), value
        assert trainer_refuses(recipe, name, value), value


def test_the_trainer_takes_the_folders_of_images_that_a_job_may_name() -> None:
    right, wrong = WORDS["images"]
    assert [each for each in right if refused("imagenet", data_dir=each)] == []
    assert [each for each in wrong if not refused("imagenet", data_dir=each)] == []
    for each in right:
        parse(["imagenet", "--no-fake-data", f"--data-dir={each}"])
    for each in wrong:
        with pytest.raises(ConfigurationError, match="data_dir is"):
            parse(["imagenet", "--no-fake-data", f"--data-dir={each}"])


def test_a_batch_has_the_size_that_the_trainer_gives_it() -> None:
    found = {recipe: config.batch_size for recipe in RECIPES if (config := parse([recipe]))}
    assert found == BATCH_SIZES


@pytest.mark.parametrize("alias", ALIASES)
def test_the_trainer_knows_each_alias(alias: str) -> None:
    given = "resnet18" if alias == "model" else "1"
    value: Values = {alias: given}
    assert list(flag_problems("imagenet", value)) == []
    assert not trainer_refuses("imagenet", alias, given)


@pytest.mark.parametrize(
    ("recipe", "flags", "said"),
    [
        ("digits", {"epoch": 3}, "epoch: is no flag of recipe digits; write epochs"),
        ("digits", {"arch": "resnet18"}, "arch: is a flag of recipe imagenet, and not of digits; remove it"),
        ("digits", {"model": "resnet18"}, "model: is a flag of recipe imagenet, and not of digits"),
        ("digits", {"image-size": 64}, "image-size: is a flag of recipe imagenet, and not of digits; remove it"),
        ("digits", {"max_steps": 3}, "max_steps: is no flag of recipe digits; write one of epochs, batch_size"),
        ("digits", {"checkpoint_dir": "/a"}, "checkpoint_dir: is no flag of recipe digits; write one of epochs"),
        ("digits", {"num_epoch": 3}, "num_epoch: is no flag of recipe digits; write epochs"),
        ("imagenet", {"augment": True}, "augment: is a flag of recipe digits, and not of imagenet; remove it"),
        ("imagenet", {"fake": True}, "fake: is no flag of recipe imagenet; write fake_data"),
        ("digits", {"no-augment": True}, "no-augment: is no flag; write `augment: false`"),
        ("digits", {"batch-size": 2.5}, "batch-size: must be an integer from 1 to 1000000000"),
        ("digits", {"epochs": True}, "epochs: must be an integer from 1 to 1000000000, in quotes"),
        ("digits", {"amp": "yes"}, "amp: must be true or false, without quotes"),
        ("digits", {"wandb": False}, "wandb: must be one of off, auto, offline, online, in quotes"),
        ("digits", {"lr": 1, "learning_rate": 2}, "learning_rate: is the same flag as lr; write one of the two"),
        ("digits", {"learning_rate": float("nan")}, "learning_rate: must be a number above 0, at most 1e+37"),
        ("digits", {"learning_rate": 10**400}, "learning_rate: must be a number above 0, at most 1e+37"),
        ("digits", {"seed": 2**31}, "seed: must be an integer from 0 to 2147483647"),
        ("digits", {"bucket": "my-bucket"}, "bucket: must be file:///FOLDER, gs://BUCKET/FOLDER or s3://"),
        ("imagenet", {"arch": "ResNet-50"}, f"arch: {MODEL}; write resnet50"),
        ("imagenet", {"model": "resnet51"}, f"model: {MODEL}; write resnet5"),
        ("imagenet", {"arch": 50}, f"arch: {MODEL}"),
        ("digits", {"batch_size": 99999999999999999999}, "batch_size: must be an integer from 1 to 1000000000"),
        ("imagenet", {"arch": "fasterrcnn_resnet50_fpn"}, f"arch: {MODEL}"),
        ("imagenet", {"cache_dir": "/tmp/\0"}, "cache_dir: must be a text without control characters"),
        ("digits", {"profile_port": 70_000}, "profile_port: must be an integer from 0 to 65535"),
    ],
)
def test_refused(recipe: str, flags: dict[str, Any], said: str) -> None:
    (line,) = [f"{each.path[-1]}: {each.message}" for each in flag_problems(recipe, flags)]
    assert line.startswith(said)


@pytest.mark.parametrize("arch", ["resnet50", "timm/resnet50", "vit_base_patch16_224.augreg_in21k", "swin_v2_t"])
def test_models_of_both_libraries(arch: str) -> None:
    assert refused("imagenet", arch=arch) == []


def test_nobody_knows_the_models_of_an_image_of_the_users() -> None:
    assert list(flag_problems("imagenet", {"arch": "mine"}, own_image=True)) == []
    assert list(flag_problems("imagenet", {"arch": "mine"}))


def test_what_yaml_takes_for_a_text_is_still_a_number() -> None:
    assert refused("digits", learning_rate="1e-3", epochs="3") == []
