"""Validation of keys that are valid alone but conflict: kind and hardware, elastic range, names. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from infra.hardware import format_memory, parse_memory
from infra.naming import LABEL_LIMIT
from settings.problem import UNDEFINED, Path, Problem
from settings.secret_scan import in_arguments, in_variables
from workloads.command import uses_torchrun
from workloads.kinds import KINDS, kinds_where
from workloads.spec import JobSpec, default_hosts
from workloads.trainer_flags import flag_problems, value_of
from workloads.user_script import wrong_path
from workloads.validation.devices import device_conflicts
from workloads.validation.folders import folder_conflicts
from workloads.validation.reserved_variables import NO_SECRETS, taken
from workloads.validation.unused_flags import unused_flags

LEAST_MEMORY = 200 * 2**20
"""Minimum memory of a recipe's process. An imported torch alone uses 290 MiB."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Control characters except white space."""
_REFERENCE = re.compile(r"\$\((\w+)\)")
"""Reference to a variable in a Kubernetes manifest. Kubernetes does not expand it in a job's texts."""


def conflicts(spec: JobSpec) -> list[Problem]:
    """Return the problems of `spec`, in the order of the rules."""
    return [conflict for rule in _RULES for conflict in rule(spec)]


def _what_runs(spec: JobSpec) -> Iterator[Problem]:
    if spec.recipe is None and spec.script is None:
        yield Problem(
            "job.recipe.missing",
            ("recipe",),
            "is missing: what is trained; add `recipe: digits`, or `script:` with a file of yours",
        )
    elif spec.recipe and spec.script:
        yield Problem(
            "job.script.with_recipe", ("script",), "is not allowed beside `recipe`; remove one of the two", spec.script
        )
    elif spec.script and (wrong := wrong_path(spec.script)):
        yield Problem(f"job.script.{wrong.code}", ("script",), str(wrong), spec.script)
    elif spec.recipe and not KINDS[spec.kind].runs_recipes:
        message = f"needs torch, which a job of kind {spec.kind} does not start; write `script:` with a file of yours"
        yield Problem("job.recipe.needs_torch", ("recipe",), message, spec.recipe)
    if spec.args and spec.script is None:
        yield Problem(
            "job.args.without_script", ("args",), "are of a script; write `flags` for a recipe", list(spec.args)
        )
    if spec.flags and spec.recipe is None:
        yield Problem("job.flags.without_recipe", ("flags",), "are of a recipe; write `args` for a script", spec.flags)


def _flags(spec: JobSpec) -> Iterator[Problem]:
    if spec.recipe is None:
        return
    secret = dict(in_variables(spec.flags))
    found = flag_problems(spec.recipe, spec.flags, own_image=spec.image is not None)
    yield from (each for each in found if each.path[-1] not in secret)
    values = {name: value_of(spec.recipe, spec.flags, name) for name in ("fake_data", "data_dir")}
    if values["fake_data"] is False and not values["data_dir"] and spec.image is None:
        yield Problem(
            "job.fake_data.no_data_dir",
            ("flags", "fake_data"),
            "images are read from `data_dir`: add that flag, or remove this",
            False,
        )
    if value_of(spec.recipe, spec.flags, "wandb") == "online" and "WANDB_API_KEY" not in spec.secrets:
        stored = "`secrets: {WANDB_API_KEY: NAME}` and run `pulumi config set --secret secrets:NAME`"
        yield Problem("job.wandb.no_key", ("flags", "wandb"), f"needs a key: add {stored}, or write offline", "online")
    if spec.on_xla and value_of(spec.recipe, spec.flags, "compile") is True:
        yield Problem("job.compile.on_xla", ("flags", "compile"), "XLA compiles every step by itself; remove it", True)
    if spec.image is None:
        yield from unused_flags(spec)


