"""What in a stack's values cannot be together: jobs with each other, with their platform, with this machine. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from infra.cloud import Cloud
from infra.hardware import this_machine
from infra.make_command import make_command
from infra.settings.clear_secrets import in_variables, looks_random, shape
from infra.settings.problem import Problem
from stack_room import Jobs, shortage, without_room
from workloads import user_script
from workloads.refusals.buckets import bucket_conflicts
from workloads.refusals.conflicts import conflicts
from workloads.refusals.images import ImageOffer, image_conflicts
from workloads.refusals.taken_names import shared
from workloads.spec import JobSpec

SECRETS = "secrets"
"""Namespace of the configuration's secrets: `pulumi config set --secret secrets:wandb`."""
CHECKOUT = Path(__file__).resolve().parent
"""What the paths of the jobs' own scripts are relative to."""


def contradictions(cloud: Cloud, jobs: Jobs) -> list[Problem]:
    """Values that are right by themselves and wrong together."""
    found = cloud.problems()
    names: dict[str, int] = {}
    for index, job in enumerate(jobs):
        path = ("jobs", index)
        first = names.setdefault(job.name, index)
        if first != index:
            found.append(
                Problem(
                    "job.name.taken", (*path, "name"), f"is the name of jobs[{first}] too; names must differ", job.name
                )
            )
        # What runs a job is asked where it is clear what the job is.
        for each in [*conflicts(job), *_without_accelerators(cloud, job)] or _not_offered(cloud, job):
            found.append(each.below(*path))
    found += [each.below("jobs", index) for index, each in shared(jobs)]
    # Only where each value is right is there an answer to whether the jobs fit.
    return found or without_room(cloud, jobs)


def _without_accelerators(cloud: Cloud, job: JobSpec) -> Iterator[Problem]:
    if job.accelerator and not cloud.has_accelerators:
        message = "the cluster on this machine has CPUs only; remove it, or run the job on a cloud's stack"
        yield Problem("job.accelerator.local", ("accelerator",), message, job.accelerator)


def _not_offered(cloud: Cloud, job: JobSpec) -> Iterator[Problem]:
    """What a job asks for that its platform does not have, and another may."""
    yield from image_conflicts(job, ImageOffer(builds=cloud.built_images, pulls=cloud.pulls_images))
    if cloud.scheme:
        yield from bucket_conflicts(job, cloud.scheme)


def unusable_secrets(jobs: Jobs, secrets: Mapping[str, bool]) -> list[Problem]:
    """Secrets that jobs name and the stack does not have, or that it has in clear. No value is ever shown."""
    found = []
    for index, job in enumerate(jobs):
        for variable, name in job.secrets.items():
            path = ("jobs", index, "secrets", variable)
            if name not in secrets:
                # What was put in the place of its name is not shown.
                command = _stored("NAME" if looks_random(name) else name)
                found.append(
                    Problem(
                        "job.secrets.unknown",
                        path,
                        f"names no secret of this stack; run {command} in {make_command('shell')}",
                    )
                )
            elif not secrets[name]:
                remedy = f"run {_stored(name)} in {make_command('shell')}"
                message = f"the stack's settings have {SECRETS}:{name} in clear; {remedy}"
                found.append(Problem("job.secrets.in_clear", path, message))
    named = {name for job in jobs for name in job.secrets.values()}
    for name, encrypted in secrets.items():
        if not encrypted and name not in named:
            message = f"is in clear; run {_stored(name)} in {make_command('shell')}, or remove it, which no job names"
            found.append(Problem("stack.secrets.in_clear", (name,), message, namespace=SECRETS))
    return found


def others_in_clear(settings: Mapping[str, object]) -> list[Problem]:
    """Secrets in clear among the settings of a stack's other programs, such as `aws:secretKey`."""
    found = []
    for key, value in settings.items():
        namespace, _, name = key.partition(":")
        # Ours are looked at one by one, and any of `secrets` is one.
        if namespace not in ("trainyard", SECRETS):
            message = f"in clear; run `pulumi config set --secret {key}` in {make_command('shell')}"
            found += [
                Problem("stack.setting.in_clear", (name,), f"is {what} {message}", namespace=namespace)
                for _, what in in_variables({name: value})
            ]
    return found


def _stored(name: str) -> str:
    """The command that stores a secret encrypted."""
    return f"`pulumi config set --secret {SECRETS}:{name}`"


def never_ended(cloud: Cloud, ttl_hours: float | None) -> list[Problem]:
    """A time to live of what may not be destroyed."""
    if ttl_hours is None or not cloud.is_protected:
        return []
    message = "is for a stack that may be destroyed; remove it, or `deletion_protection` of the platform"
    return [Problem("stack.ttl_hours.protected", ("ttl_hours",), message, ttl_hours)]


def missing_here(cloud: Cloud, jobs: Jobs) -> list[Problem]:
    """What the configuration asks for and this machine does not have."""
    found = cloud.missing_here() + unreadable_scripts(jobs)
    return found + shortage(jobs, cloud.nodes_here, this_machine()) if cloud.nodes_here else found


def unreadable_scripts(jobs: Jobs) -> list[Problem]:
    """The jobs' scripts of the checkout that cannot be sent to pods."""
    found = []
    for index, job in enumerate(jobs):
        if job.script is None:
            continue
        if not user_script.is_here(job.script):
            if job.image is None and (here := user_script.remedy(job.script, CHECKOUT)):
                message = f"is a file of this checkout, and not of the image; write {here}"
                found.append(Problem("job.script.without_dot", ("jobs", index, "script"), message, job.script))
            continue
        try:
            if secret := shape(user_script.read(job.script, CHECKOUT).text):
                raise ValueError(f"has {secret} in clear; let it read a variable, and write `secrets:` in the job")
        except ValueError as error:
            found.append(Problem("job.script.unreadable", ("jobs", index, "script"), str(error), job.script))
    return found
