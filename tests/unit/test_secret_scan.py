"""A secret in clear is rejected by its name or form and never shown. Other values are accepted."""

from __future__ import annotations

import pytest

from settings.secret_scan import token_kind
from stack.config import parse
from tests.unit.refused import cloud

AWS = "AKIA" + "Q" * 16
GITHUB = "ghp_" + "a1" * 18
HUGGING_FACE = "hf_" + "b2" * 17
GOOGLE = "AIza" + "c" * 35
WANDB = "0123abcd" * 5
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def parsed(**job: object) -> None:
    """Read the settings of a stack with a job."""
    parse(cloud(**{"recipe": None, "script": "/opt/train.py", "image": "a:1", **job}))


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
        ("X", "-----BEGIN RSA PRIVATE KEY-----\nMIIE", "a private key"),
        ("X", '{"private_key": "-----BEGIN PRIVATE KEY-----"}', "a private key"),
        ("DATABASE", "postgres://me:hunter2@host/db", "an address with a password"),
        ("CACHE", "redis://:hunter2@host/0", "an address with a password"),
        ("MY_SETTING", f"wandb_v1_{LETTERS}", "an API key of Weights & Biases"),
        ("MY_SETTING", f"AccountName=a;AccountKey={LETTERS * 2}==", "a secret"),
        ("WANDB", WANDB, "a secret"),
        ("DB_PASS", "hunter2", "a secret"),
        ("DB_PASSWD", "hunter2", "a secret"),
        ("MYSQL_PWD", "hunter2", "a secret"),
        ("GIT_CREDENTIAL", "hunter2", "a secret"),
        ("AUTH", "Bearer hunter2", "a secret"),
        ("MY_API_KEY", "1234567890", "a secret"),
        ("MY_API_KEY_2", "hunter2", "a secret"),
        ("ACCESS_KEY", "hunter2", "a secret"),
        ("SECRET_KEY", "hunter2", "a secret"),
        ("PRIVATE_KEY", "hunter2", "a secret"),
        ("SSH_KEY", "hunter2", "a secret"),
        ("OPENAI_KEY", f"sk-{LETTERS}", "a secret"),
        ("HF_TOKEN", "hunter2", "a secret"),
        ("GITHUB_TOKEN", "hunter2", "a secret"),
        ("AUTH_TOKEN", "hunter2", "a secret"),
        ("ACCESS_TOKEN", "12345678", "a secret"),
        ("S3_ACCESS_KEY", "hunter2", "a secret"),
        ("JAVA_OPTS", "-Xmx4g -Dpassword=hunter2", "a secret"),
        ("URL", "https://host/x?page=3&api_key=hunter2", "a secret"),
        ("CONFIG", '{"db": {"password": "hunter2"}}', "a secret"),
        ("S3_KEY", "wJalrXUtnFEMI1K7MDENG/bPxRfiCYEXAMPLEKEY", "a secret"),
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
        (["--db-pass=hunter2"], 0),
        (["--db-pass", "hunter2"], 1),
        (["--api-key", "1234567890"], 1),
        (["--header", "Authorization: Bearer hunter2"], 1),
        (["--header=Authorization: hunter2"], 0),
        (["-H", "X-Api-Key: hunter2"], 1),
        (["Authorization: Bearer hunter2"], 0),
        (["+wandb.api_key=hunter2"], 0),
        (["--token", "aHVudGVy=Mg"], 1),
        (["--wandb", WANDB], 1),
        (["--env=DB_PASSWORD=hunter2"], 0),
        (["--dsn", "host=db user=me password=hunter2"], 1),
        (["-c", "export WANDB_API_KEY='hunter2'; train"], 1),
        (["--config", "{'token':'hunter2'}"], 1),
        (["--wandb=" + WANDB], 0),
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
            "wandb.api_key=${oc.env:WANDB_API_KEY}",
            "--env=DB_PASSWORD=$(DB_PASSWORD)",
            '{"token": null, "api_key": "${KEY}", "password": "", "secret": {"least": 3}}',
            "--use-auth-token",
            "--verbose",
            "--tokenizer",
            "gpt2",
            "--token-file=/run/t",
            "--sort-key=label_of_the_whole_picture",
            "--cache-key",
            "imagenet",
            "--pad-token=[PAD]",
            "--eos-token",
            "[EOS]",
            "--bos-token=begin",
            "--sort-key=label",
            "--header",
            "Accept: text/plain",
            "--columns=token:text",
            "--low-pass=300",
            "lr=0.1",
            "--commit",
            WANDB,
            "--wandb",
            "online",
        ],
        environment={
            "SORT_KEY": "label",
            "PARTITION_KEY": "date",
            "PRIMARY_KEY": "id",
            "S3_KEY": "data/train.tar",
            "S3_OBJECT_KEY": "ILSVRC2012/train/shard-0001",
            "EOS_TOKEN": "[EOS]",
            "PAD_TOKEN": "<pad>",
            "STOP_TOKEN": "end",
            "VISION_TOKEN": "50256",
            "PRNG_KEY": "42",
            "SERVER_KEY": "certificates/server.pem",
            "TITLE": "Basic training",
            "CREDENTIALS": "aws.json",
            "TOKENIZERS_PARALLELISM": "false",
            "GOOGLE_APPLICATION_CREDENTIALS": "/var/run/key.json",
            "PROXY": "http://proxy.example.com:3128",
            "COMMIT": "0123456789abcdef0123456789abcdef01234567",
            "URL": "https://example.com:8080/a@b",
            "MAX_TOKEN": "512",
            "MIRROR": "https://somebody_with_a_long_name@example.com/a",
            "IMAGES": "https://example.com/i?sig=low&X-Amz-Signature=none",
            "TOOLS": "npm_config_cache,dckr_pat_,sk_live_demo,nvapi-client,glpat-reader,wandb_v1_runs,dapi,pypi-mirror",
            "MODEL": "SG.small.v2",
            "VAULT": "hvs.example.com",
            "WEBHOOKS": "https://discord.com/api/webhooks",
            "WANDB": "offline",
            "FEATURES": "npm_and_yarn_and_pnpm_are_package_managers_of_javascript",
        },
    )


