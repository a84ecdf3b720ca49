"""StackConfig: everything that a stack's YAML says, read once. The only module that calls pulumi.Config.

`python -m stack_config Pulumi.<stack>.yaml` checks a file without Pulumi: exit status 0, or 1 with one line a problem.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from infra.config import KubeconfigConfig, LocalConfig, PlatformConfig
from infra.hardware import Capacity, first_that_does_not_fit, hosts_that_fit, parse_memory, this_machine
from infra.kubeconfig import contexts, kubeconfig_files
from infra.naming import longest_job_name
from infra.operator_releases import needed_releases
from infra.operator_room import left_for_jobs
from infra.own_images import OWN_IMAGES
from infra.problems import ConfigError, Problem, problems_of
from infra.scalars import Section
from workloads.needs import operators_of
from workloads.spec import JobSpec

PROJECT = "trainyard"


class StackConfig(Section):
    """One stack: a platform and the jobs that run on it."""

    platform: PlatformConfig = Field(examples=["{kind: local}"])
    """Where the jobs run."""
    jobs: tuple[JobSpec, ...] = Field(examples=["[{name: digits, recipe: digits}]"])
    """What runs there, all at once; an empty list gives the platform alone."""


def load() -> StackConfig:
    """The configuration of the stack that runs this program. Raises ConfigError, a ValueError."""
    # Not needed to check a file, and slow to import.
    import pulumi
    from pulumi.runtime import config as runtime

    config = pulumi.Config(PROJECT)
    # pulumi.Config reads single keys; only the runtime knows which others there are.
    keys = [key.partition(":")[2] for key in (runtime.CONFIG.get() or runtime.get_config_env()) if _is_ours(key)]
    return parse({key: _decoded(config.require(key)) for key in keys})


def load_file(path: Path) -> StackConfig:
    """The configuration in a stack's file. Raises ConfigError, and ValueError when it is no such file."""
    # Not needed by the program itself, which gets its configuration from the engine.
    import yaml

    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"{path.name}: not YAML: {' '.join(str(error).split())}") from error
    except FileNotFoundError as error:
        raise ValueError(f"{path.name}: no such file; `pulumi stack ls` names the stacks that there are") from error
    config = content.get("config", {}) if isinstance(content, dict) else content
    if not isinstance(config, dict):
        raise ValueError(f"{path.name}: has no mapping `config:`; begin it with `config:` and `  trainyard:platform:`")
    # A key without a namespace belongs to the project.
    named = {str(key) if ":" in str(key) else f"{PROJECT}:{key}": value for key, value in config.items()}
    return parse({key.partition(":")[2]: value for key, value in named.items() if _is_ours(key)})


def parse(values: Mapping[str, Any]) -> StackConfig:
    """The configuration in plain values. Raises ConfigError with everything that is wrong with them.

    What is wrong with single values comes first; what contradicts what is looked at when each value is right.
    """
    try:
        config = StackConfig.model_validate_json(json.dumps(values, default=str))
    except ValidationError as error:
        raise ConfigError(problems_of(error, StackConfig)) from error
    if problems := contradictions(config) or _missing_here(config):
        raise ConfigError(problems)
    return config


def contradictions(config: StackConfig) -> list[Problem]:
    """Values that are right by themselves and wrong together."""
    found = []
    names: dict[str, int] = {}
    for index, job in enumerate(config.jobs):
        path = ("jobs", index)
        first = names.setdefault(job.name, index)
        if first != index:
            found.append(Problem((*path, "name"), f"is the name of jobs[{first}] too; names must differ", job.name))
        if len(job.name) > (limit := longest_job_name(job.hosts)):
            message = (
                f"must have at most {limit} characters, so that the last of {job.hosts} host names has 63; shorten it"
            )
            found.append(Problem((*path, "name"), message, job.name))
        if parse_memory(job.shared_memory) > job.resources.capacity.memory:
            limit_text = f"resources.memory, {job.resources.memory}"
            message = f"must be at most {limit_text}, of which it is a part; raise that or lower this"
            found.append(Problem((*path, "shared_memory"), message, job.shared_memory))
    return found


def _missing_here(config: StackConfig) -> list[Problem]:
    """What the configuration asks for and this machine does not have."""
    if isinstance(config.platform, LocalConfig):
        return shortage(config.jobs, config.platform, this_machine())
    return unknown_context(config.platform) + images_of_this_machine(config.jobs)


def images_of_this_machine(jobs: tuple[JobSpec, ...]) -> list[Problem]:
    """The images that only the platform `local` builds, asked for elsewhere."""
    return [
        Problem(
            ("jobs", index, "image"),
            f"is built on platform local alone; build {OWN_IMAGES[job.image]}/Dockerfile, push it, write its reference",
            job.image,
        )
        for index, job in enumerate(jobs)
        if job.image in OWN_IMAGES
    ]


def unknown_context(platform: KubeconfigConfig) -> list[Problem]:
    """The platform's context, when no kubeconfig has it."""
    files = kubeconfig_files(platform.kubeconfig)
    key, value = ("context", platform.context)
    try:
        names = contexts(files)
    except ValueError as error:
        key, value, message = "kubeconfig", platform.kubeconfig or "", str(error)
    else:
        if value in names:
            return []
        place = ", ".join(map(str, files))
        message = (
            f"is no context in {place}; write one of {', '.join(names)}"
            if names
            else f"there is no context in {place}; set platform.kubeconfig to the file that has it"
        )
    return [Problem(("platform", key), message, value)]


def shortage(jobs: tuple[JobSpec, ...], platform: LocalConfig, machine: Capacity) -> list[Problem]:
    """The jobs that a local cluster on `machine` has no room for, each by itself or else all at once."""
    node = left_for_jobs(machine, platform.nodes, len(needed_releases(operators_of(jobs))))
    offer = f"{platform.nodes} nodes offer {node} each"
    found = []
    for index, job in enumerate(jobs):
        ask = job.demand
        fit = hosts_that_fit(ask.per_host, node) * platform.nodes
        if ask.hosts > fit:
            remedy = f"write `hosts: {fit}` or less, or ask for less" if fit else "ask for less"
            message = f"{ask.hosts} hosts of {ask.per_host} each do not fit: {offer}, room for {fit}; {remedy}"
            found.append(Problem(("jobs", index, "hosts"), message, ask.hosts))
    late = first_that_does_not_fit([job.demand for job in jobs], node, platform.nodes)
    if not found and late is not None:
        ask = jobs[late].demand
        message = f"{ask.hosts} hosts of {ask.per_host} each do not fit beside the jobs above: {offer}; ask for less"
        found.append(Problem(("jobs", late, "hosts"), message, ask.hosts))
    return found


def _is_ours(key: str) -> bool:
    return key.startswith(f"{PROJECT}:")


def _decoded(text: str) -> Any:
    """A value as it was in the YAML: the engine hands structures over as JSON, and plain strings as they are."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def main(arguments: list[str]) -> int:
    """Check the stack files named on the command line."""
    status = 0
    for name in arguments:
        try:
            load_file(Path(name))
        except ConfigError as error:
            print(f"{name}: {len(error.problems)} problem(s)\n{error}", file=sys.stderr)
            status = 1
        except ValueError as error:
            print(error, file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
