"""Validation of keys that are valid alone but not together, such as kind and hardware, or hosts and topology."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from infra.make_command import secret_command
from settings.kubernetes_values import LABEL_LIMIT, format_memory, parse_memory
from settings.problem import UNDEFINED, Path, Problem, secrets_in_arguments, secrets_in_variables
from workloads.command import NEW_STORE_PER_ROUND, POD_VARIABLES, has_trainer, uses_torchrun
from workloads.kinds import KINDS, kinds_where
from workloads.spec import XLA_IMAGE, JobSpec, default_hosts
from workloads.trainer_flags import flag_problems
from workloads.user_files import data_conflicts, path_error
from workloads.validation.flags import device_conflicts, folder_conflicts, language_conflicts, unused_flags

MIN_MEMORY_BYTES = 200 * 2**20
"""Minimum memory of a recipe's process. It rejects only what certainly fails: importing torch alone takes 290 MiB."""
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Control characters except white space."""
_REFERENCE = re.compile(r"\$\((\w+)\)")
"""Reference to a variable, which Kubernetes would expand. Trainyard escapes it, so the program gets it unchanged."""


def conflicts(spec: JobSpec) -> list[Problem]:
    """Return the problems of `spec`, in the order of the rules."""
    return [conflict for rule in _RULES for conflict in rule(spec)]


def _problem(code: str, spec: JobSpec, key: str, message: str) -> Problem:
    return Problem(code, (key,), message, getattr(spec, key))


def _program(spec: JobSpec) -> Iterator[Problem]:
    if spec.recipe is None and spec.script is None:
        message = "is missing; a job runs a recipe or a script; add `recipe: digits`, or `script:` with your file"
        yield Problem("job.recipe.missing", ("recipe",), message)
    elif spec.recipe and spec.script:
        yield _problem("job.script.with_recipe", spec, "script", "is not allowed with `recipe`; remove one of the two")
    elif spec.script and (error := path_error(spec.script)):
        yield _problem(f"job.script.{error.code}", spec, "script", str(error))
    elif spec.recipe and not KINDS[spec.kind].runs_recipes:
        message = (
            f"a job of kind {spec.kind} cannot run recipes, which need torch's process group; write `script:` with "
            "your file"
        )
        yield _problem("job.recipe.needs_torch", spec, "recipe", message)
    if spec.args and spec.script is None:
        message = "only a script has arguments; write `flags` for a recipe"
        yield Problem("job.args.without_script", ("args",), message, list(spec.args))
    if spec.flags and spec.recipe is None:
        yield _problem("job.flags.without_recipe", spec, "flags", "only a recipe has flags; write `args` for a script")


def _flags(spec: JobSpec) -> Iterator[Problem]:
    if spec.recipe is None:
        return
    secrets = dict(secrets_in_variables(spec.flags))
    problems = flag_problems(spec.recipe, spec.flags, has_user_image=spec.has_user_image)
    yield from (problem for problem in problems if problem.path[-1] not in secrets)
    values = {name: spec.flag(name) for name in ("fake_data", "data_dir")}
    if values["fake_data"] is False and not (values["data_dir"] or spec.data) and not spec.has_user_image:
        message = "requires images; write their location as `data`, or as the flag `data_dir`, or remove this flag"
        yield Problem("job.fake_data.no_data_dir", ("flags", "fake_data"), message, False)
    if spec.flag("wandb") == "online" and "WANDB_API_KEY" not in spec.secrets:
        remedy = f"`secrets: {{WANDB_API_KEY: NAME}}` and run {secret_command('secrets:NAME')}"
        yield Problem(
            "job.wandb.no_key", ("flags", "wandb"), f"requires an API key; add {remedy}, or write offline", "online"
        )
    if spec.on_xla and spec.flag("compile") is True:
        yield Problem(
            "job.compile.on_xla", ("flags", "compile"), "XLA always compiles each step; remove this flag", True
        )
    if not spec.has_user_image:
        yield from unused_flags(spec)


def _torchrun(spec: JobSpec) -> Iterator[Problem]:
    if spec.torchrun:
        return
    if spec.script is None:
        message = "is allowed only with `script`, because torchrun starts the processes of a recipe; remove this key"
        yield _problem("job.torchrun.with_recipe", spec, "torchrun", message)
    elif not uses_torchrun(spec.model_validate(spec.model_dump(exclude_unset=True, exclude={"torchrun"}))):
        message = "has no effect, because this job does not use torchrun; remove this key"
        yield _problem("job.torchrun.without_effect", spec, "torchrun", message)
    elif key := next((key for key in ("elastic", "rendezvous") if getattr(spec, key)), None):
        yield _problem("job.torchrun.needed", spec, "torchrun", f"`{key}` requires torchrun; remove one of the two")
    elif spec.processes_per_host > 1:
        message = "several processes per host require torchrun; remove this key, or write `processes_per_host: 1`"
        yield _problem("job.torchrun.several_processes", spec, "torchrun", message)


def _hardware(spec: JobSpec) -> Iterator[Problem]:
    kind = KINDS[spec.kind]
    if spec.tpu and kind.no_tpu:
        kinds = kinds_where(lambda candidate: not candidate.no_tpu)
        yield _problem("job.kind.not_on_tpus", spec, "kind", f"cannot run on TPUs: {kind.no_tpu}; write {kinds}")
    elif spec.slices > 1 and spec.tpu is None:
        message = "is allowed only for jobs on TPUs; write `slices: 1`, or remove this key"
        yield _problem("job.slices.without_tpu", spec, "slices", message)
    elif spec.slices > 1 and not kind.has_slices:
        kinds = kinds_where(lambda candidate: candidate.has_slices)
        message = f"a job of kind {spec.kind} runs on one TPU slice; write {kinds}, or `slices: 1`"
        yield _problem("job.slices.kind", spec, "slices", message)
    elif spec.slices > 1 and spec.tpu and spec.tpu.hosts == 1:
        # https://cloud.google.com/tpu/docs/tpu-gke-multislice
        message = "GKE connects only slices of several hosts; write `slices: 1`, or a larger accelerator"
        yield _problem("job.slices.one_host", spec, "slices", message)
    if spec.accelerators_per_host is not None and (spec.accelerator is None or spec.tpu):
        message = (
            "is allowed only for GPUs; remove this key"
            if spec.tpu
            else "requires a GPU; add for example `accelerator: nvidia-l4`"
        )
        yield _problem("job.accelerators_per_host.without_gpu", spec, "accelerators_per_host", message)
    if spec.tpu and spec.processes_per_host not in (1, chips := spec.tpu.chips_per_host):
        message = f"must be 1 (one process for all chips of a TPU host) or {chips} (one for each); write one of them"
        yield _problem("job.processes_per_host.wrong_for_tpu_host", spec, "processes_per_host", message)
    elif spec.tpu and spec.slices > 1 and spec.processes_per_host > 1:
        message = "must be 1 on several slices; remove this key"
        yield _problem("job.processes_per_host.several_on_slices", spec, "processes_per_host", message)


def _runtime(spec: JobSpec) -> Iterator[Problem]:
    if spec.runtime == "torch" and spec.tpu:
        yield _problem(
            "job.runtime.torch_on_tpu",
            spec,
            "runtime",
            "PyTorch uses TPUs only through XLA; write xla, or remove this key",
        )
    elif spec.runtime == "xla" and not KINDS[spec.kind].runs_recipes:
        message = f"a job of kind {spec.kind} does not start PyTorch/XLA; remove this key"
        yield _problem("job.runtime.without_pytorch", spec, "runtime", message)
    elif spec.runtime == "xla" and spec.accelerator and spec.tpu is None and not spec.has_user_image:
        message = "PyTorch/XLA has not supported CUDA since 2.8; add `image:` with an older version, or remove this key"
        yield _problem("job.runtime.xla_on_gpu", spec, "runtime", message)


def _elastic(spec: JobSpec) -> Iterator[Problem]:
    if spec.elastic is None:
        return
    min_hosts, max_hosts = spec.elastic.min_hosts, spec.elastic.max_hosts
    value = {"min_hosts": min_hosts, "max_hosts": max_hosts}
    if min_hosts > max_hosts:
        message = f"must be at most max_hosts, {max_hosts}; lower min_hosts or raise max_hosts"
        yield Problem("job.elastic.range", ("elastic", "min_hosts"), message, min_hosts)
    if not KINDS[spec.kind].is_elastic:
        kinds = kinds_where(lambda candidate: candidate.is_elastic)
        yield Problem(
            "job.elastic.kind", ("elastic",), f"a job of kind {spec.kind} cannot be elastic; write {kinds}", value
        )
    elif spec.restarts == 0:
        message = "an elastic job needs a restart when a host leaves; write `restarts: 1` or more"
        yield _problem("job.restarts.zero_for_elastic", spec, "restarts", message)
    if spec.tpu:
        yield Problem(
            "job.elastic.tpu", ("elastic",), "a TPU slice trains only with all its hosts; remove this key", value
        )


def _hosts(spec: JobSpec) -> Iterator[Problem]:
    expected = default_hosts(vars(spec))
    if spec.tpu and spec.hosts != expected:
        slices = f"{spec.slices} x {spec.tpu.topology_label} of {spec.tpu.generation}"
        message = (
            f"{slices} has {expected} hosts of {spec.tpu.chips_per_host} chips; write {expected}, or remove this key"
        )
        yield _problem("job.hosts.differ_from_slice", spec, "hosts", message)
    elif spec.elastic and spec.hosts != expected:
        message = f"must be elastic.max_hosts, {expected}, for an elastic job; remove this key"
        yield _problem("job.hosts.differ_from_elastic", spec, "hosts", message)


def _rendezvous(spec: JobSpec) -> Iterator[Problem]:
    if spec.rendezvous is None:
        return
    allowed = KINDS[spec.kind].rendezvous
    if not allowed:
        message = f"a job of kind {spec.kind} does not run torchrun; remove this key"
        yield _problem("job.rendezvous.kind_without_torchrun", spec, "rendezvous", message)
    elif spec.tpu and spec.processes_per_host == 1:
        yield _problem(
            "job.rendezvous.unused_on_tpu_hosts",
            spec,
            "rendezvous",
            "TPU hosts do not use a rendezvous; remove this key",
        )
    elif spec.torchrun and not uses_torchrun(spec):
        message = "requires torchrun, which this job does not use; remove this key"
        yield _problem("job.rendezvous.without_torchrun", spec, "rendezvous", message)
    elif spec.rendezvous not in allowed:
        backends = [backend for backend in allowed if not (spec.elastic and backend == "static")] or allowed
        names = " or ".join(backends)
        message = f"must be {names} for a job of kind {spec.kind}; write {backends[0]}, or remove this key"
        yield _problem("job.rendezvous.kind", spec, "rendezvous", message)
    elif spec.elastic and spec.rendezvous == "static":
        message = "hosts cannot leave or join a static rendezvous; write c10d or etcd"
        yield _problem("job.rendezvous.static_elastic", spec, "rendezvous", message)


def _kind(spec: JobSpec) -> Iterator[Problem]:
    yield from KINDS[spec.kind].problems(spec)
    for kind in KINDS.values():
        for key in set(kind.own_keys) - set(KINDS[spec.kind].own_keys):
            if (value := getattr(spec, key)) != JobSpec.model_fields[key].default:
                message = f"is allowed only for jobs of kind {kind.name}; remove this key"
                yield Problem(f"job.{key}.kind", (key,), message, value)


def _network_check(spec: JobSpec) -> Iterator[Problem]:
    if spec.min_bandwidth_gbps is None:
        return
    if not uses_torchrun(spec):
        message = "requires torchrun, which this job does not use; remove this key"
        yield _problem("job.min_bandwidth_gbps.without_torchrun", spec, "min_bandwidth_gbps", message)
    elif spec.script and not has_trainer(spec):
        message = "requires the trainer's image, which measures the bandwidth; remove this key, or remove `image`"
        yield _problem("job.min_bandwidth_gbps.with_user_image", spec, "min_bandwidth_gbps", message)
    elif spec.hosts == 1 or spec.interactive:
        message = "requires at least two hosts, and a job that is not interactive; remove this key"
        yield _problem("job.min_bandwidth_gbps.one_host_or_interactive", spec, "min_bandwidth_gbps", message)


def _memory(spec: JobSpec) -> Iterator[Problem]:
    memory, minimum = spec.resources.capacity.memory, MIN_MEMORY_BYTES * spec.processes_per_host
    if spec.recipe and memory < minimum:
        processes = f"{spec.processes_per_host} processes need" if spec.processes_per_host > 1 else "a process needs"
        message = f"{processes} more for Python and torch alone; write {format_memory(minimum)} or more"
        yield Problem("job.resources.memory_too_small", ("resources", "memory"), message, spec.resources.memory)
    elif parse_memory(spec.shared_memory) >= memory:
        message = f"must be less than resources.memory, {spec.resources.memory}, which includes it"
        yield _problem(
            "job.shared_memory.too_large", spec, "shared_memory", f"{message}; lower it or raise resources.memory"
        )


def _texts(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for control characters, and for each `$(NAME)` that a user may expect Kubernetes to expand."""
    values: dict[Path, str] = {
        **{("args", index): word for index, word in enumerate(spec.args)},
        **{("environment", name): value for name, value in spec.environment.items()},
    }
    for key, value in values.items():
        if _CONTROL_CHARACTERS.search(value):
            message = "contains a control character; remove the character, or write an escape sequence"
            yield Problem("job.text.control_character", key, message, value)
        for name in _REFERENCE.findall(value):
            if name in spec.environment or name in spec.secrets or name.startswith("TRAINYARD_"):
                message = f"$({name}) is not expanded; remove this text, and read the variable {name} in the program"
                yield Problem("job.text.reference", key, message, value)


