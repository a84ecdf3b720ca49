"""StackConfig: the configuration of a stack. This is the only module that calls pulumi.Config.

`python -m stack.config Pulumi.<stack>.yaml` checks a file without Pulumi. The exit status is 0, or 1 with one line per
problem.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError

from infra.cloud import Cloud
from infra.clouds import cloud_of
from infra.config import PlatformConfig
from policy.config import PolicyConfig
from settings.problem import Path as KeyPath
from settings.problem import Problem
from settings.problems import ConfigError, problems_of
from settings.types import Section
from stack.validation import (
    SECRETS,
    configuration_conflicts,
    machine_problems,
    protected_despite_ttl,
    settings_in_clear,
    unusable_secrets,
)
from workloads.examples import example_jobs
from workloads.kinds import operators_of
from workloads.spec import JobSpec

if TYPE_CHECKING:
    import pulumi
    import yaml

PROJECT = "trainyard"
SELECTION = "JOB"
"""Environment variable with names of recipes, separated by commas, that replace the stack's jobs."""


LONGEST_TTL_HOURS = 8760
"""Hours of a year."""


class StackConfig(Section):
    """Stack: a platform and the jobs that run on it."""

    platform: PlatformConfig = Field(examples=["{kind: local}"])
    """Platform of the jobs."""
    jobs: tuple[JobSpec, ...] = Field(examples=["[{name: digits, recipe: digits}]"])
    """Jobs that run at the same time, each a job or the name of an example in docs/recipes; an empty list provisions
    only the platform."""
    budget: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(default=None, examples=[20])
    """Maximum cost in US dollars an hour; `make preview` fails if the cost is higher or an item has no price."""
    ttl_hours: Annotated[float, Field(gt=0, le=LONGEST_TTL_HOURS)] | None = Field(default=None, examples=[12])
    """Hours after the first `make up` until the scheduled workflow `destroy` destroys the stack; by default never."""
    policy: PolicyConfig = PolicyConfig()
    """Settings of the policy rules that a preview checks."""

    @property
    def cloud(self) -> Cloud:
        """The Cloud of the platform."""
        return cloud_of(self.platform)

    @property
    def operators(self) -> frozenset[str]:
        """Names of the operators that the stack installs."""
        return self.cloud.operators(operators_of(self.jobs))

    @property
    def builtin_images(self) -> frozenset[str]:
        """Names of the images that Trainyard builds for the jobs.

        `trainer` is one of them unless every job sets another.
        """
        return frozenset(name for job in self.jobs for name in job.builtin_images)

    @property
    def builds_images(self) -> bool:
        """True if `up` builds images and pushes them to a cloud's registry."""
        return self.cloud.provisioned is not None and bool(self.cloud.built_images and self.builtin_images)


def load() -> StackConfig:
    """Return the configuration of the stack that runs this program. Raises ConfigError, a ValueError."""
    # A check of a file does not need this slow import.
    import pulumi
    from pulumi.runtime import config as runtime

    config = pulumi.Config(PROJECT)
    # pulumi.Config reads single keys. Only the runtime lists all keys.
    present = runtime.CONFIG.get() or runtime.get_config_env()
    keys = [key.partition(":")[2] for key in present if _is_ours(key)]
    secrets = {key.partition(":")[2]: runtime.is_config_secret(key) for key in present if _is_secret(key)}
    return parse({key: _decoded(config.require(key)) for key in keys}, secrets)


def secret(name: str) -> pulumi.Output[str]:
    """Return the value of a secret of the configuration. It stays a secret in the state."""
    # A check of a file does not need this slow import.
    import pulumi

    return pulumi.Config(SECRETS).require_secret(name)


def load_file(path: Path) -> StackConfig:
    """Return the configuration in a stack's file.

    Raises ConfigError, or ValueError if the file is not a stack's file.
    """
    # The Pulumi program does not need it, because the engine passes the configuration.
    from settings import yaml_loader

    text = _text(path)
    try:
        document = yaml_loader.document(text)
        written = _written(document)
        content = yaml_loader.values(document)
    except ConfigError:
        raise
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    config = content
    if isinstance(content, dict):
        outside = [str(key) for key in content if _belongs_under_config(str(key))]
        if outside:
            raise ValueError(
                f"{path.name}: {', '.join(outside)}: top-level key is ignored; move it under `config:`, "
                f"as in `config:` and `  {outside[0]}: ...`"
            )
        # The file of a stack without settings has no `config:` key.
        config = content.get("config", {})
    if not isinstance(config, dict):
        raise ValueError(f"{path.name}: has no mapping `config:`; start it with `config:` and `  trainyard:platform:`")
    if twice := [key for key in config if f"{PROJECT}:{key}" in config]:
        raise ValueError(f"{path.name}: {twice[0]} is also there as {PROJECT}:{twice[0]}; write it once")
    # A key without a namespace belongs to the project.
    named = {str(key) if ":" in str(key) else f"{PROJECT}:{key}": value for key, value in config.items()}
    for key in named:
        namespace, _, rest = key.partition(":")
        if namespace != PROJECT and get_close_matches(namespace, [PROJECT]):
            raise ValueError(f"{path.name}: {key}: unknown namespace; write {PROJECT}:{rest}")
    if found := settings_in_clear(named):
        raise ConfigError(found)
    secrets = {
        key.partition(":")[2]: isinstance(value, dict) and "secure" in value
        for key, value in named.items()
        if _is_secret(key)
    }
    ours = {key.partition(":")[2]: value for key, value in named.items() if _is_ours(key)}
    # Pulumi writes single values as text: `pulumi config set trainyard:budget 30` gives "30".
    plain = {key: _decoded(value) if isinstance(value, str) else value for key, value in ours.items()}
    return parse(plain, secrets, written)


