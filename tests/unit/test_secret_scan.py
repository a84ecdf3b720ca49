"""Validation rejects secrets in plain text by name or format, shows no secret in errors, and accepts other values."""

from __future__ import annotations

import pytest

from settings.problem import dotted, token_kind
from settings.problems import ConfigError
from stack.config import parse
from tests.unit.stack_settings import job_on_cluster

AWS = "AKIA" + "Q" * 16
GITHUB = "ghp_" + "a1" * 18
HUGGING_FACE = "hf_" + "b2" * 17
GOOGLE = "AIza" + "c" * 35
WANDB = "0123abcd" * 5
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
SECRETS = (AWS, GITHUB, HUGGING_FACE, GOOGLE, WANDB, LETTERS, "hunter2", "abcdefgh", "1234567890", "EXAMPLEKEY")
"""Secrets that error messages must not show."""
SCRIPT = {"recipe": None, "script": "/opt/train.py", "image": "a:1"}


def error_of(**job: object) -> ConfigError:
    """Return the error of an invalid job."""
    with pytest.raises(ConfigError) as caught:
        parse(job_on_cluster(**job))
    return caught.value


def problem(**job: object) -> tuple[str, str]:
    """Return code and path of the only problem of a job."""
    (found,) = error_of(**job).problems
    return found.code, dotted(found.path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS", AWS),
        ("X", GITHUB),
        ("X", HUGGING_FACE),
        ("X", f"key={GOOGLE}"),
        ("X", "-----BEGIN RSA PRIVATE KEY-----\nMIIE"),
        ("X", f"wandb_v1_{LETTERS}"),
        ("X", f"AccountName=a;AccountKey={LETTERS * 2}=="),
        ("DATABASE", "postgres://me:hunter2@host/db"),
        ("CACHE", "redis://:hunter2@host/0"),
        ("WANDB", WANDB),
        ("WANDB_API_KEY", "abc"),
        ("OPENAI_KEY", f"sk-{LETTERS}"),
        ("S3_KEY", "wJalrXUtnFEMI1K7MDENG/bPxRfiCYEXAMPLEKEY"),
        ("ACCESS_TOKEN", "12345678"),
        ("MY_API_KEY", "1234567890"),
        ("AUTH", "Bearer hunter2"),
        ("JAVA_OPTS", "-Xmx4g -Dpassword=hunter2"),
        ("URL", "https://host/x?page=3&api_key=hunter2"),
        ("CONFIG", '{"db": {"password": "hunter2"}}'),
        ("DB_PASSWORD", "hunter2"),
        ("DB_PASS", "hunter2"),
        ("MYSQL_PWD", "hunter2"),
        ("GIT_CREDENTIAL", "hunter2"),
        ("MY_API_KEY_2", "hunter2"),
        ("SECRET_KEY", "hunter2"),
        ("SSH_KEY", "hunter2"),
    ],
)
def test_secret_in_environment_is_rejected(name: str, value: str) -> None:
    assert problem(**SCRIPT, environment={name: value}) == ("job.environment.secret", f"jobs[0].environment.{name}")
    error = str(error_of(**SCRIPT, environment={name: value}))
    assert [secret for secret in (value, *SECRETS) if secret in error] == []


@pytest.mark.parametrize(
    ("args", "index"),
    [
        ([f"--token={GITHUB}"], 0),
        (["--epochs", "3", "--hf-token", "abcdefgh"], 3),
        (["--wandb_api_key", WANDB], 1),
        (["--wandb=" + WANDB], 0),
        ([f"https://me:{GITHUB}@github.com/a/b"], 0),
        (["--db-pass=hunter2"], 0),
        (["--api-key", "1234567890"], 1),
        (["--header=Authorization: hunter2"], 0),
        (["-H", "X-Api-Key: hunter2"], 1),
        (["Authorization: Bearer hunter2"], 0),
        (["+wandb.api_key=hunter2"], 0),
        (["--env=DB_PASSWORD=hunter2"], 0),
        (["--dsn", "host=db user=me password=hunter2"], 1),
        (["-c", "export WANDB_API_KEY='hunter2'; train"], 1),
        (["--config", "{'token':'hunter2'}"], 1),
    ],
)
def test_secret_in_arguments_is_rejected(args: list[str], index: int) -> None:
    assert problem(**SCRIPT, args=args) == ("job.args.secret", f"jobs[0].args[{index}]")
    error = str(error_of(**SCRIPT, args=args))
    assert [secret for secret in (args[index].rpartition("=")[2], *SECRETS) if secret in error] == []