def _secrets(spec: JobSpec) -> Iterator[Problem]:
    store = f"and run {secret_command('secrets:NAME')}"
    for name, noun in secrets_in_variables(spec.flags):
        remedy = f"remove this flag, and write `secrets: {{VARIABLE: NAME}}` {store}"
        yield Problem("job.flags.secret", ("flags", name), f"is {noun} in plain text; {remedy}")
    for name, noun in secrets_in_variables(spec.environment):
        message = f"is {noun} in plain text; write `secrets: {{{name}: NAME}}` {store}"
        yield Problem("job.environment.secret", ("environment", name), message)
    for index, noun in secrets_in_arguments(spec.args):
        remedy = f"read a variable instead, write `secrets: {{VARIABLE: NAME}}` {store}"
        yield Problem("job.args.secret", ("args", index), f"is {noun} in plain text; {remedy}")
    for name in spec.environment.keys() & spec.secrets.keys():
        yield Problem(
            "job.environment.also_secret", ("environment", name), "is also in `secrets`; remove one of the two"
        )


def _environment(spec: JobSpec) -> Iterator[Problem]:
    owners = _reserved_variables(spec)
    for key, variables in (("environment", spec.environment), ("secrets", spec.secrets)):
        for name in variables:
            value = spec.environment[name] if key == "environment" else UNDEFINED
            if name in owners:
                message = f"is set by {owners[name]}; remove this variable"
                yield Problem("job.environment.reserved", (key, name), message, value)
            elif name == "PJRT_DEVICE" and spec.image_ref.builtin not in ("", XLA_IMAGE):
                message = "requires PyTorch/XLA, which is in another image; write `runtime: xla` instead"
                yield Problem("job.environment.pjrt_device", (key, name), message, value)
            elif key == "secrets" and name in POD_VARIABLE_NAMES:
                message = "is set in every pod and is not a secret; move the variable to `environment`, or remove it"
                yield Problem("job.secrets.set_in_pods", (key, name), message)