def _torchrun(spec: JobSpec) -> Iterator[Problem]:
    if spec.torchrun:
        return
    if spec.script is None:
        yield Problem(
            "job.torchrun.of_recipe",
            ("torchrun",),
            "starts the processes of a recipe; remove it, or write `script:`",
            spec.torchrun,
        )
    elif not uses_torchrun(spec.model_validate(spec.model_dump(exclude_unset=True, exclude={"torchrun"}))):
        yield Problem(
            "job.torchrun.starts_nothing", ("torchrun",), "starts nothing in this job anyway; remove it", spec.torchrun
        )
    elif key := next((key for key in ("elastic", "rendezvous") if getattr(spec, key)), None):
        yield Problem(
            "job.torchrun.needed", ("torchrun",), f"is what `{key}` is of; remove one of the two", spec.torchrun
        )
    elif spec.processes_per_host > 1:
        message = "is what starts several processes on a host; remove it, or write `processes_per_host: 1`"
        yield Problem("job.torchrun.several_processes", ("torchrun",), message, spec.torchrun)


def _hardware(spec: JobSpec) -> Iterator[Problem]:
    kind = KINDS[spec.kind]
    if spec.tpu and kind.no_tpu:
        able = kinds_where(lambda each: not each.no_tpu)
        yield Problem("job.kind.not_on_tpus", ("kind",), f"cannot run on TPUs: {kind.no_tpu}; write {able}", spec.kind)
    elif spec.slices > 1 and spec.tpu is None:
        yield Problem(
            "job.slices.without_tpu",
            ("slices",),
            "are of TPUs, and the job has none; write `slices: 1`, or remove it",
            spec.slices,
        )
    elif spec.slices > 1 and not kind.has_slices:
        able = kinds_where(lambda each: each.has_slices)
        message = f"a job of kind {spec.kind} runs on one TPU slice; write {able}, or `slices: 1`"
        yield Problem("job.slices.kind", ("slices",), message, spec.slices)
    if spec.accelerators_per_host is not None and (spec.accelerator is None or spec.tpu):
        message = "counts GPUs; remove it" if spec.tpu else "needs a GPU: add for example `accelerator: nvidia-l4`"
        yield Problem(
            "job.accelerators_per_host.without_gpu", ("accelerators_per_host",), message, spec.accelerators_per_host
        )
    if spec.tpu and spec.processes_per_host not in (1, chips := spec.tpu.chips_per_host):
        message = f"is 1, a process that drives all chips of its TPU host, or {chips}, one for each; write one of them"
        yield Problem("job.processes_per_host.of_tpu_host", ("processes_per_host",), message, spec.processes_per_host)
    elif spec.tpu and spec.slices > 1 and spec.processes_per_host > 1:
        message = "hosts of several slices have one process each; remove it"
        yield Problem("job.processes_per_host.of_slices", ("processes_per_host",), message, spec.processes_per_host)


def _runtime(spec: JobSpec) -> Iterator[Problem]:
    if spec.runtime == "torch" and spec.tpu:
        yield Problem(
            "job.runtime.torch_on_tpu",
            ("runtime",),
            "PyTorch computes on TPUs through XLA; write xla, or remove it",
            spec.runtime,
        )
    elif spec.runtime == "xla" and not KINDS[spec.kind].runs_recipes:
        yield Problem(
            "job.runtime.without_pytorch",
            ("runtime",),
            f"a job of kind {spec.kind} does not start PyTorch/XLA; remove it",
            spec.runtime,
        )
    elif spec.runtime == "xla" and spec.accelerator and spec.tpu is None and spec.image is None:
        message = "PyTorch/XLA has had no CUDA since 2.8; add `image:` with one that has, or remove it"
        yield Problem("job.runtime.xla_on_gpu", ("runtime",), message, spec.runtime)


def _elastic(spec: JobSpec) -> Iterator[Problem]:
    if spec.elastic is None:
        return
    low, high = spec.elastic.min_hosts, spec.elastic.max_hosts
    whole = {"min_hosts": low, "max_hosts": high}
    if low > high:
        yield Problem(
            "job.elastic.range",
            ("elastic", "min_hosts"),
            f"must be at most max_hosts, {high}; lower this or raise that",
            low,
        )
    if not KINDS[spec.kind].is_elastic:
        able = kinds_where(lambda each: each.is_elastic)
        yield Problem(
            "job.elastic.kind", ("elastic",), f"a job of kind {spec.kind} cannot shrink and grow; write {able}", whole
        )
    elif spec.restarts == 0:
        message = "a host that leaves an elastic job counts as one, and the first would end it; write `restarts: 1`"
        yield Problem("job.restarts.of_elastic", ("restarts",), f"{message} or more", spec.restarts)
    if spec.tpu:
        yield Problem(
            "job.elastic.tpu", ("elastic",), "a TPU slice trains with all its hosts or not at all; remove it", whole
        )


