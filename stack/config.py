"""Configuration of a stack, from its file or from Pulumi. Only this module calls pulumi.Config.

`python -m stack.config Pulumi.<stack>.yaml` checks a file without Pulumi. It prints all problems, and exits with 1 if
there are any.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError

from infra.aws.cloud import Eks
from infra.aws.config import EksConfig
from infra.builtin_images import JobLayer
from infra.cloud import Cloud
from infra.existing import Existing, KubeconfigConfig
from infra.gcp.cloud import Gke
from infra.gcp.config import GkeConfig
from infra.local.cloud import Local, LocalConfig
from infra.make_command import COMMAND_VARIABLE, option_text
from policy.catalogue import PolicyConfig
from settings.problem import Path as KeyPath
from settings.problem import Problem
from settings.problems import ConfigError, error_text, problems_of
from settings.text import wrap
from settings.types import Section
from stack.validation import (
    SECRETS,
    configuration_conflicts,
    job_layer,
    machine_problems,
    protected_despite_ttl,
    separate_inputs,
    settings_in_clear,
    unusable_secrets,
)
from workloads.kinds import operators_of
from workloads.spec import ETCD_IMAGE, JobSpec, example_jobs

if TYPE_CHECKING:
    import pulumi
    import yaml

CONFIG_NAMESPACE = "trainyard"
"""Prefix of Trainyard's keys in a stack's file."""
EXAMPLES_VARIABLE = "JOB"
"""Environment variable with names of examples, separated by commas, that replace the stack's jobs."""
MAX_TTL_HOURS = 8760
"""Maximum of `ttl_hours`: the hours of a year."""
PlatformConfig = Annotated[LocalConfig | KubeconfigConfig | GkeConfig | EksConfig, Field(discriminator="kind")]
"""Settings of one kind of platform."""
CLOUDS: Mapping[str, type[Cloud]] = MappingProxyType({"local": Local, "kubeconfig": Existing, "gke": Gke, "eks": Eks})
"""Cloud class for each `kind` of platform settings."""


def cloud_of(platform: PlatformConfig) -> Cloud:
    """Return the Cloud of a platform's settings."""
    return CLOUDS[platform.kind](platform)


class StackConfig(Section):
    """Settings of a stack: a platform and the jobs that run on it."""

    platform: PlatformConfig = Field(examples=["{kind: local}"])
    """Platform of the jobs."""
    jobs: tuple[JobSpec, ...] = Field(examples=["[{name: digits, recipe: digits}]"])
    """Jobs that run at the same time, each a job or the name of an example in docs/recipes; an empty list provisions
    only the platform."""
    budget: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(default=None, examples=[20])
    """Maximum cost in US dollars an hour; `make preview` fails if the cost is higher or an item has no price."""
    ttl_hours: Annotated[float, Field(gt=0, le=MAX_TTL_HOURS)] | None = Field(default=None, examples=[12])
    """Hours after the first `make up` until the scheduled workflow `destroy` destroys the stack; by default never."""
    policy: PolicyConfig = PolicyConfig()
    """Settings of the policy rules that a preview checks."""

    @property
    def cloud(self) -> Cloud:
        """Cloud of the platform."""
        return cloud_of(self.platform)

    @property
    def operators(self) -> frozenset[str]:
        """Names of the operators that the stack installs."""
        return self.cloud.operators(operators_of(self.jobs))

    @property
    def builtin_images(self) -> frozenset[str]:
        """Names of the images that Trainyard builds for the jobs."""
        etcd = {ETCD_IMAGE for job in self.jobs if job.rendezvous_backend == "etcd"}
        return frozenset(job.image_ref.builtin for job in self.jobs if job.image_ref.builtin) | etcd

    @cached_property
    def left_out(self) -> frozenset[str]:
        """Paths in the project that Trainyard does not send with a script, because jobs get them in another way."""
        return separate_inputs(self.cloud, self.jobs)

    @cached_property
    def job_layers(self) -> dict[str, JobLayer]:
        """Job -> layer with its packages or script, for jobs that need one. Raises ValueError for an invalid file."""
        layers = {job.name: job_layer(job, self.cloud.built_images, self.left_out) for job in self.jobs}
        return {name: layer for name, layer in layers.items() if layer}

    @property
    def builds_images(self) -> bool:
        """True if `up` builds images and pushes them to a cloud's registry."""
        return self.cloud.provisioned is not None and bool(self.cloud.built_images & self.builtin_images)