def _queue(spec: JobSpec) -> Iterator[Problem]:
    if spec.queue and not KINDS[spec.kind].is_queueable:
        message = f"Kueue does not support jobs of kind {spec.kind}, so the job would start at once; remove this key"
        yield _problem("job.queue.kind", spec, "queue", message)
    elif spec.queue and spec.suspend:
        message = "Kueue suspends and resumes jobs in a queue; remove `suspend` or `queue`"
        yield _problem("job.suspend.in_queue", spec, "suspend", message)


def _name(spec: JobSpec) -> Iterator[Problem]:
    suffix = KINDS[spec.kind].longest_suffix(spec)
    if len(spec.name) > (limit := LABEL_LIMIT - len(suffix)):
        message = (
            f"must have at most {limit} characters, because derived names add {suffix!r} and the limit is {LABEL_LIMIT}"
            "; shorten it"
        )
        yield _problem("job.name.too_long", spec, "name", message)


_RULES: tuple[Callable[[JobSpec], Iterator[Problem]], ...] = (
    _name,
    _program,
    _flags,
    data_conflicts,
    folder_conflicts,
    device_conflicts,
    language_conflicts,
    _torchrun,
    _hardware,
    _runtime,
    _elastic,
    _hosts,
    _rendezvous,
    _kind,
    _network_check,
    _memory,
    _texts,
    _secrets,
    _environment,
    _queue,
)