def _hosts(spec: JobSpec) -> Iterator[Problem]:
    wanted = default_hosts({name: getattr(spec, name) for name in ("accelerator", "topology", "slices", "elastic")})
    if spec.tpu and spec.hosts != wanted:
        each = f"{spec.slices} x {spec.tpu.topology_label} of {spec.tpu.generation}"
        message = f"{each} has {wanted} hosts of {spec.tpu.chips_per_host} chips; write {wanted}, or remove it"
        yield Problem("job.hosts.of_slice", ("hosts",), message, spec.hosts)
    elif spec.elastic and spec.hosts != wanted:
        yield Problem(
            "job.hosts.of_elastic",
            ("hosts",),
            f"is elastic.max_hosts, {wanted}, of an elastic job; remove it",
            spec.hosts,
        )


def _rendezvous(spec: JobSpec) -> Iterator[Problem]:
    if spec.rendezvous is None:
        return
    allowed = KINDS[spec.kind].rendezvous
    if not allowed:
        yield Problem(
            "job.rendezvous.without_torchrun_kind",
            ("rendezvous",),
            f"a job of kind {spec.kind} runs no torchrun; remove it",
            spec.rendezvous,
        )
    elif spec.tpu and spec.processes_per_host == 1:
        yield Problem(
            "job.rendezvous.of_tpu_hosts",
            ("rendezvous",),
            "TPU hosts find each other by themselves; remove it",
            spec.rendezvous,
        )
    elif spec.torchrun and not uses_torchrun(spec):
        yield Problem(
            "job.rendezvous.torchrun_off",
            ("rendezvous",),
            "is of torchrun, which starts nothing in this job; remove it",
            spec.rendezvous,
        )
    elif spec.rendezvous not in allowed:
        able = [each for each in allowed if not (spec.elastic and each == "static")] or allowed
        message = f"a job of kind {spec.kind} meets by {' or '.join(able)}; write {able[0]}, or remove it"
        yield Problem("job.rendezvous.kind", ("rendezvous",), message, spec.rendezvous)
    elif spec.elastic and spec.rendezvous == "static":
        yield Problem(
            "job.rendezvous.static_elastic",
            ("rendezvous",),
            "static hosts cannot leave and join; write c10d or etcd",
            spec.rendezvous,
        )


def _kind(spec: JobSpec) -> Iterator[Problem]:
    yield from KINDS[spec.kind].problems(spec)
    for kind in KINDS.values():
        for key in set(kind.own_keys) - set(KINDS[spec.kind].own_keys):
            if (value := getattr(spec, key)) != JobSpec.model_fields[key].default:
                message = f"{key.replace('_', ' ')} are of kind {kind.name} only; remove it"
                yield Problem(f"job.{key}.kind", (key,), message, value)


def _links(spec: JobSpec) -> Iterator[Problem]:
    if spec.min_bandwidth_gbps is None:
        return
    if not uses_torchrun(spec):
        message = "is checked by ranks that torchrun starts, and here it starts none; remove it"
        yield Problem(
            "job.min_bandwidth_gbps.without_torchrun", ("min_bandwidth_gbps",), message, spec.min_bandwidth_gbps
        )
    elif spec.script and spec.image:
        message = "is checked by the trainer's image; remove it, or remove `image`"
        yield Problem("job.min_bandwidth_gbps.own_image", ("min_bandwidth_gbps",), message, spec.min_bandwidth_gbps)
    elif spec.hosts == 1 or spec.interactive:
        message = "is of links between hosts that train, and here are none; remove it"
        yield Problem("job.min_bandwidth_gbps.no_links", ("min_bandwidth_gbps",), message, spec.min_bandwidth_gbps)


def _memory(spec: JobSpec) -> Iterator[Problem]:
    memory, least = spec.resources.capacity.memory, LEAST_MEMORY * spec.processes_per_host
    if spec.recipe and memory < least:
        count = f"{spec.processes_per_host} processes" if spec.processes_per_host > 1 else "a process"
        message = f"Python and torch alone take more in {count} of a recipe; write {format_memory(least)} or more"
        yield Problem("job.resources.memory_too_small", ("resources", "memory"), message, spec.resources.memory)
    elif parse_memory(spec.shared_memory) >= memory:
        message = f"must be less than resources.memory, {spec.resources.memory}, of which it is a part"
        yield Problem(
            "job.shared_memory.too_large",
            ("shared_memory",),
            f"{message}; raise that or lower this",
            spec.shared_memory,
        )


