"""Validation of a stack: conflicts of its jobs with each other, with the platform and with this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from infra.builtin_images import JobLayer
from infra.cloud import Cloud
from infra.hardware import this_machine
from infra.make_command import secret_command
from infra.project import CHECKOUT, project_folder
from settings.problem import Invalid, Problem, looks_random, secrets_in_variables, token_kind
from stack.placement import Jobs, local_capacity_problems, unschedulable_jobs
from workloads import user_files
from workloads.command import BUCKET_PATH
from workloads.kinds import KINDS
from workloads.kinds.kind import ETCD_SUFFIX
from workloads.spec import JobSpec
from workloads.text_folder import check_texts
from workloads.user_files import DataSource, bucket_source, folder_source
from workloads.validation.conflicts import conflicts
from workloads.validation.flags import bucket_conflicts
from workloads.validation.images import ImageSources, image_conflicts, package_conflicts

SECRETS = "secrets"
"""Namespace of the secrets in a stack's file, as in `pulumi config set --secret secrets:wandb`."""
SHARED_FOLDERS = ("checkpoints", "profiles")
"""Folders of the bucket that all jobs share, as in trainer/rules.py."""


def configuration_conflicts(cloud: Cloud, jobs: Jobs) -> list[Problem]:
    """Return the conflicts between values that are valid by themselves."""
    problems = cloud.problems()
    names: dict[str, int] = {}
    for index, job in enumerate(jobs):
        path = ("jobs", index)
        first = names.setdefault(job.name, index)
        if first != index:
            message = f"is also the name of jobs[{first}]; names must be unique; rename one of the two"
            problems.append(Problem("job.name.taken", (*path, "name"), message, job.name))
        # Check the platform only for a job without other conflicts.
        for problem in [*conflicts(job), *_missing_accelerators(cloud, job)] or _platform_conflicts(cloud, job):
            problems.append(problem.below(*path))
    problems += [problem.below("jobs", index) for index, problem in _name_collisions(jobs)]
    # Check the capacity only if all values are valid.
    return problems or unschedulable_jobs(cloud, jobs)


def _reserved_names(spec: JobSpec) -> Iterator[str]:
    """Yield the job's name and all names derived from it."""
    yield spec.name
    for suffix in KINDS[spec.kind].child_suffixes(spec):
        yield f"{spec.name}{suffix}"
    if spec.rendezvous_backend == "etcd":
        yield f"{spec.name}{ETCD_SUFFIX}"


def _name_collisions(jobs: Sequence[JobSpec]) -> Iterator[tuple[int, Problem]]:
    """Yield the collisions of jobs in derived names or in folders of the bucket, with the index of the later job."""
    yield from _derived_name_collisions(jobs)
    folders: dict[tuple[object, object], int] = {}
    for index, job in enumerate(jobs):
        path, folder = ("flags", "job") if "job" in job.flags else ("name",), job.bucket_folder
        bucket = job.flag("bucket") or ""
        if folder in SHARED_FOLDERS:
            message = f"is the bucket's folder for the {folder} of all jobs; rename the job, or change the flag `job`"
            yield index, Problem("job.folder.shared_by_all_jobs", path, message, folder)
        other = folders.setdefault((bucket, folder), index)
        if jobs[other].name != job.name:
            message = f"jobs[{other}] also has the bucket's folder {folder}; rename the job, or change the flag `job`"
            yield index, Problem("job.folder.shared", path, message, folder)


def _derived_name_collisions(jobs: Sequence[JobSpec]) -> Iterator[tuple[int, Problem]]:
    owners: dict[str, int] = {}
    reported = set[tuple[int, int]]()
    for index, job in enumerate(jobs):
        for name in _reserved_names(job):
            other = owners.setdefault(name, index)
            if jobs[other].name != job.name and (index, other) not in reported:
                reported.add((index, other))
                message = f"creates an object named {name}, as jobs[{other}] does; rename one of the two jobs"
                yield index, Problem("job.name.shared", ("name",), message, job.name)