def _text(path: Path) -> str:
    """Return the text of a stack's file. Raises ValueError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        there = ", ".join(sorted(each.name.split(".")[1] for each in path.parent.glob("Pulumi.*.yaml"))) or "none"
        raise ValueError(f"{path.name}: no such file; stacks with a file: {there}; write one of them") from error
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); use a readable file") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: is not UTF-8 text; save it as UTF-8") from error


def _written(document: yaml.Node | None) -> dict[KeyPath, str]:
    """Return the source text of each number in a file. Raises ConfigError if YAML changes a value."""
    # The Pulumi program does not need it, because the engine passes the configuration.
    from settings import yaml_loader

    found = [
        each
        for top, config in yaml_loader.entries(document)
        if top == "config"
        for key, node in yaml_loader.entries(config)
        if _is_ours(key) or ":" not in key
        for each in yaml_loader.written(node, (key.rpartition(":")[2],))
    ]
    if problems := [problem for each in found if (problem := yaml_loader.changed(each))]:
        raise ConfigError(problems)
    return {each.path: each.text for each in found}


def _belongs_under_config(key: str) -> bool:
    """Return True if a top-level key of a stack's file is one of its settings."""
    return _is_ours(key) or _is_secret(key) or key in StackConfig.model_fields


def parse(
    values: Mapping[str, Any],
    secrets: Mapping[str, bool] = MappingProxyType({}),
    written: Mapping[KeyPath, str] = MappingProxyType({}),
) -> StackConfig:
    """Return the configuration in plain values. Raises ConfigError with all problems.

    `secrets` has the names of the stack's secrets, true for encrypted ones. `written` has the source text of the file's
    numbers. Conflicts between values are checked only if each value is valid.
    """
    try:
        config = StackConfig.model_validate_json(json.dumps(with_examples(values), default=str))
    except ValidationError as error:
        raise ConfigError(problems_of(error, StackConfig, written)) from error
    found = configuration_conflicts(config.cloud, config.jobs) or unusable_secrets(config.jobs, secrets)
    found += protected_despite_ttl(config.cloud, config.ttl_hours)
    if problems := found or machine_problems(config.cloud, config.jobs):
        raise ConfigError(problems)
    return config


def with_examples(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values with the names of recipes replaced by their jobs. Raises ConfigError for an unknown name."""
    selected = os.environ.get(SELECTION, "")
    jobs = [name.strip() for name in selected.split(",")] if selected else values.get("jobs")
    if not isinstance(jobs, list):
        return dict(values)
    expanded: list[Any] = []
    for index, job in enumerate(jobs):
        try:
            expanded += example_jobs(job) if isinstance(job, str) else [job]
        except ValueError as error:
            raise ConfigError([Problem("stack.jobs.unknown_recipe", ("jobs", index), str(error), job)]) from error
    return {**values, "jobs": expanded}


def _is_secret(key: str) -> bool:
    return key.startswith(f"{SECRETS}:")


def _is_ours(key: str) -> bool:
    return key.startswith(f"{PROJECT}:")


def _decoded(text: str) -> Any:
    """Return the original value: the engine passes structures as JSON, and plain strings unchanged."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def main(arguments: list[str]) -> int:
    """Check the stack files on the command line."""
    if not arguments:
        print("usage: python -m stack.config Pulumi.STACK.yaml ...", file=sys.stderr)
        return 2
    selected = os.environ.get(SELECTION)
    those = f" with {SELECTION}={selected} instead of its jobs" if selected else ""
    status = 0
    for name in arguments:
        try:
            load_file(Path(name))
        except ConfigError as error:
            print(f"{name}{those}: {len(error.problems)} problem(s)\n{error}", file=sys.stderr)
            status = 1
        except ValueError as error:
            print(error, file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