def _signs(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for control characters, and for references that Kubernetes does not expand."""
    values: dict[Path, str] = {
        **{("args", index): word for index, word in enumerate(spec.args)},
        **{("environment", name): value for name, value in spec.environment.items()},
    }
    for key, value in values.items():
        if _CONTROL.search(value):
            yield Problem(
                "job.text.control_character",
                key,
                "has a control character; remove that, or write what stands for it",
                value,
            )
        for name in _REFERENCE.findall(value):
            if name in spec.environment or name in spec.secrets or name.startswith("TRAINYARD_"):
                message = f"nothing fills in $({name}) here; let the program read the variable {name}, and remove this"
                yield Problem("job.text.reference", key, message, value)


def _secrets(spec: JobSpec) -> Iterator[Problem]:
    stored = "and run `pulumi config set --secret secrets:NAME`"
    for name, what in in_variables(spec.flags):
        read = f"remove it, and for a variable that opens the same write `secrets: {{VARIABLE: NAME}}` {stored}"
        yield Problem("job.flags.secret", ("flags", name), f"is {what} in clear; {read}")
    for name, what in in_variables(spec.environment):
        yield Problem(
            "job.environment.secret",
            ("environment", name),
            f"is {what} in clear; write `secrets: {{{name}: NAME}}` {stored}",
        )
    for index, what in in_arguments(spec.args):
        there = f"read a variable instead, write `secrets: {{VARIABLE: NAME}}` {stored}"
        yield Problem("job.args.secret", ("args", index), f"is {what} in clear; {there}")
    for name in spec.environment.keys() & spec.secrets.keys():
        yield Problem(
            "job.environment.also_secret", ("environment", name), "is one of `secrets` too; remove one of the two"
        )


def _environment(spec: JobSpec) -> Iterator[Problem]:
    told = taken(spec)
    for key, variables in (("environment", spec.environment), ("secrets", spec.secrets)):
        for name in variables:
            value = spec.environment[name] if key == "environment" else UNDEFINED
            if name in told:
                message = f"is set by {told[name]}, by what the job's hosts are; remove it"
                yield Problem("job.environment.taken", (key, name), message, value)
            elif name == "PJRT_DEVICE" and spec.image is None:
                message = "is of PyTorch/XLA, which has an image of its own: write `runtime: xla` instead"
                yield Problem("job.environment.pjrt_device", (key, name), message, value)
            elif key == "secrets" and name in NO_SECRETS:
                message = "is set in every pod already and is not a secret; write it in `environment`, or remove it"
                yield Problem("job.secrets.set_in_pods", (key, name), message)


def _queue(spec: JobSpec) -> Iterator[Problem]:
    if spec.queue and not KINDS[spec.kind].is_queueable:
        message = f"Kueue does not know jobs of kind {spec.kind} any more and would start it at once; remove it"
        yield Problem("job.queue.kind", ("queue",), message, spec.queue)
    elif spec.queue and spec.suspend:
        message = "Kueue suspends and resumes the job of a queue; remove `suspend`, or `queue`"
        yield Problem("job.suspend.in_queue", ("suspend",), message, spec.suspend)


def _name(spec: JobSpec) -> Iterator[Problem]:
    suffix = KINDS[spec.kind].longest_suffix(spec)
    if len(spec.name) > (limit := LABEL_LIMIT - len(suffix)):
        message = f"must have at most {limit} characters, so that with {suffix!r} it has {LABEL_LIMIT}; shorten it"
        yield Problem("job.name.too_long", ("name",), message, spec.name)


_RULES: tuple[Callable[[JobSpec], Iterator[Problem]], ...] = (
    _name,
    _what_runs,
    _flags,
    folder_conflicts,
    device_conflicts,
    _torchrun,
    _hardware,
    _runtime,
    _elastic,
    _hosts,
    _rendezvous,
    _kind,
    _links,
    _memory,
    _signs,
    _secrets,
    _environment,
    _queue,
)