def test_text_like_a_secret_is_accepted() -> None:
    args = [
        *("--max-tokens", "512", "--pad-token", "<pad>", "--eos-token", "[EOS]", "--use-auth-token", "--verbose"),
        *("--token=$(HF)", "wandb.api_key=${oc.env:WANDB_API_KEY}", "--env=DB_PASSWORD=$(DB_PASSWORD)"),
        '{"token": null, "api_key": "${KEY}", "password": "", "secret": {"least": 3}}',
        *("--token-file=/run/t", "--sort-key=label_of_the_whole_picture", "--cache-key", "imagenet"),
        *("--header", "Accept: text/plain", "--columns=token:text", "--low-pass=300", "--commit", WANDB),
    ]
    environment = {
        "SORT_KEY": "label",
        "S3_KEY": "data/train.tar",
        "S3_OBJECT_KEY": "ILSVRC2012/train/shard-0001",
        "PAD_TOKEN": "<pad>",
        "STOP_TOKEN": "end",
        "MAX_TOKEN": "512",
        "PRNG_KEY": "42",
        "SERVER_KEY": "certificates/server.pem",
        "TITLE": "Basic training",
        "CREDENTIALS": "aws.json",
        "TOKENIZERS_PARALLELISM": "false",
        "GOOGLE_APPLICATION_CREDENTIALS": "/var/run/key.json",
        "PROXY": "http://proxy.example.com:3128",
        "COMMIT": "0123456789abcdef0123456789abcdef01234567",
        "MIRROR": "https://somebody_with_a_long_name@example.com/a",
        "IMAGES": "https://example.com/i?sig=low&X-Amz-Signature=none",
        "TOOLS": "npm_config_cache,dckr_pat_,sk_live_demo,nvapi-client,glpat-reader,wandb_v1_runs,dapi,pypi-mirror",
        "VAULT": "hvs.example.com",
        "WANDB": "offline",
    }
    assert parse(job_on_cluster(**SCRIPT, args=args, environment=environment)).jobs


@pytest.mark.parametrize(
    ("name", "value"), [("data_dir", "s3://me:hunter2@b/x"), ("job", GITHUB), ("wandb_api_key", "hunter2")]
)
def test_secret_in_flags_is_rejected(name: str, value: str) -> None:
    assert problem(flags={name: value}) == ("job.flags.secret", f"jobs[0].flags.{name}")
    assert value not in str(error_of(flags={name: value}))


@pytest.mark.parametrize(("scheme", "code"), [("s3", "bucket_url_secret"), ("https", "bucket_url")])
def test_secret_in_bucket_url_is_rejected(scheme: str, code: str) -> None:
    bucket = {"kind": "url", "url": f"{scheme}://me:hunter2@bucket/runs"}
    platform = {"kind": "kubeconfig", "context": "kind", "image": "example.com/trainer:1", "bucket": bucket}
    with pytest.raises(ConfigError) as caught:
        parse({"platform": platform, "jobs": []})
    assert f"settings.{code}" in [each.code for each in caught.value.problems]
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "job",
    [
        {"env": {"WANDB_API_KEY": "hunter2"}},
        {"wandb_api_key": "hunter2"},
        {"script": "https://me:hunter2@example.com/train.py"},
        {"script": "./x.py --password hunter2"},
        {"environment": [{"name": "DB_PASSWORD", "value": "hunter2"}]},
        {"environment": ["DB_PASSWORD=hunter2"]},
        {"environment": "DB_PASSWORD: hunter2"},
        {"environment": {"DB_PASSWORD=hunter2": "1"}},
        {"args": "--lr 0.1 --db-password 'hunter2'"},
        {"image": "bob:hunter2@registry.example/t:1"},
        {"wandb": "hunter2" + WANDB},
    ],
)
def test_secret_in_an_invalid_setting_is_not_shown(job: dict[str, object]) -> None:
    message = str(error_of(**{**SCRIPT, **job}))
    assert "hunter2" not in message
    assert WANDB not in message


@pytest.mark.parametrize("value", ["subnet-0123456789abcdef0", "example.com/team/trainer:1@sha256:" + "0a" * 31, "a:b"])
def test_invalid_value_without_secret_is_shown(value: str) -> None:
    assert value[:24] in str(error_of(**{**SCRIPT, "image": f"{value} "}))


@pytest.mark.parametrize(
    "code",
    [
        'headers = {"Authorization": f"Bearer {token}"}',
        "url = f'postgres://{user}:{password}@host/db'",
        "# Basic training of a model",
    ],
)
def test_code_that_reads_secrets_is_not_a_secret(code: str) -> None:
    assert not token_kind(code)
