"""Secrets in clear: tells by its name or by its looks what nobody should read in a settings file. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

GUARDS = re.compile(
    r"(.*_)?((API|ACCESS|AUTH|SECRET|PRIVATE|SSH|ACCOUNT)_?KEY|(HF|HUB|API|ACCESS|AUTH|BEARER|GITHUB)_?TOKEN|SECRET)"
    r"|TOKEN|(.*_)?(PASS|PWD|AUTHORIZATION)|.*(PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)"
)
"""Names whose values are secrets, of variables, arguments and headers, in capitals and with `_` for `-`."""
TOKEN = re.compile(r".*_TOKEN")
"""Names of which the others are secrets too, but for numbers."""
KEY = re.compile(r"(.*_)?KEY")
"""The same in variables; in arguments only values that look random."""
GUARDS_NOTHING = re.compile(
    r"(.*_)?((SORT|PARTITION|PRIMARY|FOREIGN|CACHE|S3|OBJECT|BUCKET|PUBLIC|GROUP|HASH|INDEX|JOIN|SHARD|ROW|COLUMN|FIELD"
    r"|DATA|DATASET|IMAGE|TEXT|LABEL|FEATURE|INPUT|OUTPUT|TARGET|METRIC|RNG|PRNG)_KEY"
    r"|(PAD|EOS|BOS|UNK|SEP|CLS|MASK|EOT|START|END|STOP|SPECIAL|IMAGE|AUDIO|VIDEO|MAX|MIN|NUM|N|PER)_TOKEN"
    r"|(FIRST|SECOND|LAST|FORWARD|BACKWARD|LOW|HIGH|BAND|MAX|MIN|NUM)_PASS)"
)
"""Names of columns, objects of a bucket, the tokens of a tokenizer, steps: their secrets are seen by their looks."""
RANDOM = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w+/=-]{20,}")
"""Values that look random: long and mixed, not as `label` is."""
RUN = re.compile(r"[A-Za-z0-9+]{16}")
"""What is in them and not in a path: no `/`, `_` or `-` for long."""
NO_SECRET = re.compile(
    r"/[\w./-]+|[\w./-]+\.(json|pem|key|crt|txt|ya?ml)|true|false|none|null|<[^>]*>|\[[A-Z0-9_]{1,16}\]"
    r"|\$\(\w+\)|\$\{[\w.:]+\}|",
    re.IGNORECASE,
)
"""Values that hold no secret under any name: paths, marks of a tokenizer, names of variables, Hydra's too."""
NUMBER = re.compile(r"-?[\d.]+")
COUNT = re.compile(r"\d{1,2}")
"""A number that is too short for a password."""
PAIR = re.compile(r"(?<![\w.-])([\w.-]+)[\"']?\s*[:=]\s+")
"""A name before its value, as YAML or a header has them."""
USER_INFO = re.compile(r"(?<![^\s/:@])[^\s/:@]+:[^\s/@]+@(?!sha256:)")
"""A user and a password before a host, where no scheme says that it is an address."""
CLOUD_ID = re.compile(r"[a-z]+-[0-9a-f]{8,17}")
"""The name that a cloud gives to what it makes."""
HEADER = re.compile(r"([A-Za-z][\w-]*):\s*(\S.*)", re.DOTALL)
"""A header of HTTP, its name and value."""
LOGIN = re.compile(r"(?i:bearer)\s+(?P<token>\S+)|(?i:basic)\s+(?P<basic>(?=\S*(\d|=|[a-z][A-Z]))[\w+/]{6,}=*)")
"""The value of the header Authorization; `basic training` is none."""
OVERRIDE = re.compile(r"\+*([\w.-]+)=(.+)", re.DOTALL)
"""`--token=SECRET`, and Hydra's `+wandb.token=SECRET`."""
ASSIGNED = re.compile(
    r"""(?<![\w.-])([\w.-]+)(?:=|["']\s*:\s*)(?=["']?(?![\[{])((?:\$\{[\w.:]{1,100}\}|[^\s"';&,}])+))"""
)
"""A name and its value inside a text: `password=hunter2`, or `"password": "hunter2"` of JSON."""
WANDB_KEY = re.compile(r"[0-9a-f]{40}")
"""A key of Weights & Biases, which looks like a commit: one only behind its name."""
SHAPES: Mapping[str, re.Pattern[str]] = {
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "an access key of AWS": re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"),
    "an API key of Google": re.compile(r"\bAIza[\w-]{35}"),
    "a token of GitHub": re.compile(r"\b(gh[opsur]_\w{36}|github_pat_\w{22})"),
    "a token of Hugging Face": re.compile(r"\bhf_[A-Za-z0-9]{30}"),
    "a token of Slack": re.compile(r"\bxox[abeoprs]-[\w-]{10}|hooks\.slack\.com/services/\w"),
    "an API key": re.compile(r"\bsk-[\w-]{20}"),
    "a token of GitLab": re.compile(r"\bglpat-[\w-]{20}"),
    "a token of npm": re.compile(r"\bnpm_[A-Za-z0-9]{36}"),
    "a token of Docker": re.compile(r"\bdckr_[op]at_[\w-]{27}"),
    "a key of Stripe": re.compile(r"\b[rs]k_(live|test)_[A-Za-z0-9]{24}"),
    "an API key of SendGrid": re.compile(r"\bSG\.[\w-]{20,24}\.[\w-]{39,50}"),
    "an API key of NVIDIA": re.compile(r"\bnvapi-[\w-]{32}"),
    "a secret of Google": re.compile(r"\bya29\.[\w-]{20}|\bGOCSPX-[\w-]{28}|[?&]X-Goog-Signature=[0-9a-f]{32}"),
    "a token of Databricks": re.compile(r"\bdapi[0-9a-f]{32}"),
    "a token of PyPI": re.compile(r"\bpypi-AgEI[\w-]{32}"),
    "a token of Vault": re.compile(r"\bhv[bsr]\.[\w-]{24}"),
    "an API key of Weights & Biases": re.compile(r"\bwandb_v\d_\w{32}"),
    "a key of Azure": re.compile(r"\b(AccountKey|SharedAccessKey)=[\w+/]{40}|[?&]sig=(?=[\w+/-]*[%\d])[\w%+/-]{40}"),
    "a webhook of Discord": re.compile(r"\bdiscord(app)?\.com/api/webhooks/\d+/[\w-]{20}"),
    "a signed address": re.compile(r"[?&]X-Amz-Signature=[0-9a-f]{64}"),
    "a JSON web token": re.compile(r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\."),
    "an address with a password": re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@]*:(?![{<%*])[^\s/@$]+@"),
    "an address with a token": re.compile(
        r"\b[a-z][a-z0-9+.-]*://(?=[A-Za-z_-]*\d)(?=[\d_-]*[A-Za-z])[\w-]{20,}@", re.ASCII
    ),
    "a login in a header": re.compile(
        r"Authorization[\"']?\s*[:=,]\s*[\"']?(Bearer|Basic)\s+(?=[\w+/=.~-]*\d)[\w+/=.~-]{16}", re.IGNORECASE
    ),
}
"""How the issuers' secrets look.

https://docs.github.com/en/code-security/secret-scanning/introduction/supported-secret-scanning-patterns
"""


def shape(text: str) -> str | None:
    """What secret is in a text by its looks; None where none is seen."""
    return next((name for name, pattern in SHAPES.items() if pattern.search(text)), None)


def looks_random(text: str) -> bool:
    """Whether a text looks like a key that somebody has drawn."""
    return bool(RANDOM.fullmatch(text) and RUN.search(text))


def in_variables(variables: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Names of the variables that have a secret in clear, each with what it is."""
    for name, value in variables.items():
        if not isinstance(value, str):
            continue
        if found := shape(value):
            yield name, found
        elif _is_secret(name, value) or _is_key(name, value) or _has_secret(value):
            yield name, "a secret"


def in_arguments(arguments: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Indices of the arguments that have one: `--token=SECRET`, or `SECRET` after `--token`."""
    before = ""
    for index, argument in enumerate(arguments):
        named = OVERRIDE.fullmatch(argument)
        pairs = [(named[1], named[2])] if named else []
        # After an option comes its value, or another option.
        pairs += [] if argument.startswith("--") else [(before, argument)]
        if found := shape(argument):
            yield index, found
        elif _has_secret(argument) or any(_is_secret(*pair) or _is_in_header(*pair) for pair in pairs):
            yield index, "a secret"
        before = argument if argument.startswith("-") and "=" not in argument else ""


def is_in(value: object, name: str = "") -> bool:
    """Whether a value of the settings, or something in it, may be a secret in clear; `name` is its key.

    It says what a message may show of a value that is wrong, perhaps because it is at a wrong place: so it takes more
    for a secret than what refuses values that are right.
    """
    if isinstance(value, str):
        words = PAIR.sub(r"\1=", value).split()
        return (
            any(in_variables({name: value}))
            or any(in_arguments([value]))
            or any(in_arguments(words))
            or bool(USER_INFO.search(value))
            or (looks_random(value) and not CLOUD_ID.fullmatch(value))
        )
    if isinstance(value, Mapping):
        # As Kubernetes writes a list of variables.
        listed = "value" in value and is_in(value["value"], str(value.get("name", "")))
        return listed or any(is_in(each, str(key)) for key, each in value.items())
    if isinstance(value, Sequence):
        return any(in_arguments(map(str, value))) or any(is_in(each, name) for each in value)
    return False


def _plain(name: str) -> str:
    """A name as that of a variable: `--wandb.api-key` is API_KEY, and so is API_KEY_2."""
    return re.sub(r"_\d+$", "", name.rpartition(".")[2].strip("-+").replace("-", "_")).upper()


def _is_secret(name: str, value: str) -> bool:
    """Whether a value is a secret, by its name or because it logs in."""
    login = LOGIN.fullmatch(value)
    secret = (login["token"] or login["basic"]) if login else value
    if NO_SECRET.fullmatch(secret):
        return False
    if login:
        return True
    plain = _plain(name)
    if plain == "WANDB" and WANDB_KEY.fullmatch(value):
        return True
    if GUARDS_NOTHING.fullmatch(plain):
        return looks_random(value)
    if GUARDS.fullmatch(plain):
        return not COUNT.fullmatch(value)
    if TOKEN.fullmatch(plain):
        return not NUMBER.fullmatch(value)
    return bool(KEY.fullmatch(plain) and RANDOM.fullmatch(value))


def _has_secret(text: str) -> bool:
    """Whether a text has one behind its name."""
    return any(_is_secret(found[1], found[2]) for found in ASSIGNED.finditer(text))


def _is_key(name: str, value: str) -> bool:
    """Whether a variable is a key that guards something, `OPENAI_KEY` for one."""
    plain = _plain(name)
    if not plain.endswith("_KEY") or GUARDS_NOTHING.fullmatch(plain):
        return False
    return not (NO_SECRET.fullmatch(value) or NUMBER.fullmatch(value))


def _is_in_header(option: str, value: str) -> bool:
    """Whether an argument is a header with a secret: `Authorization: Bearer SECRET`."""
    header = HEADER.fullmatch(value)
    if header is None or not (_plain(option) in ("H", "HEADER") or _plain(header[1]) == "AUTHORIZATION"):
        return False
    return _is_secret(header[1], header[2])
