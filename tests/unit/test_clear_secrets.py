"""A secret in clear is refused wherever it is written, by name or by looks, and never shown; what is none is taken."""

from __future__ import annotations

import pytest

from stack_config import parse
from tests.unit.refused import cloud

AWS = "AKIA" + "Q" * 16
GITHUB = "ghp_" + "a1" * 18
HUGGING_FACE = "hf_" + "b2" * 17
GOOGLE = "AIza" + "c" * 35
WEB = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"


def parsed(**job: object) -> None:
    """Read the settings of a stack with a job."""
    parse(cloud(recipe=None, script="/opt/train.py", image="a:1", **job))


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("WANDB_API_KEY", "abc", "a secret"),
        ("DB_PASSWORD", "hunter2", "a secret"),
        ("TOKEN", "abcdefgh", "a secret"),
        ("AWS", AWS, "an access key of AWS"),
        ("X", GITHUB, "a token of GitHub"),
        ("X", HUGGING_FACE, "a token of Hugging Face"),
        ("X", f"key={GOOGLE}", "an API key of Google"),
        ("X", WEB, "a JSON web token"),
        ("X", "sk-proj-0123456789abcdefghij", "an API key"),
        ("X", "-----BEGIN RSA PRIVATE KEY-----\nMIIE", "a private key"),
        ("X", '{"private_key": "-----BEGIN PRIVATE KEY-----"}', "a private key"),
        ("DATABASE", "postgres://me:hunter2@host/db", "an address with a password"),
        ("HOOK", "https://hooks.slack.com/services/T0/B0/X", "a token of Slack"),
    ],
)
def test_a_variable_is_refused(name: str, value: str, what: str) -> None:
    with pytest.raises(
        ValueError, match=rf"jobs\[0\].environment.{name}: is {what} in clear; write `secrets:"
    ) as refused:
        parsed(environment={name: value})
    assert value not in str(refused.value)


@pytest.mark.parametrize(
    ("args", "index"),
    [
        ([f"--token={GITHUB}"], 0),
        (["--epochs", "3", "--hf-token", "abcdefgh"], 3),
        (["--password=hunter2"], 0),
        (["--wandb_api_key", "0123456789abcdef0123456789abcdef01234567"], 1),
        (["--wandb-key=0123456789abcdef0123456789abcdef01234567"], 0),
        ([f"https://me:{GITHUB}@github.com/a/b"], 0),
    ],
)
def test_an_argument_is_refused(args: list[str], index: int) -> None:
    with pytest.raises(ValueError, match=rf"jobs\[0\].args\[{index}\]: is .* in clear") as refused:
        parsed(args=args)
    assert args[index].rpartition("=")[2] not in str(refused.value)


def test_what_is_no_secret_is_taken() -> None:
    parsed(
        args=[
            "--max-tokens",
            "512",
            "--pad-token",
            "<pad>",
            "--token=$(HF)",
            "--tokenizer",
            "gpt2",
            "--token-file=/run/t",
            "--sort-key=label_of_the_whole_picture",
            "--cache-key",
            "imagenet",
        ],
        environment={
            "TOKENIZERS_PARALLELISM": "false",
            "GOOGLE_APPLICATION_CREDENTIALS": "/var/run/key.json",
            "PROXY": "http://proxy.example.com:3128",
            "COMMIT": "0123456789abcdef0123456789abcdef01234567",
            "MAX_TOKEN": "512",
        },
    )
