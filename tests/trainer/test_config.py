"""Flags of the trainer: recorded table, spellings, defaults, and errors for invalid flags."""

from __future__ import annotations

import dataclasses
import re

import pytest

from docs.flag_table import TARGET, flag_table
from tests.trainer.processes import run_python
from trainer.config import DigitsConfig, ImagenetConfig, LanguageConfig, TrainConfig, parse
from trainer.exit_codes import BAD_CONFIGURATION, DIVERGED, ConfigurationError, diverged


def test_flags_equal_the_recorded_table() -> None:
    assert flag_table() == TARGET.read_text(encoding="ascii"), (
        "the trainer's flags changed, and jobs of users depend on them; describe the change in CHANGELOG.md and run "
        "`python -m docs.flag_table`"
    )


def test_flags_in_every_spelling_are_parsed() -> None:
    config = parse(["digits", "--epochs=3", "--batch_size", "16", "--no-augment", "--lr=0.5"])
    assert isinstance(config, DigitsConfig)
    assert (config.epochs, config.batch_size, config.augment, config.learning_rate) == (3, 16, False, 0.5)


def test_aliases_of_flags_are_accepted() -> None:
    config = parse(["imagenet", "--fake_data", "--model=resnet18", "--num_epochs=7", "--log_steps=5"])
    assert isinstance(config, ImagenetConfig)
    assert (config.arch, config.epochs, config.log_steps, config.fake_data) == ("resnet18", 7, 5, True)


def test_variables_of_a_pod_set_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINYARD_BUCKET", "file:///bucket")
    monkeypatch.setenv("TRAINYARD_JOB", "night")
    monkeypatch.setenv("TRAINYARD_DATA", "/digits")
    config = parse(["digits"])
    assert isinstance(config, DigitsConfig)
    assert (config.bucket, config.job, config.data_dir) == ("file:///bucket", "night", "/digits")