TORCHRUN_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""Variables that torchrun sets: https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables"""
XLA_VARIABLES = ("PJRT_DEVICE", "MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID")
TPU_HOST_VARIABLES = ("TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "TPU_TOPOLOGY", "TPU_ACCELERATOR_TYPE")
"""Variables that GKE sets on TPU hosts: https://cloud.google.com/kubernetes-engine/docs/how-to/tpus"""
POD_VARIABLE_NAMES = (*(name.partition("=")[0] for name in POD_VARIABLES), "OMP_NUM_THREADS", *NEW_STORE_PER_ROUND)
"""Variables that the image or Trainyard sets in pods. `environment` may override them, but `secrets` may not."""


def _reserved_variables(spec: JobSpec) -> dict[str, str]:
    """Return each variable that a job may not set -> the program that sets it."""
    owners = dict.fromkeys(TORCHRUN_VARIABLES, "torchrun") if uses_torchrun(spec) else {}
    kind = KINDS[spec.kind]
    owners |= {**dict.fromkeys(kind.operator_variables, "the operator"), **kind.reserved_variables}
    if spec.on_xla:
        owners |= dict.fromkeys(XLA_VARIABLES, "Trainyard")
    if spec.tpu:
        owners |= dict.fromkeys(TPU_HOST_VARIABLES, "GKE")
    if spec.elastic and uses_torchrun(spec):
        owners |= dict.fromkeys(NEW_STORE_PER_ROUND, "Trainyard")
    return owners