def load() -> StackConfig:
    """Return the configuration of the stack that runs this program. Raises ConfigError if it is invalid."""
    # Import here: the check of a file does not need this slow module.
    import pulumi
    from pulumi.runtime import config as runtime

    config = pulumi.Config(CONFIG_NAMESPACE)
    # pulumi.Config reads single keys. Only the runtime lists all keys.
    all_keys = runtime.CONFIG.get() or runtime.get_config_env()
    keys = [key.partition(":")[2] for key in all_keys if _is_setting(key)]
    secrets = {key.partition(":")[2]: runtime.is_config_secret(key) for key in all_keys if _is_secret(key)}
    return parse({key: _decode(config.require(key)) for key in keys}, secrets)


def secret(name: str) -> pulumi.Output[str]:
    """Return the value of a secret of the configuration. The value stays a secret in the state."""
    # Import here: the check of a file does not need this slow module.
    import pulumi

    return pulumi.Config(SECRETS).require_secret(name)


def load_file(path: Path, *, checks_availability: bool = True, checks_machine: bool = True) -> StackConfig:
    """Return the configuration in a stack's file. Raises ConfigError for invalid settings, ValueError for the file.

    Without `checks_availability`, accept locations, versions and machine types that the cloud does not offer. Without
    `checks_machine`, skip the checks of files and capacity on this machine.
    """
    # Import here: the Pulumi program gets the configuration from the engine and reads no file.
    from settings import yaml_loader

    text = _read_text(path)
    try:
        document = yaml_loader.document(text)
        number_texts = _number_texts(document)
        content = yaml_loader.values(document)
    except ConfigError:
        raise
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    config = content
    if isinstance(content, dict):
        fields = StackConfig.model_fields
        misplaced = [key for key in map(str, content) if _is_setting(key) or _is_secret(key) or key in fields]
        if misplaced:
            raise ValueError(
                f"{path.name}: {', '.join(misplaced)}: top-level key is ignored; move it under `config:`, "
                f"as in `config:` and `  {misplaced[0]}: ...`"
            )
        if "config" not in content and (misspelled := get_close_matches("config", map(str, content), n=1)):
            raise ValueError(f"{path.name}: {misspelled[0]}: unknown top-level key; write `config:`")
        # The file of a stack without settings has no `config:` key.
        config = content.get("config", {})
    if not isinstance(config, dict):
        raise ValueError(f"{path.name}: has no mapping `config:`; write `config:` and below it `  trainyard:platform:`")
    if duplicates := [key for key in config if f"{CONFIG_NAMESPACE}:{key}" in config]:
        key = duplicates[0]
        raise ValueError(f"{path.name}: {key}: duplicate of {CONFIG_NAMESPACE}:{key}; remove one of the two")
    # A key without a namespace belongs to the project.
    qualified = {str(key) if ":" in str(key) else f"{CONFIG_NAMESPACE}:{key}": value for key, value in config.items()}
    for key in qualified:
        namespace, _, rest = key.partition(":")
        if namespace != CONFIG_NAMESPACE and get_close_matches(namespace, [CONFIG_NAMESPACE]):
            raise ValueError(f"{path.name}: {key}: unknown namespace; write {CONFIG_NAMESPACE}:{rest}")
    if problems := settings_in_clear(qualified):
        raise ConfigError(problems)
    secrets = {
        key.partition(":")[2]: isinstance(value, dict) and "secure" in value
        for key, value in qualified.items()
        if _is_secret(key)
    }
    settings = {key.partition(":")[2]: value for key, value in qualified.items() if _is_setting(key)}
    # Pulumi writes single values as text: `pulumi config set trainyard:budget 30` gives "30".
    decoded = {key: _decode(value) if isinstance(value, str) else value for key, value in settings.items()}
    return parse(decoded, secrets, number_texts, checks_availability=checks_availability, checks_machine=checks_machine)


def missing_file(path: Path) -> str:
    """Return the message for a stack's file that does not exist."""
    if path.is_symlink():
        return f"{path.name}: links to {path.readlink()}, which does not exist; correct the link, or name another stack"
    folder = path.parent.resolve()
    stacks = ", ".join(sorted(file.name.split(".")[1] for file in folder.glob("Pulumi.*.yaml") if file.exists()))
    if not stacks:
        return f"{path.name}: no such file; {folder} has no stack; `trainyard init` writes one"
    option = "`--stack`" if os.environ.get(COMMAND_VARIABLE) else "`STACK=`"
    return f"{path.name}: no such file; {folder} has the stacks: {stacks}; name one of them with {option}"


