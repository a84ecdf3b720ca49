"""Secrets in clear: tells by its name or by its shape what nobody should read in a settings file. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

VARIABLE = re.compile(r".*(_KEY|_TOKEN|_SECRET|PASSWORD|PASSPHRASE|CREDENTIALS)|TOKEN|SECRET", re.IGNORECASE)
"""Names of variables whose values are secrets."""
ARGUMENT = re.compile(
    r"(.*_)?((API|ACCESS|AUTH|SECRET|PRIVATE)_KEY|(HF|HUB|API|ACCESS|AUTH|BEARER)_TOKEN|TOKEN|SECRET|PASSWORD|PASSPHRASE)",
    re.IGNORECASE,
)
"""Names of arguments whose values are; `--pad-token` is none."""
OPTION = re.compile(r"(.*_)?(KEY|TOKEN|SECRET|PASSWORD|PASSPHRASE)", re.IGNORECASE)
RANDOM = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w+/=-]{20,}")
"""Any argument so named has a secret if its value is long and mixed: `--wandb-key`, not `--sort-key=label`."""
NO_SECRET = re.compile(r"/[\w./-]+|[\d.]+|true|false|none|<[^>]*>|\$\(\w+\)|", re.IGNORECASE)
"""Values that hold no secret under any name: paths, numbers, marks of a tokenizer, names of variables."""
SHAPES: Mapping[str, re.Pattern[str]] = {
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "an access key of AWS": re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{16}\b"),
    "an API key of Google": re.compile(r"\bAIza[\w-]{35}"),
    "a token of GitHub": re.compile(r"\b(gh[opsur]_\w{36}|github_pat_\w{22})"),
    "a token of Hugging Face": re.compile(r"\bhf_[A-Za-z0-9]{30}"),
    "a token of Slack": re.compile(r"\bxox[abeoprs]-[\w-]{10}|hooks\.slack\.com/services/\w"),
    "an API key": re.compile(r"\bsk-[\w-]{20}"),
    "a JSON web token": re.compile(r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\."),
    "an address with a password": re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@$]+@"),
}
"""How the issuers' secrets look.

https://docs.github.com/en/code-security/secret-scanning/introduction/supported-secret-scanning-patterns
"""


def shape(text: str) -> str | None:
    """What secret is in a text by its looks; None where none is seen."""
    return next((name for name, pattern in SHAPES.items() if pattern.search(text)), None)


def in_variables(variables: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Names of the variables that have a secret in clear, each with what it is."""
    for name, value in variables.items():
        if found := shape(value):
            yield name, found
        elif VARIABLE.fullmatch(name) and not NO_SECRET.fullmatch(value):
            yield name, "a secret"


def in_arguments(arguments: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Indices of the arguments that have one: `--token=SECRET`, or `SECRET` after `--token`."""
    before = ""
    for index, argument in enumerate(arguments):
        option, _, given = argument.partition("=")
        name, value = (option, given) if argument.startswith("-") else (before, argument)
        before = "" if given else option if argument.startswith("-") else ""
        if found := shape(argument):
            yield index, found
        elif _is_secret(name.lstrip("-").replace("-", "_"), value):
            yield index, "a secret"


def _is_secret(name: str, value: str) -> bool:
    if NO_SECRET.fullmatch(value):
        return False
    return bool(ARGUMENT.fullmatch(name) or (OPTION.fullmatch(name) and RANDOM.fullmatch(value)))
