"""StackConfig: everything that a stack's YAML says, read once. The only module that calls pulumi.Config.

`python -m stack_config Pulumi.<stack>.yaml` checks a file without Pulumi: exit status 0, or 1 with one line a problem.
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
from infra.image.own_images import TRAINER, own_images
from infra.settings.problem import Path as KeyPath
from infra.settings.problem import Problem
from infra.settings.problems import ConfigError, problems_of
from infra.settings.scalars import Section
from policy.config import PolicyConfig
from stack_rules import SECRETS, contradictions, missing_here, never_ended, others_in_clear, unusable_secrets
from workloads.kinds import operators_of
from workloads.recipes import recipe_jobs
from workloads.spec import JobSpec

if TYPE_CHECKING:
    import pulumi
    import yaml

PROJECT = "trainyard"
SELECTION = "JOB"
"""Environment variable that names recipes, separated by commas, to run in place of the stack's jobs."""


LONGEST_TTL_HOURS = 8760
"""A year."""


class StackConfig(Section):
    """One stack: a platform and the jobs that run on it."""

    platform: PlatformConfig = Field(examples=["{kind: local}"])
    """Where the jobs run."""
    jobs: tuple[JobSpec, ...] = Field(examples=["[{name: digits, recipe: digits}]"])
    """What runs there, all at once, each a job or the name of a recipe in docs/recipes; an empty list gives the
    platform alone."""
    budget: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(default=None, examples=[20])
    """US dollars an hour that the stack may cost; `make preview` fails where it costs more, or where a part of it has
    no price."""
    ttl_hours: Annotated[float, Field(gt=0, le=LONGEST_TTL_HOURS)] | None = Field(default=None, examples=[12])
    """Hours after its first `make up` at which the scheduled workflow `destroy` ends the stack; by default never."""
    policy: PolicyConfig = PolicyConfig()
    """What holds here of the rules that a preview looks at."""

    @property
    def cloud(self) -> Cloud:
        """The Cloud of the platform."""
        return cloud_of(self.platform)

    @property
    def operators(self) -> frozenset[str]:
        """Names of the operators that the stack installs."""
        return self.cloud.operators(operators_of(self.jobs))

    @property
    def own_images(self) -> frozenset[str]:
        """Names of the images that Trainyard builds for the jobs; `trainer` unless each has another."""
        names = {name for job in self.jobs for name in job.image_names}
        return own_images(names) | ({TRAINER} if any(job.image_name is None for job in self.jobs) else set())

    @property
    def builds_images(self) -> bool:
        """True if `up` builds images and pushes them to a cloud's registry."""
        return self.cloud.is_provisioned and bool(self.cloud.built_images and self.own_images)


def load() -> StackConfig:
    """The configuration of the stack that runs this program. Raises ConfigError, a ValueError."""
    # Not needed to check a file, and slow to import.
    import pulumi
    from pulumi.runtime import config as runtime

    config = pulumi.Config(PROJECT)
    # pulumi.Config reads single keys; only the runtime knows which others there are.
    present = runtime.CONFIG.get() or runtime.get_config_env()
    keys = [key.partition(":")[2] for key in present if _is_ours(key)]
    secrets = {key.partition(":")[2]: runtime.is_config_secret(key) for key in present if _is_secret(key)}
    return parse({key: _decoded(config.require(key)) for key in keys}, secrets)


def secret(name: str) -> pulumi.Output[str]:
    """The value of one of the configuration's secrets, which stays a secret in the state."""
    # Not needed to check a file, and slow to import.
    import pulumi

    return pulumi.Config(SECRETS).require_secret(name)


