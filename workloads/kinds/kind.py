"""Kind: interface of the kinds of jobs. Schema: base class for parts of custom resources.

The other modules of this package implement Kind, one class for each kind. They import at their top only what validation
needs. `render` imports the rest, such as Pulumi.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from infra.hardware import Capacity, PodGroup
from infra.naming import host_name
from settings.problem import Problem

if TYPE_CHECKING:
    from pulumi import Output, ResourceOptions

    from workloads.objects import Placement
    from workloads.spec import JobSpec

Rendezvous = Literal["static", "c10d", "etcd"]
Object = dict[str, Any]
"""Object of the Kubernetes API in the form of its JSON, or a part of one."""

COORDINATOR = Capacity(millicores=250, memory=512 * 2**20)
"""Resource requests of a pod that only starts or coordinates training, such as the pod that runs mpirun."""
ETCD_SUFFIX = "-etcd"
RANDOM_SUFFIX = "-xxxxx"
"""Placeholder for the random suffix that Kubernetes appends to the names of an Indexed Job's pods."""
COMPLETION_INDEX: Mapping[str, str] = MappingProxyType({"JOB_COMPLETION_INDEX": "Kubernetes"})
"""Variable of an Indexed Job: https://kubernetes.io/docs/concepts/workloads/controllers/job/#completion-mode"""


def listed_conditions(status: Object) -> list[Object]:
    """Return the conditions of a status that follows the conventions of the Kubernetes API."""
    found: list[Object] = status.get("conditions") or []
    return found


@dataclass(frozen=True, kw_only=True)
class Resource:
    """Custom resource that is a job, and functions that read its state."""

    api_version: str
    """Group and version of its API."""
    kind: str
    plural: str
    """Name in the API's paths."""
    complete: str = "Succeeded"
    """Type of the condition of a complete job."""
    is_running: Callable[[Object], bool]
    """Function that returns True for the status of a job that runs."""
    hosts: Callable[[Object], int]
    """Function that returns the number of hosts in a spec."""
    conditions: Callable[[Object], list[Object]] = listed_conditions
    """Function that returns the conditions in a status."""
    suspend: tuple[str, ...] = ("suspend",)
    """Path in its spec of the key that suspends it."""
    intermediates: tuple[str, ...] = ()
    """Plural names, in the same API, of objects that the job owns and that own the job's pods."""