def _read_text(path: Path) -> str:
    """Return the text of a stack's file. Raises ValueError if the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ValueError(missing_file(path)) from error
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); use a readable file") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: is not UTF-8 text; save it as UTF-8") from error


def _number_texts(document: yaml.Node | None) -> dict[KeyPath, str]:
    """Return the source text of each number in a file. Raises ConfigError if YAML changes a value."""
    # Import here: the Pulumi program gets the configuration from the engine and reads no file.
    from settings import yaml_loader

    typed_values = [
        typed_value
        for top, config in yaml_loader.entries(document)
        if top == "config"
        for key, node in yaml_loader.entries(config)
        if _is_setting(key) or ":" not in key
        for typed_value in yaml_loader.typed_values(node, (key.rpartition(":")[2],))
    ]
    if problems := [problem for value in typed_values if (problem := yaml_loader.changed_value_problem(value))]:
        raise ConfigError(problems)
    return {value.path: value.text for value in typed_values}


def raw_settings(path: Path) -> dict[str, Any]:
    """Return the settings in a stack's file without checks. Raises OSError or ValueError for an unusable file."""
    from settings import yaml_loader

    content = yaml_loader.values(yaml_loader.document(path.read_text(encoding="utf-8"))) or {}
    settings = (content.get("config") or {}) if isinstance(content, dict) else None
    if not isinstance(settings, dict):
        raise ValueError(f"{path.name}: has no mapping `config:`; write `config:` and below it the settings")
    # Include settings at the top level. `load_file` rejects such settings, but they show what the user wants.
    return {str(key).removeprefix(f"{CONFIG_NAMESPACE}:"): value for key, value in {**content, **settings}.items()}


def parse(
    values: Mapping[str, Any],
    secrets: Mapping[str, bool] = MappingProxyType({}),
    number_texts: Mapping[KeyPath, str] = MappingProxyType({}),
    *,
    checks_availability: bool = True,
    checks_machine: bool = True,
) -> StackConfig:
    """Return the configuration from plain values. Raises ConfigError with all problems.

    `secrets` maps the name of each secret of the stack to True if it is encrypted. `number_texts` has the source text
    of the file's numbers. Conflicts between values are checked only if each value is valid.
    """
    try:
        config = StackConfig.model_validate_json(json.dumps(with_examples(values), default=str))
    except ValidationError as error:
        raise ConfigError(problems_of(error, StackConfig, number_texts)) from error
    if config.cloud.provisioned and not checks_availability:
        platform = config.platform.model_copy(update={"check_availability": False})
        config = config.model_copy(update={"platform": platform})
    problems = configuration_conflicts(config.cloud, config.jobs) or unusable_secrets(config.jobs, secrets)
    problems += protected_despite_ttl(config.cloud, config.ttl_hours)
    if checks_machine:
        problems = problems or machine_problems(config.cloud, config.jobs)
    if problems:
        raise ConfigError(problems)
    return config


def with_examples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with the names of examples replaced by their jobs. Raises ConfigError for an unknown name."""
    selected = os.environ.get(EXAMPLES_VARIABLE, "")
    jobs = [name.strip() for name in selected.split(",")] if selected else values.get("jobs")
    if not isinstance(jobs, list):
        return dict(values)
    expanded: list[Any] = []
    for index, job in enumerate(jobs):
        try:
            expanded += example_jobs(job) if isinstance(job, str) else [job]
        except ValueError as error:
            raise ConfigError([Problem("stack.jobs.unknown_example", ("jobs", index), str(error), job)]) from error
    return {**values, "jobs": expanded}


def _is_secret(key: str) -> bool:
    return key.startswith(f"{SECRETS}:")


def _is_setting(key: str) -> bool:
    return key.startswith(f"{CONFIG_NAMESPACE}:")


def _decode(text: str) -> Any:
    """Return the original value. The engine passes structures as JSON, and plain strings unchanged."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def main(arguments: list[str]) -> int:
    """Check the stack files on the command line. Return the exit status."""
    if not arguments:
        print("usage: python -m stack.config Pulumi.STACK.yaml ...", file=sys.stderr)
        return 2
    selected = os.environ.get(EXAMPLES_VARIABLE)
    selection = f" with {option_text(EXAMPLES_VARIABLE, selected)} instead of its jobs" if selected else ""
    status = 0
    for name in arguments:
        try:
            load_file(Path(name))
        except ValueError as error:
            print(wrap(error_text(f"{name}{selection}", error), sys.stderr), file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