def _missing_accelerators(cloud: Cloud, job: JobSpec) -> Iterator[Problem]:
    if job.accelerator and not cloud.has_accelerators:
        message = "the cluster on this machine has only CPUs; remove `accelerator`, or run the job on a cloud stack"
        yield Problem("job.accelerator.local", ("accelerator",), message, job.accelerator)


def _platform_conflicts(cloud: Cloud, job: JobSpec) -> Iterator[Problem]:
    """Yield a problem for each requirement of a job that its platform does not meet. Another platform may meet it."""
    sources = ImageSources(builds=cloud.built_images, pulls=cloud.pulls_images)
    yield from image_conflicts(job, sources)
    yield from package_conflicts(job, sources)
    if job.data and not cloud.nodes_here:
        try:
            data_source(cloud, job)
        except Invalid as error:
            yield Problem(f"job.data.{error.code}", ("data",), str(error), job.data)
    if cloud.scheme:
        yield from bucket_conflicts(job, cloud.scheme)


def data_source(cloud: Cloud, job: JobSpec) -> DataSource | None:
    """Return the source of a job's data, or None without `data`. Raises Invalid."""
    if job.data is None:
        return None
    if cloud.nodes_here:
        return folder_source(job.data, project_folder())
    return bucket_source(job, job.data, bucket_folder=None if cloud.scheme else BUCKET_PATH)


def unusable_secrets(jobs: Jobs, secrets: Mapping[str, bool]) -> list[Problem]:
    """Return a problem for each secret that is in plain text or not in the stack. Never show a secret's value."""
    problems = []
    for index, job in enumerate(jobs):
        for variable, name in job.secrets.items():
            path = ("jobs", index, "secrets", variable)
            if name not in secrets:
                # If the name looks random, the name may be the secret itself, so do not show the name.
                command = _store_command("NAME" if looks_random(name) else name)
                problems.append(Problem("job.secrets.unknown", path, f"is not a secret of this stack; run {command}"))
            elif not secrets[name]:
                remedy = f"run {_store_command(name)}"
                message = f"the stack's settings contain {SECRETS}:{name} in plain text; {remedy}"
                problems.append(Problem("job.secrets.in_clear", path, message))
    used_names = {name for job in jobs for name in job.secrets.values()}
    for name, is_encrypted in secrets.items():
        if not is_encrypted and name not in used_names:
            message = f"is in plain text; run {_store_command(name)}, or remove the secret, which no job uses"
            problems.append(Problem("stack.secrets.in_clear", (name,), message, namespace=SECRETS))
    return problems


def settings_in_clear(settings: Mapping[str, object]) -> list[Problem]:
    """Return a problem for each plain-text secret in a setting of another namespace, such as `aws:secretKey`."""
    problems = []
    for key, value in settings.items():
        namespace, _, name = key.partition(":")
        # Trainyard's settings have their own checks, and `unusable_secrets` checks the namespace `secrets`.
        if namespace not in ("trainyard", SECRETS):
            message = f"in plain text; run {secret_command(key)}"
            problems += [
                Problem("stack.setting.in_clear", (name,), f"is {noun} {message}", namespace=namespace)
                for _, noun in secrets_in_variables({name: value})
            ]
    return problems


def _store_command(name: str) -> str:
    return secret_command(f"{SECRETS}:{name}")


def protected_despite_ttl(cloud: Cloud, ttl_hours: float | None) -> list[Problem]:
    """Return a problem if a stack with `ttl_hours` is protected against deletion."""
    if ttl_hours is None or not cloud.is_protected:
        return []
    message = "the stack has deletion protection; remove `ttl_hours`, or the platform's `deletion_protection`"
    return [Problem("stack.ttl_hours.protected", ("ttl_hours",), message, ttl_hours)]


