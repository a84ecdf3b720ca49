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
from pydantic_core import PydanticUndefined

from infra import rules
from infra.config import KubeconfigConfig, LocalConfig, PlatformConfig
from infra.fit import Ask, Misfit, misfits, places
from infra.hardware import Capacity, first_that_does_not_fit, hosts_that_fit, this_machine
from infra.kubeconfig import contexts, kubeconfig_files
from infra.operator_releases import needed_releases
from infra.operator_room import left_for_jobs
from infra.own_images import OWN_IMAGES
from infra.problems import ConfigError, Problem, problems_of
from infra.scalars import Section
from policy.config import PolicyConfig
from workloads.conflicts import conflicts
from workloads.needs import operators_of
from workloads.recipes import recipe_jobs
from workloads.spec import JobSpec

if TYPE_CHECKING:
    import pulumi

PROJECT = "trainyard"
SECRETS = "secrets"
"""Namespace of the configuration's secrets: `pulumi config set --secret secrets:wandb`."""
SELECTION = "JOB"
"""Environment variable that names recipes, separated by commas, to run in place of the stack's jobs."""


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
    ttl_hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(default=None, examples=[12])
    """Hours after its first `make up` at which the scheduled workflow `destroy` ends the stack; by default never."""
    policy: PolicyConfig = PolicyConfig()
    """What holds here of the rules that a preview looks at."""

    @property
    def operators(self) -> frozenset[str]:
        """Names of the operators that the stack installs."""
        if isinstance(self.platform, KubeconfigConfig) and self.platform.operators == "present":
            return frozenset()
        return operators_of(self.jobs)


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
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        _refuse_repeated(yaml.compose(text, Loader=yaml.SafeLoader))
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"{path.name}: not YAML: {' '.join(str(error).split())}") from error
    except FileNotFoundError as error:
        raise ValueError(f"{path.name}: no such file; `pulumi stack ls` names the stacks that there are") from error
    config = content
    if isinstance(content, dict):
        # The file of a stack without settings has other keys.
        is_without = content.keys().isdisjoint(StackConfig.model_fields)
        config = content.get("config", {} if is_without else None)
    if not isinstance(config, dict):
        raise ValueError(f"{path.name}: has no mapping `config:`; begin it with `config:` and `  trainyard:platform:`")
    # A key without a namespace belongs to the project.
    named = {str(key) if ":" in str(key) else f"{PROJECT}:{key}": value for key, value in config.items()}
    for key in named:
        namespace, _, rest = key.partition(":")
        if namespace != PROJECT and get_close_matches(namespace, [PROJECT]):
            raise ValueError(f"{path.name}: {key}: nobody reads that; write {PROJECT}:{rest}")
    secrets = {
        key.partition(":")[2]: isinstance(value, dict) and "secure" in value
        for key, value in named.items()
        if _is_secret(key)
    }
    return parse({key.partition(":")[2]: value for key, value in named.items() if _is_ours(key)}, secrets)


def _refuse_repeated(node: Any) -> None:
    """Refuse a YAML mapping with a key that is there twice, of which PyYAML would take the last in silence."""
    import yaml

    if isinstance(node, yaml.SequenceNode):
        for each in node.value:
            _refuse_repeated(each)
    if not isinstance(node, yaml.MappingNode):
        return
    lines: dict[str, int] = {}
    for key, value in node.value:
        name, line = str(key.value), key.start_mark.line + 1
        if name in lines:
            raise yaml.constructor.ConstructorError(
                problem=f"the key {name} is in lines {lines[name]} and {line}; write it once"
            )
        lines[name] = line
        _refuse_repeated(value)


def parse(values: Mapping[str, Any], secrets: Mapping[str, bool] = MappingProxyType({})) -> StackConfig:
    """The configuration in plain values. Raises ConfigError with everything that is wrong with them.

    `secrets` has the names of the stack's secrets, true for those that are encrypted. What is wrong with single values
    comes first; what contradicts what is looked at when each value is right.
    """
    try:
        config = StackConfig.model_validate_json(json.dumps(with_recipes(values), default=str))
    except ValidationError as error:
        raise ConfigError(problems_of(error, StackConfig)) from error
    if problems := contradictions(config) or unusable_secrets(config.jobs, secrets) or _missing_here(config):
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
            raise ConfigError([Problem(("jobs", index), str(error), job)]) from error
    return {**values, "jobs": expanded}


