"""Validation of a stack: conflicts of jobs with each other, with their platform and with this machine. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from infra.cloud import Cloud
from infra.hardware import this_machine
from infra.make_command import make_command
from settings.problem import Invalid, Problem
from settings.secret_scan import in_variables, looks_random, shape
from stack.placement import Jobs, local_capacity_problems, unschedulable_jobs
from workloads import user_script
from workloads.spec import JobSpec
from workloads.validation.conflicts import conflicts
from workloads.validation.flags import bucket_conflicts
from workloads.validation.images import ImageSources, image_conflicts
from workloads.validation.names import shared

SECRETS = "secrets"
"""Namespace of the configuration's secrets: `pulumi config set --secret secrets:wandb`."""
CHECKOUT = Path(__file__).resolve().parents[1]
"""Folder that the paths of user scripts are relative to."""


def configuration_conflicts(cloud: Cloud, jobs: Jobs) -> list[Problem]:
    """Return the conflicts between values that are valid by themselves."""
    found = cloud.problems()
    names: dict[str, int] = {}
    for index, job in enumerate(jobs):
        path = ("jobs", index)
        first = names.setdefault(job.name, index)
        if first != index:
            found.append(
                Problem(
                    "job.name.taken",
                    (*path, "name"),
                    f"is also the name of jobs[{first}]; names must be unique",
                    job.name,
                )
            )
        # Check the platform only for a job without other conflicts.
        for each in [*conflicts(job), *_without_accelerators(cloud, job)] or _not_offered(cloud, job):
            found.append(each.below(*path))
    found += [each.below("jobs", index) for index, each in shared(jobs)]
    # Check the capacity only if all values are valid.
    return found or unschedulable_jobs(cloud, jobs)


def _without_accelerators(cloud: Cloud, job: JobSpec) -> Iterator[Problem]:
    if job.accelerator and not cloud.has_accelerators:
        message = "the cluster on this machine has only CPUs; remove it, or run the job on a cloud stack"
        yield Problem("job.accelerator.local", ("accelerator",), message, job.accelerator)


def _not_offered(cloud: Cloud, job: JobSpec) -> Iterator[Problem]:
    """Yield the requirements of a job that its platform does not meet, but another platform can."""
    yield from image_conflicts(job, ImageSources(builds=cloud.built_images, pulls=cloud.pulls_images))
    if cloud.scheme:
        yield from bucket_conflicts(job, cloud.scheme)


def unusable_secrets(jobs: Jobs, secrets: Mapping[str, bool]) -> list[Problem]:
    """Return the secrets that jobs use but the stack lacks or has in clear. Secret values never appear in messages."""
    found = []
    for index, job in enumerate(jobs):
        for variable, name in job.secrets.items():
            path = ("jobs", index, "secrets", variable)
            if name not in secrets:
                # A value in place of its name may be a secret, so do not show it.
                command = _stored("NAME" if looks_random(name) else name)
                found.append(
                    Problem(
                        "job.secrets.unknown",
                        path,
                        f"is not a secret of this stack; run {command} in {make_command('shell')}",
                    )
                )
            elif not secrets[name]:
                remedy = f"run {_stored(name)} in {make_command('shell')}"
                message = f"the stack's settings contain {SECRETS}:{name} in clear; {remedy}"
                found.append(Problem("job.secrets.in_clear", path, message))
    named = {name for job in jobs for name in job.secrets.values()}
    for name, encrypted in secrets.items():
        if not encrypted and name not in named:
            message = (
                f"is in clear; run {_stored(name)} in {make_command('shell')}, or remove it, because no job uses it"
            )
            found.append(Problem("stack.secrets.in_clear", (name,), message, namespace=SECRETS))
    return found


def settings_in_clear(settings: Mapping[str, object]) -> list[Problem]:
    """Return the secrets in clear among settings of other namespaces, such as `aws:secretKey`."""
    found = []
    for key, value in settings.items():
        namespace, _, name = key.partition(":")
        # Trainyard's settings have their own checks, and `secrets` contains only secrets.
        if namespace not in ("trainyard", SECRETS):
            message = f"in clear; run `pulumi config set --secret {key}` in {make_command('shell')}"
            found += [
                Problem("stack.setting.in_clear", (name,), f"is {what} {message}", namespace=namespace)
                for _, what in in_variables({name: value})
            ]
    return found


def _stored(name: str) -> str:
    """Return the command that stores an encrypted secret."""
    return f"`pulumi config set --secret {SECRETS}:{name}`"


def protected_despite_ttl(cloud: Cloud, ttl_hours: float | None) -> list[Problem]:
    """Return a problem if a stack with a time to live is protected against deletion."""
    if ttl_hours is None or not cloud.is_protected:
        return []
    message = "needs a stack that can be destroyed; remove it, or the platform's `deletion_protection`"
    return [Problem("stack.ttl_hours.protected", ("ttl_hours",), message, ttl_hours)]


def machine_problems(cloud: Cloud, jobs: Jobs) -> list[Problem]:
    """Return the requirements of the configuration that this machine does not meet."""
    found = cloud.machine_problems() + unreadable_scripts(jobs)
    return found + local_capacity_problems(jobs, cloud.nodes_here, this_machine()) if cloud.nodes_here else found


def unreadable_scripts(jobs: Jobs) -> list[Problem]:
    """Return a problem for each user script that cannot be sent to pods."""
    found = []
    for index, job in enumerate(jobs):
        if job.script is None:
            continue
        if not user_script.is_here(job.script):
            if job.image is None and (here := user_script.remedy(job.script, CHECKOUT)):
                message = f"is a file of this checkout, not of the image; write {here}"
                found.append(Problem("job.script.without_dot", ("jobs", index, "script"), message, job.script))
            continue
        try:
            if secret := shape(user_script.read(job.script, CHECKOUT).text):
                raise Invalid(
                    "secret", f"contains {secret} in clear; read it from a variable, and write `secrets:` in the job"
                )
        except Invalid as error:
            found.append(Problem(f"job.script.{error.code}", ("jobs", index, "script"), str(error), job.script))
    return found
