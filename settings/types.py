"""Base class of every settings section, and the scalar types of their fields."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Network
from math import isfinite
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, PlainValidator

from settings.kubernetes_values import check_label, format_cpu, format_memory, parse_cpu, parse_memory
from settings.problem import Invalid

_IMAGE = re.compile(
    r"([a-z0-9.-]+(:\d+)?/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MAX_SECRET_NAME_CHARACTERS = 32
"""Maximum length of a secret's name. API keys are longer, so this limit rejects a key in place of its name."""
_SECRET = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")
OPERATORS_NAMESPACE = "trainyard-operators"
"""Namespace of the operators."""
SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease", "gke-gmp-system", "gmp-system", "gmp-public")
"""Namespaces of Kubernetes and GKE. Users can mistake workloads in them for system components."""
BUCKET_NAME_HINT = (
    "starting and ending with a letter or digit, without dots, gs:// or s3://; write for example 'team-checkpoints'"
)
"""Ending of the error message for an invalid bucket name."""
_FLAG = re.compile(r"[a-z][a-z0-9]*([_.-][a-z0-9]+)*")


class Section(BaseModel):
    """Section of the stack's configuration. It is immutable, and rejects unknown keys and values of a wrong type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def with_code(code: str, check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a check that raises Invalid with `code` where `check` raises ValueError."""

    def check_with_code(value: Any) -> Any:
        try:
            return check(value)
        except ValueError as error:
            raise Invalid(code, str(error)) from error

    return check_with_code


def match_pattern(code: str, pattern: re.Pattern[str], message: str, limit: int = 1000) -> AfterValidator:
    """Return a validator that accepts values of at most `limit` characters that `pattern` matches completely."""

    def check(value: str) -> str:
        if len(value) > limit or not pattern.fullmatch(value):
            raise Invalid(code, message)
        return value

    return AfterValidator(check)


def _quantity(code: str, normalize: Callable[[str], str]) -> BeforeValidator:
    """Return a validator that normalizes strings and numbers, and leaves other types to the type check."""

    def check(value: object) -> object:
        is_quantity = isinstance(value, str | int | float) and not isinstance(value, bool)
        return normalize(str(value)) if is_quantity else value

    return BeforeValidator(with_code(code, check))


def _variable(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        message = "must be letters, digits and '_', not starting with a digit; write for example 'NCCL_DEBUG'"
        raise Invalid("variable_name", message)
    if value.startswith(("PET_", "TRAINYARD_")):
        message = "starts with PET_ or TRAINYARD_, which only Trainyard may set; write another name, or remove it"
        raise Invalid("variable_reserved", message)
    return value


def _scalar(value: Any) -> str | int | float | bool:
    if isinstance(value, str | int) or (isinstance(value, float) and isfinite(value)):
        return value
    if isinstance(value, dict) and value and all(isinstance(each, str | int) for each in value.values()):
        return ",".join(f"{key}={each}" for key, each in value.items())
    raise Invalid(
        "flag_value",
        "must be a string, a number, true or false, or a mapping of names to strings or integers; write for example 64",
    )


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    raise Invalid("variable_value", "must be a string or a number; put it in quotes")


def _cidr(value: str) -> str:
    try:
        if "/" not in value:
            raise ValueError("has no prefix length")
        network = IPv4Network(value, strict=False)
    except ValueError as error:
        raise Invalid("range_malformed", "must be an IPv4 address range; write for example '10.0.0.0/20'") from error
    address = value.partition("/")[0]
    if address != str(network.network_address):
        message = f"must begin with the first address of the range, not with {address}; write '{network}'"
        raise Invalid("range_with_host_bits", message)
    return str(network)


def _client_range(value: str) -> str:
    """Return a valid range. For an invalid range that begins with an address, also suggest the address's /32 range."""
    try:
        return _cidr(value)
    except ValueError as error:
        address = value.partition("/")[0]
        try:
            single_address = IPv4Network(address)
        except ValueError:
            raise error from None
        raise Invalid("address_in_range", f"{error}, or '{single_address}' for this address only") from error


def _one_or_many(value: object) -> object:
    """Return a single string or a list as a tuple, and any other value unchanged."""
    return (value,) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


def namespace_problem(value: str) -> str | None:
    """Return an error if a stack may not create and delete this namespace, else None."""
    if value in ("default", OPERATORS_NAMESPACE) or value.startswith(("kube-", "gke-", "gmp-")):
        owners = "Kubernetes, GKE or Trainyard's operators"
        return f"belongs to {owners}; write a namespace that the stack can create and delete, for example 'training'"
    return None


def _namespace(value: str) -> str:
    if message := namespace_problem(value):
        raise Invalid("namespace_not_deletable", message)
    return value


def _existing_cluster_namespace(value: str) -> str:
    if value == OPERATORS_NAMESPACE or value in SYSTEM_NAMESPACES or value.startswith("gke-managed-"):
        owner = "Trainyard's operators" if value == OPERATORS_NAMESPACE else "the cluster itself"
        raise Invalid("namespace_of_others", f"is reserved for {owner}; write for example 'training'")
    return value


ONE_OR_MANY = BeforeValidator(_one_or_many)
"""Validator that accepts a single value for a tuple."""
DnsLabel = Annotated[str, AfterValidator(with_code("dns_label", check_label))]
"""Name that Kubernetes accepts for a Service, a host and a label."""
Cpu = Annotated[str, _quantity("cpu", lambda text: format_cpu(parse_cpu(text)))]
"""Number of CPUs in Kubernetes notation."""
Memory = Annotated[str, _quantity("memory", lambda text: format_memory(parse_memory(text)))]
"""Size of memory or storage in Kubernetes notation."""
Image = Annotated[
    str,
    match_pattern(
        "image_reference", _IMAGE, "must be an image reference; write for example 'example.com/team/trainer:1.0'"
    ),
]
"""Reference of a container image."""
VariableName = Annotated[str, AfterValidator(_variable)]
"""Name of an environment variable, without the prefixes of Trainyard's variables (PET_, TRAINYARD_)."""
SecretName = Annotated[
    str,
    match_pattern(
        "secret_name",
        _SECRET,
        f"must be the name of a secret, not the secret: at most {MAX_SECRET_NAME_CHARACTERS} lower-case letters, "
        "digits, '_' and '-', starting with a letter; write for example 'wandb', the name of the encrypted setting "
        "`secrets:wandb`",
        limit=MAX_SECRET_NAME_CHARACTERS,
    ),
]
"""Name of a secret of the stack's configuration."""
FlagName = Annotated[
    str,
    match_pattern("flag_name", _FLAG, "must be a trainer flag without its dashes; write for example 'batch_size'"),
]
"""Name of a trainer flag."""
Cidr = Annotated[str, AfterValidator(_cidr)]
"""IPv4 address range."""
ClientCidr = Annotated[str, AfterValidator(_client_range)]
"""IPv4 address range of clients, or a single address as a /32."""
Scalar = Annotated[str | int | float | bool, PlainValidator(_scalar)]
"""Value of a trainer flag."""
Text = Annotated[str, PlainValidator(_text)]
"""Value of an environment variable."""
NamespaceName = Annotated[DnsLabel, AfterValidator(_namespace)]
"""Namespace that a stack can create, change and delete."""
ExistingClusterNamespace = Annotated[DnsLabel, AfterValidator(_existing_cluster_namespace)]
"""Namespace of jobs in an existing cluster. The namespace may exist already."""