def load_file(path: Path) -> StackConfig:
    """The configuration in a stack's file. Raises ConfigError, and ValueError when it is no such file."""
    # Not needed by the program itself, which gets its configuration from the engine.
    from infra.settings import yaml_text

    text = _text(path)
    try:
        document = yaml_text.document(text)
        written = _written(document)
        content = yaml_text.values(document)
    except ConfigError:
        raise
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from error
    config = content
    if isinstance(content, dict):
        outside = [str(key) for key in content if _belongs_under_config(str(key))]
        if outside:
            raise ValueError(
                f"{path.name}: {', '.join(outside)}: nobody reads that at the left margin; indent it under `config:`, "
                f"as in `config:` and `  {outside[0]}: ...`"
            )
        # The file of a stack without settings has other keys.
        config = content.get("config", {})
    if not isinstance(config, dict):
        raise ValueError(f"{path.name}: has no mapping `config:`; begin it with `config:` and `  trainyard:platform:`")
    if twice := [key for key in config if f"{PROJECT}:{key}" in config]:
        raise ValueError(f"{path.name}: {twice[0]} is there as {PROJECT}:{twice[0]} too; write it once")
    # A key without a namespace belongs to the project.
    named = {str(key) if ":" in str(key) else f"{PROJECT}:{key}": value for key, value in config.items()}
    for key in named:
        namespace, _, rest = key.partition(":")
        if namespace != PROJECT and get_close_matches(namespace, [PROJECT]):
            raise ValueError(f"{path.name}: {key}: nobody reads that; write {PROJECT}:{rest}")
    if found := others_in_clear(named):
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
    """What a stack's file says. Raises ValueError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        there = ", ".join(sorted(each.name.split(".")[1] for each in path.parent.glob("Pulumi.*.yaml"))) or "none"
        raise ValueError(f"{path.name}: no such file; the stacks that have one are {there}; write one") from error
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror}); name a file that you may read") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name}: is no text in UTF-8; save it as that") from error


def _written(document: yaml.Node | None) -> dict[KeyPath, str]:
    """Where a file has numbers, and how they are written. Raises ConfigError for those that YAML reads otherwise."""
    # Not needed by the program itself, which gets its configuration from the engine.
    from infra.settings import yaml_text

    found = [
        each
        for top, config in yaml_text.entries(document)
        if top == "config"
        for key, node in yaml_text.entries(config)
        if _is_ours(key) or ":" not in key
        for each in yaml_text.written(node, (key.rpartition(":")[2],))
    ]
    if problems := [problem for each in found if (problem := yaml_text.changed(each))]:
        raise ConfigError(problems)
    return {each.path: each.text for each in found}


def _belongs_under_config(key: str) -> bool:
    """Whether a key at the top of a stack's file is one of its settings."""
    return _is_ours(key) or _is_secret(key) or key in StackConfig.model_fields


def parse(
    values: Mapping[str, Any],
    secrets: Mapping[str, bool] = MappingProxyType({}),
    written: Mapping[KeyPath, str] = MappingProxyType({}),
) -> StackConfig:
    """The configuration in plain values. Raises ConfigError with everything that is wrong with them.

    `secrets` has the names of the stack's secrets, true for those that are encrypted, and `written` how the file has
    its numbers. What is wrong with single values
    comes first; what contradicts what is looked at when each value is right.
    """
    try:
        config = StackConfig.model_validate_json(json.dumps(with_recipes(values), default=str))
    except ValidationError as error:
        raise ConfigError(problems_of(error, StackConfig, written)) from error
    found = contradictions(config.cloud, config.jobs) or unusable_secrets(config.jobs, secrets)
    found += never_ended(config.cloud, config.ttl_hours)
    if problems := found or missing_here(config.cloud, config.jobs):
        raise ConfigError(problems)
    return config


def with_recipes(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the jobs of recipes in the place of their names. Raises ConfigError for an unknown one."""
    selected = os.environ.get(SELECTION, "")
    jobs = [name.strip() for name in selected.split(",")] if selected else values.get("jobs")
    if not isinstance(jobs, list):
        return dict(values)
    expanded: list[Any] = []
    for index, job in enumerate(jobs):
        try:
            expanded += recipe_jobs(job) if isinstance(job, str) else [job]
        except ValueError as error:
            raise ConfigError([Problem("stack.jobs.unknown_recipe", ("jobs", index), str(error), job)]) from error
    return {**values, "jobs": expanded}


def _is_secret(key: str) -> bool:
    return key.startswith(f"{SECRETS}:")


def _is_ours(key: str) -> bool:
    return key.startswith(f"{PROJECT}:")


def _decoded(text: str) -> Any:
    """A value as it was in the YAML: the engine hands structures over as JSON, and plain strings as they are."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def main(arguments: list[str]) -> int:
    """Check the stack files named on the command line."""
    if not arguments:
        print("usage: python -m stack_config Pulumi.STACK.yaml ...", file=sys.stderr)
        return 2
    selected = os.environ.get(SELECTION)
    those = f" with {SELECTION}={selected} in the place of its jobs" if selected else ""
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