class Kind(ABC):
    """Job kind. The defaults apply to a kind whose operator starts one pod per host and sets no variables."""

    name: str
    """Value of `kind` in a job's settings."""
    operators: frozenset[str] = frozenset()
    """Operators that its jobs need, named as in infra/operator_releases.py."""
    resource: Resource | None = None
    """Custom resource that is a job; None for a Job of Kubernetes."""
    rendezvous: tuple[Rendezvous, ...] = ()
    """Rendezvous backends of torchrun, the default first; empty if the kind does not run torchrun."""
    is_elastic = False
    """True if hosts may leave and join."""
    has_slices = False
    """True if several TPU slices can train together."""
    isolates_slices = False
    """True if its hosts are always in one TPU slice, without hosts of other jobs."""
    no_tpu = ""
    """Reason why it cannot run on TPUs; empty if it can."""
    runs_recipes = True
    """True if it can run the trainer's recipes, which need torch's process group."""
    is_queueable = True
    """True if Kueue supports it. Kueue would not hold back the pods of an unsupported kind."""
    own_keys: tuple[str, ...] = ()
    """Keys of a job that no other kind may set."""
    image_software = ""
    """Software that its image must have, in addition to what the job runs; empty for none."""
    one_process_per_host = False
    """True if each host runs one process of the program, even if it has several GPUs."""
    restarts_in_place = False
    """True if the launchers of all hosts may restart failed ranks in their pods."""
    line_prefix = ""
    """Pattern of the text that its launcher puts before each line of a training process; empty for none."""
    index_label = ""
    """Label of a pod with its index in its role; empty for pods of Indexed Jobs."""
    recreates_pods = False
    """True if its operator recreates a failed pod at once. Only an event then records the failure."""
    suspends_interactive = True
    """True if its operator can suspend an interactive job."""
    is_one_job = False
    """True if all hosts are pods of one Kubernetes Job and share its uid."""
    retryable_offset = 0
    """Number that launchers add to exit codes that mean "run the job again". Its operator retries only codes of at
    least this number."""
    operator_variables: tuple[str, ...] = ()
    """Environment variables that its operator sets or replaces."""
    elastic_variables: tuple[str, ...] = ()
    """Further variables that its operator sets in elastic jobs."""
    reserved_variables: Mapping[str, str] = MappingProxyType({})
    """Further environment variable that a job may not set -> the program that sets it, such as `Kubernetes`."""

    @property
    def pod_types(self) -> tuple[str, ...]:
        """Kinds of the API's objects that describe the job's pods."""
        return (self.resource.kind,) if self.resource else ()

    @property
    def default_rendezvous(self) -> Rendezvous:
        """Rendezvous backend of a job that sets none and is not elastic."""
        return self.rendezvous[0] if self.rendezvous else "static"

    def starts_torchrun(self, spec: JobSpec) -> bool:
        """Return True if hosts start their program under torchrun."""
        del spec
        return bool(self.rendezvous)

    def extra_pods(self, spec: JobSpec) -> tuple[PodGroup, ...]:
        """Return the job's pods that are not hosts, without its etcd."""
        del spec
        return ()

    def first_host(self, job: str) -> str:
        """Return the host name of a job's host 0."""
        return host_name(job, 0)

    def child_suffixes(self, spec: JobSpec) -> Iterable[str]:
        """Return the suffixes that its controller adds to the job's name for the objects that it creates."""
        del spec
        return ()

    def label_suffixes(self, spec: JobSpec) -> Iterable[str]:
        """Return the suffixes that its controller adds to the job's name where the result must be a DNS label."""
        return self.child_suffixes(spec)

    def longest_suffix(self, spec: JobSpec) -> str:
        """Return the longest of `label_suffixes` and, if the job has an etcd, the suffix of the etcd's name."""
        suffixes = list(self.label_suffixes(spec))
        if spec.rendezvous_backend == "etcd":
            suffixes.append(ETCD_SUFFIX)
        return max(suffixes, key=len)

    def problems(self, spec: JobSpec) -> Iterator[Problem]:
        """Yield the problems of a job's settings that only a job of this kind can have."""
        del spec
        yield from ()

    @abstractmethod
    def render(self, name: str, spec: JobSpec, placement: Placement, opts: ResourceOptions) -> Output[str]:
        """Create a job's resources, whose logical names begin with `name`. Return the job's name."""


def numbered(role: str, count: int) -> Iterator[str]:
    """Yield the suffixes of `count` pods or Jobs of one role."""
    return (f"-{role}-{index}" for index in range(count))


def condition_is_true(condition: str) -> Callable[[Object], bool]:
    """Return a function that returns True if a status has this condition and it is true."""
    return lambda status: any(
        each["type"] == condition and each.get("status") == "True" for each in listed_conditions(status)
    )


def any_job_is_ready(key: str) -> Callable[[Object], bool]:
    """Return a function that returns True for a status with a Job whose pods all run or have succeeded.

    JobSet also counts a Job with pending pods as active:
    https://jobset.sigs.k8s.io/docs/reference/jobset.v1alpha2/
    """
    return lambda status: any(each.get("ready") or each.get("succeeded") for each in status.get(key) or [])


def replicas(key: str, *roles: str) -> Callable[[Object], int]:
    """Return a function that counts the pods of some roles in a spec."""
    return lambda spec: sum(spec[key][role].get("replicas", 1) for role in roles if role in spec[key])


@dataclass(frozen=True, kw_only=True)
class Schema:
    """Part of a custom resource: only the fields that Trainyard sets. A test checks them against the CRDs.

    The official Python models (kubeflow-training, kubeflow-trainer-api) cannot hold Pulumi's outputs.
    """

    def plain(self) -> dict[str, Any]:
        """Return the part in the form of the API: camelCase, without fields that are None."""
        found = {_camel(each.name): _plain(getattr(self, each.name)) for each in fields(self)}
        return {name: value for name, value in found.items() if value is not None}

    def paths_except(self, key: str, *keys: str) -> list[str]:
        """Return the paths of all fields except the field at `key`, `keys`. A part without this field is one path."""
        found = []
        for each in fields(self):
            name = _camel(each.name)
            if name != key:
                found.append(name)
            elif keys:
                found += [f"{key}.{path}" for path in getattr(self, each.name).paths_except(*keys)]
        return found


def _plain(value: Any) -> Any:
    if isinstance(value, Schema):
        return value.plain()
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name)