def contradictions(config: StackConfig) -> list[Problem]:
    """Values that are right by themselves and wrong together."""
    found = rules.contradictions(config.platform)
    names: dict[str, int] = {}
    for index, job in enumerate(config.jobs):
        path = ("jobs", index)
        first = names.setdefault(job.name, index)
        if first != index:
            found.append(Problem((*path, "name"), f"is the name of jobs[{first}] too; names must differ", job.name))
        for each in conflicts(job):
            value = PydanticUndefined if each.value is None else each.value
            found.append(Problem((*path, *each.key.split(".")), each.message, value))
        if job.accelerator and isinstance(config.platform, LocalConfig):
            message = "the cluster on this machine has CPUs only; remove it, or run the job on a cloud's stack"
            found.append(Problem((*path, "accelerator"), message, job.accelerator))
    # Only where each value is right is there an answer to whether the jobs fit.
    return found or without_room(config)


def without_room(config: StackConfig) -> list[Problem]:
    """The jobs that a cloud platform has no nodes for."""
    found = []
    for misfit in misfits(config.platform, _asks(config)):
        job = config.jobs[misfit.job]
        if misfit.key == "hosts" and job.elastic:
            path = ("jobs", misfit.job, "elastic", "max_hosts")
            found.append(Problem(path, misfit.message, job.elastic.max_hosts))
            continue
        value = getattr(job, misfit.key)
        shown = value.model_dump() if isinstance(value, Section) else PydanticUndefined if value is None else value
        found.append(Problem(("jobs", misfit.job, misfit.key), misfit.message, shown))
    return found


def pools_of_jobs(config: StackConfig) -> dict[str, str | None]:
    """Job -> the pool of a cloud platform that it runs in; None where there are no pools."""
    pools = places(config.platform, _asks(config))
    return {job.name: pool for job, pool in zip(config.jobs, pools, strict=True) if not isinstance(pool, Misfit)}


def _asks(config: StackConfig) -> list[Ask]:
    return [
        Ask(
            hosts=job.hosts,
            per_host=job.resources.capacity,
            accelerator=job.accelerator,
            topology=job.topology,
            accelerators=job.accelerators,
            queue=job.queue is not None,
        )
        for job in config.jobs
    ]


def unusable_secrets(jobs: tuple[JobSpec, ...], secrets: Mapping[str, bool]) -> list[Problem]:
    """Secrets that jobs name and the stack does not have, or has in clear. No value is ever shown."""
    found = []
    for index, job in enumerate(jobs):
        for variable, name in job.secrets.items():
            path = ("jobs", index, "secrets", variable)
            if name not in secrets:
                command = "`pulumi config set --secret secrets:NAME`"
                message = f"names no secret of this stack; run {command} with that name in `make shell`"
                found.append(Problem(path, message))
            elif not secrets[name]:
                command = f"`pulumi config set --secret {SECRETS}:{name}`"
                found.append(
                    Problem(path, f"the stack's settings have {SECRETS}:{name} in clear; run {command} in `make shell`")
                )
    return found


def _missing_here(config: StackConfig) -> list[Problem]:
    """What the configuration asks for and this machine does not have."""
    if isinstance(config.platform, LocalConfig):
        return shortage(config.jobs, config.platform, this_machine())
    elsewhere = images_of_this_machine(config.jobs)
    if isinstance(config.platform, KubeconfigConfig):
        return unknown_context(config.platform) + elsewhere
    return elsewhere


def images_of_this_machine(jobs: tuple[JobSpec, ...]) -> list[Problem]:
    """The images that only the platform `local` builds, asked for elsewhere."""
    return [
        Problem(
            ("jobs", index, "image"),
            f"is built on platform local alone; build {own.dockerfile}, push it, write its reference",
            job.image,
        )
        for index, job in enumerate(jobs)
        if (own := OWN_IMAGES.get(job.image or "")) and not own.everywhere
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
        ask = job.demands[0]
        fit = hosts_that_fit(ask.per_host, node) * platform.nodes
        if ask.hosts > fit:
            remedy = f"write `hosts: {fit}` or less, or ask for less" if fit else "ask for less"
            message = f"{ask.hosts} hosts of {ask.per_host} each do not fit: {offer}, room for {fit}; {remedy}"
            found.append(Problem(("jobs", index, "hosts"), message, ask.hosts))
    asked = [(index, demand) for index, job in enumerate(jobs) for demand in job.demands]
    late = first_that_does_not_fit([demand for _, demand in asked], node, platform.nodes)
    if not found and late is not None:
        index, ask = asked[late]
        hosts = ask == jobs[index].demands[0]
        what = f"{ask.hosts} {'hosts' if hosts else 'further pods'} of {ask.per_host} each"
        above = "the jobs above" if hosts else "the job's hosts and the jobs above"
        message = f"{what} do not fit beside {above}: {offer}; ask for less"
        found.append(Problem(("jobs", index, "hosts"), message, jobs[index].hosts))
    return found


def _is_secret(key: str) -> bool:
    return key.startswith(f"{SECRETS}:")


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