@pytest.mark.parametrize("config", [DigitsConfig, ImagenetConfig, LanguageConfig])
def test_help_describes_every_setting(config: type[TrainConfig], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        parse([config.__name__.removesuffix("Config").lower(), "--help"])
    assert end.value.code == 0
    help_text = capsys.readouterr().out
    for field in dataclasses.fields(config):
        described = re.search(rf"--(no-)?{field.name.replace('_', '-')}\b.*?\(default:", help_text, re.DOTALL)
        assert described, field.name
        assert re.search(r"[a-z]{3,} [a-z]+", described[0]), f"{field.name} has no description"


INVALID_FLAGS: list[tuple[list[str], list[str]]] = [
    (["digits", "--epochs=0"], ["epochs = 0", "1 to 1000000000", "--epochs"]),
    (["digits", "--epochs=many"], ["--epochs", "'many'"]),
    (["digits", "--epoch=3"], ["--epoch=3", "--epochs"]),
    (["digits", "--learning-rate=0"], ["learning_rate = 0.0", "more than 0"]),
    (["digits", "--warmup=1.5"], ["warmup = 1.5", "0 to 1"]),
    (["digits", "--device=tpu"], ["'tpu'", "--device", "'cuda'"]),
    (["digits", "--optimizer=lion"], ["'lion'", "--optimizer", "'adamw'"]),
    (["digits", "--seed=-1"], ["seed = -1", "0 to"]),
    (["digits", "--job=../other"], ["job = '../other'", "one folder name"]),
    (["imagenet", "--no-fake-data", "--data-dir="], ["data_dir", "a folder of images"]),
    (["imagenet", "--profile-steps=9-3"], ["profile_steps = '9-3'", "1 <= A <= B"]),
    (["imagenet", "--num-classes=1"], ["num_classes = 1", "2 to 1000000"]),
    (["imagenet", "--num-classes=1000001"], ["num_classes = 1000001", "2 to 1000000", "--num-classes"]),
    (["imagenet", "--data-dir=/data"], ["data_dir = '/data'", "--no-fake-data"]),
    (["imagenet", "--stream"], ["stream = True", "--no-fake-data"]),
    (["imagenet", "--cache-dir=/cache"], ["cache_dir = '/cache'", "leave --cache-dir out"]),
    (["digits", "--bucket=ftp://a/b"], ["bucket = 'ftp://a/b'", "gs://BUCKET/FOLDER"]),
    (["digits", "--bucket=file://tmp/a"], ["bucket = 'file://tmp/a'", "file:///FOLDER"]),
    (["digits", "--bucket=s3://"], ["bucket = 's3://'"]),
    (["digits", "--bucket=file:///a::gs://b"], ["bucket = 'file:///a::gs://b'", "no '::'"]),
    (["imagenet", "--no-fake-data", "--data-dir=/a::b"], ["data_dir = '/a::b'", "no '::'"]),
    (["digits", "--weight-decay=1e38"], ["weight_decay = 1e+38", "0 to 1e+37"]),
    (["digits", "--bucket=/tmp/a"], ["bucket = '/tmp/a'", "file:///FOLDER"]),
    (["digits", "--threads=1025"], ["threads = 1025", "0 to 1024", "--threads"]),
    (["digits", "--process-group-timeout=31622401"], ["process_group_timeout = 31622401.0", "at most 31622400"]),
    (["digits", "--learning-rate=1e38"], ["learning_rate = 1e+38", "more than 0 and at most 1e+37"]),
    (["digits", "--accumulate=65"], ["accumulate = 65", "at most batch_size, 64", "--accumulate", "--batch-size"]),
    (["imagenet", "--profile-steps=1-99999999999999999999"], ["profile_steps = '1-9999", "B <= 1000000000"]),
    (["digits", "--bucket=", "--profile-steps=3-5"], ["profile_steps = '3-5'", "--bucket", "--profile-steps"]),
    (["digits", "--bucket=", "--wandb=offline"], ["wandb = 'offline'", "give --bucket too", "--wandb"]),
    (["digits", r"--job=a\b"], [r"job = 'a\\b'", "one folder name", "--job"]),
    (["digits", "--job=run*"], ["job = 'run*'", r"without /\*?[]#% or '::'"]),
    (["digits", "--job=a\udc80"], ["job = 'a\\udc80'"]),
    (["digits", f"--job={'a' * 256}"], ["job = 'aaa", "at most 255 bytes", "a shorter name"]),
    (
        ["digits", "--job=profiles"],
        ["job = 'profiles'", "a name other than checkpoints and profiles", "another name"],
    ),
    (["cifar"], ["RECIPE = 'cifar'", "digits or imagenet or language or export"]),
    ([], ["digits", "imagenet"]),
]
"""Flags, and texts that the error must contain."""


@pytest.mark.parametrize(
    ("flags", "texts"), INVALID_FLAGS, ids=[" ".join(flags)[:40].replace("::", ":") for flags, _ in INVALID_FLAGS]
)
def test_invalid_flags_are_rejected_with_allowed_values(flags: list[str], texts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(flags)
    error = str(caught.value)
    assert [text for text in texts if text not in error] == [], error
    assert "\n" not in error
    assert error.isascii()


@pytest.mark.parametrize("key", ["warmup", "label_smoothing", "learning_rate", "weight_decay", "keep_hours"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_number_that_is_not_finite_is_rejected(key: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{key} = {value}"):
        parse(["digits", f"--{key.replace('_', '-')}={value}"])


@pytest.mark.parametrize(
    ("flag", "error"),
    [("--epochs=0", "error: epochs = 0"), (b"--job=a\x80", "error: job = 'a\\udc80'")],
    ids=["number", "not UTF-8"],
)
def test_invalid_flag_ends_process_with_its_exit_code(flag: str | bytes, error: str) -> None:
    result = run_python("-m", "trainer", "digits", flag)
    assert result.returncode == BAD_CONFIGURATION
    assert result.stdout == ""
    assert result.stderr.startswith(error)
    assert result.stderr.count("\n") == 1


def test_error_of_a_diverged_run_names_its_step_and_learning_rate() -> None:
    error = diverged(7, 0.25)
    assert error.exit_code == DIVERGED
    assert re.search(r"\bstep 7\b.*\b0\.25\b", str(error))