def machine_problems(cloud: Cloud, jobs: Jobs) -> list[Problem]:
    """Return a problem for each requirement of the configuration that this machine does not meet."""
    problems = cloud.machine_problems() + unreadable_scripts(cloud, jobs) + unreadable_requirements(jobs)
    if cloud.nodes_here:
        problems += _unusable_folders(cloud, jobs)
        problems += local_capacity_problems(jobs, cloud.nodes_here, this_machine())
    return problems


def separate_inputs(cloud: Cloud, jobs: Jobs) -> frozenset[str]:
    """Return the paths that Trainyard does not send with a script: requirements, and data folders on `local`."""
    found = {path for job in jobs for path in (job.requirements, job.data if cloud.nodes_here else None)}
    return frozenset(path for path in found if path)


def job_layer(job: JobSpec, built_images: frozenset[str], left_out: frozenset[str]) -> JobLayer | None:
    """Return the image layer with a job's packages and a script that is too large for a ConfigMap, or None.

    `left_out` are the paths that Trainyard does not send with a script. Raises Invalid for invalid files.
    """
    requirements = user_files.read_requirements(job.requirements, project_folder()) if job.requirements else ""
    files: tuple[tuple[str, str], ...] = ()
    if job.script and user_files.is_in_project(job.script):
        script = user_files.read_script(job.script, project_folder(), left_out)
        if script.needs_layer and job.image_ref.builtin not in built_images:
            raise script.size_error(user_files.MAX_SCRIPT_BYTES, "a ConfigMap")
        files = tuple(sorted(script.files.items())) if script.needs_layer else ()
    base = job.image_ref.builtin
    return JobLayer(base=base, requirements=requirements, files=files) if base and (requirements or files) else None


def unreadable_scripts(cloud: Cloud, jobs: Jobs) -> list[Problem]:
    """Return a problem for each user script that Trainyard cannot copy into pods."""
    problems = []
    left_out = separate_inputs(cloud, jobs)
    for index, job in enumerate(jobs):
        if job.script is None:
            continue
        if not user_files.is_in_project(job.script):
            if not job.has_user_image and (path := user_files.project_path(job.script, project_folder())):
                owner = "this checkout" if project_folder() == CHECKOUT else f"the project {project_folder()}"
                message = f"is a file of {owner}, not of the image; write {path}"
                problems.append(Problem("job.script.without_dot", ("jobs", index, "script"), message, job.script))
            continue
        try:
            script = user_files.read_script(job.script, project_folder(), left_out)
            for path, text in script.files.items():
                if noun := token_kind(text):
                    message = f"{path} contains {noun} in plain text"
                    raise Invalid("secret", f"{message}; read the secret from a variable of `secrets:` in the job")
            if job.image_ref.builtin and cloud.python_version:
                user_files.check_syntax(script, cloud.python_version)
            job_layer(job.model_copy(update={"requirements": None}), cloud.built_images, left_out)
        except Invalid as error:
            problems.append(Problem(f"job.script.{error.code}", ("jobs", index, "script"), str(error), job.script))
    return problems


def unreadable_requirements(jobs: Jobs) -> list[Problem]:
    """Return a problem for each requirements file whose packages Trainyard cannot add to an image."""
    problems = []
    for index, job in enumerate(jobs):
        if job.requirements is None:
            continue
        try:
            user_files.read_requirements(job.requirements, project_folder())
        except Invalid as error:
            path = ("jobs", index, "requirements")
            problems.append(Problem(f"job.requirements.{error.code}", path, str(error), job.requirements))
    return problems


def _unusable_folders(cloud: Cloud, jobs: Jobs) -> Iterator[Problem]:
    """Yield a problem for each data folder that pods on this machine cannot read or train on."""
    for index, job in enumerate(jobs):
        try:
            if (source := data_source(cloud, job)) and source.folder:
                check_texts(job, source.folder)
        except Invalid as error:
            yield Problem(f"job.data.{error.code}", ("jobs", index, "data"), str(error), job.data)
