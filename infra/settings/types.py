"""The base of every config section, and the named scalar types that their fields have. No Pulumi."""

from __future__ import annotations

import re
from ipaddress import IPv4Network
from math import isfinite
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainValidator

from infra.hardware import format_cpu, format_memory, parse_cpu, parse_memory
from infra.naming import check_label

_IMAGE = re.compile(
    r"([a-z0-9.-]+(:\d+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LONGEST_SECRET_NAME = 32
"""Shorter than the keys that services give, so that a key in the place of its name is noticed."""
_SECRET = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
OPERATORS_NAMESPACE = "trainyard-operators"
"""Where the operators are."""
SYSTEMS_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", "gke-gmp-system", "gmp-system", "gmp-public")
"""Those that Kubernetes and GKE have for themselves; what runs there may be taken for a part of the cluster."""
BARE_BUCKET = "no dots, no gs:// and no s3://; write for example 'team-checkpoints'"
"""Ends the message about a bucket's name."""
_FLAG = re.compile(r"[a-z][a-z0-9]*([_.-][a-z0-9]+)*")


class Section(BaseModel):
    """A part of the stack's configuration: immutable, no unknown key, no silent conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def matched(pattern: re.Pattern[str], message: str, limit: int = 1000) -> AfterValidator:
    """A check that refuses, with `message`, what `pattern` does not match as a whole or is longer than `limit`."""

    def check(value: str) -> str:
        if len(value) > limit or not pattern.fullmatch(value):
            raise ValueError(message)
        return value

    return AfterValidator(check)


def _cpu(value: object) -> object:
    """Accept numbers beside strings; leave other types to the type check."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return format_cpu(parse_cpu(str(value)))
    return value


def _memory(value: object) -> object:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        text = str(value)
        size = parse_memory(text)
        return format_memory(size)
    return value


def _image(value: str) -> str:
    if not _IMAGE.fullmatch(value):
        raise ValueError("must be an image reference; write for example 'example.com/team/trainer:1.0'")
    return value


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise ValueError("must be letters, digits and '_', first no digit; write for example 'NCCL_DEBUG'")
    if value.startswith(("PET_", "TRAINYARD_")):
        raise ValueError(
            "is set by Trainyard itself: remove it; any name without the prefix PET_ or TRAINYARD_ is allowed"
        )
    return value


def _secret(value: str) -> str:
    if len(value) > LONGEST_SECRET_NAME or not _SECRET.fullmatch(value):
        raise ValueError(
            "must be the name of a secret, not the secret: write for example 'wandb' and run "
            "`pulumi config set --secret secrets:wandb`"
        )
    return value


def _flag(value: str) -> str:
    if not _FLAG.fullmatch(value):
        raise ValueError("must be a trainer flag without its dashes; write for example 'batch_size'")
    return value


def _scalar(value: Any) -> str | int | float | bool:
    if isinstance(value, str | int) or (isinstance(value, float) and isfinite(value)):
        return value
    raise ValueError("must be one string, number, true or false")


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise ValueError("must be a string or a number: put it in quotes")


def _cidr(value: str) -> str:
    try:
        if "/" not in value:
            raise ValueError("has no prefix length")
        network = IPv4Network(value, strict=False)
    except ValueError as error:
        raise ValueError("must be a range of IPv4 addresses; write for example '10.0.0.0/20'") from error
    address = value.partition("/")[0]
    if address != str(network.network_address):
        raise ValueError(
            f"must be a range of IPv4 addresses, and {address} is inside one: write the range itself, '{network}'"
        )
    return str(network)


def _reaching(value: str) -> str:
    """Accept a range; say how one address is written where it is one that is meant."""
    try:
        return _cidr(value)
    except ValueError as error:
        address = value.partition("/")[0]
        try:
            alone = IPv4Network(address)
        except ValueError:
            raise error from None
        raise ValueError(f"{error}, or '{alone}' for this address alone") from error


def _one_or_many(value: object) -> object:
    """One value as a list of one."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def not_made_here(value: str) -> str | None:
    """Why a stack may not make a namespace, and remove it; None where it may."""
    if value in ("default", OPERATORS_NAMESPACE) or value.startswith(("kube-", "gke-", "gmp-")):
        return "must be a namespace of the stack's own, which goes when the stack goes; write for example 'training'"
    return None


def _namespace(value: str) -> str:
    if message := not_made_here(value):
        raise ValueError(message)
    return value


def _given_namespace(value: str) -> str:
    if value == OPERATORS_NAMESPACE or value in SYSTEMS_NAMESPACES or value.startswith("gke-managed-"):
        owner = "Trainyard's operators" if value == OPERATORS_NAMESPACE else "the cluster itself"
        raise ValueError(f"is the namespace of {owner}, where no jobs belong; write for example 'training'")
    return value


ONE_OR_MANY = BeforeValidator(_one_or_many)
"""Of a tuple that may be written as a single value."""
DnsLabel = Annotated[str, AfterValidator(check_label)]
"""A name that Kubernetes accepts for a Service, a host and a label."""
Cpu = Annotated[str, BeforeValidator(_cpu)]
"""A number of CPUs, as Kubernetes writes it."""
Memory = Annotated[str, BeforeValidator(_memory)]
"""A size of memory or storage, as Kubernetes writes it."""
Image = Annotated[str, AfterValidator(_image)]
"""Reference of a container image."""
VariableName = Annotated[str, AfterValidator(_variable)]
"""Name of an environment variable that is free to set."""
SecretName = Annotated[str, AfterValidator(_secret)]
"""Name of a secret of the stack's configuration."""
FlagName = Annotated[str, AfterValidator(_flag)]
"""Name of a trainer flag."""
Cidr = Annotated[str, AfterValidator(_cidr)]
"""A range of IPv4 addresses."""
ReachingCidr = Annotated[str, AfterValidator(_reaching)]
"""A range of IPv4 addresses that reach something, which may well be one address."""
Scalar = Annotated[str | int | float | bool, PlainValidator(_scalar)]
"""Value of a trainer flag."""
Text = Annotated[str, PlainValidator(_text)]
"""Value of an environment variable."""
NamespaceName = Annotated[DnsLabel, AfterValidator(_namespace)]
"""A namespace that a stack may make, change and remove."""
GivenNamespaceName = Annotated[DnsLabel, AfterValidator(_given_namespace)]
"""A namespace of a cluster of the user's, which a stack may make or be given."""