@pytest.mark.parametrize(
    ("name", "value", "what"),
    [
        ("data_dir", "s3://me:hunter2@b/x", "an address with a password"),
        ("bucket", "s3://me:hunter2@b/x", "an address with a password"),
        ("bucket", "https://me:hunter2@b/x", "an address with a password"),
        ("job", GITHUB, "a token of GitHub"),
        ("wandb_api_key", "hunter2", "a secret"),
    ],
)
def test_a_flag_is_refused(name: str, value: str, what: str) -> None:
    with pytest.raises(ValueError, match=rf"jobs\[0\].flags.{name}: is {what} in clear; remove it, and") as refused:
        parse({"platform": {"kind": "local"}, "jobs": [{"name": "mine", "recipe": "digits", "flags": {name: value}}]})
    assert value not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["s3", "https"])
def test_the_address_of_a_bucket_has_none(scheme: str) -> None:
    bucket = {"kind": "url", "url": f"{scheme}://me:hunter2@bucket/runs"}
    platform = {"kind": "kubeconfig", "context": "kind", "image": "example.com/trainer:1", "bucket": bucket}
    with pytest.raises(ValueError, match=r"platform.bucket.url: ") as refused:
        parse({"platform": platform, "jobs": []})
    assert ("is an address" if scheme == "s3" else "gs:// or s3://") in str(refused.value)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    "job",
    [
        {"env": {"WANDB_API_KEY": "hunter2"}},
        {"wandb_api_key": "hunter2"},
        {"recipe": "digits", "args": ["--password", "hunter2"]},
        {"flags": {"wandb_api_key": "hunter2"}},
        {"script": "https://me:hunter2@example.com/train.py"},
        {"environment": [{"name": "DB_PASSWORD", "value": "hunter2"}]},
        {"environment": ["DB_PASSWORD=hunter2"]},
        {"environment": "DB_PASSWORD: hunter2"},
        {"environment": [{"DB_PASSWORD": "hunter2"}]},
        {"environment": {"DB_PASSWORD:hunter2": None}},
        {"environment": {"DB_PASSWORD=hunter2": "1"}},
        {"args": "--password hunter2"},
        {"args": "--password=hunter2"},
        {"args": "--lr 0.1 --db-password 'hunter2'"},
        {"script": "./x.py --password hunter2"},
        {"image": "bob:hunter2@registry.example/t:1"},
        {"wandb": "hunter2" + WANDB},
        {"environment": "A=1\nDB_PASSWORD: 'hunter2'"},
    ],
)
def test_a_secret_at_a_wrong_place_is_not_shown(job: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"trainyard:jobs\[0\]") as refused:
        parsed(**job)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("job", [{"wandb": WANDB}, {"flags": {"wandb": WANDB}, "recipe": "digits", "script": None}])
def test_a_key_of_weights_and_biases_at_a_wrong_place_is_not_shown(job: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"trainyard:jobs\[0\]") as refused:
        parsed(**job)
    assert WANDB[:16] not in str(refused.value)


@pytest.mark.parametrize("value", ["subnet-0123456789abcdef0", "example.com/team/trainer:1@sha256:" + "0a" * 31, "a:b"])
def test_what_is_no_secret_is_shown(value: str) -> None:
    with pytest.raises(ValueError, match=r"image = ") as refused:
        parsed(image=f"{value} ")
    assert value[:24] in str(refused.value)


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('headers = {"Authorization": f"Bearer {token}"}', False),
        ("url = f'postgres://{user}:{password}@host/db'", False),
        ("# Basic training of a model", False),
    ],
)
def test_a_script_may_read_its_secrets(text: str, secret: bool) -> None:
    assert bool(token_kind(text)) is secret
