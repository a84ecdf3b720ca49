"""Access to a stack's cluster: the Kubernetes API, and the processes of a local cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from kubernetes.client import ApiClient, ApiException, BatchV1Api, Configuration, CoreV1Api, CustomObjectsApi
from kubernetes.config import ConfigException, load_kube_config
from urllib3.exceptions import HTTPError

from commands.environment import PROJECT
from commands.interrupts import CommandError
from commands.monitor.job_state import CUSTOM_KINDS, JobState, job_state, why_queued
from commands.monitor.pod_state import Object, PodState, exit_codes_of_pods, owner_of, pod_state
from commands.stack import UNKNOWN_STACK, PulumiFailed, kubeconfig_of, outputs, renew_kubeconfig
from commands.stack_files import lock_holder
from infra.local import leftovers
from infra.local.settings import ID_FILE, clusters_folder
from infra.make_command import DEFAULT_STACK, make_command
from infra.naming import JOB_LABEL

TIMEOUT = (5.0, 15.0)
"""Maximum seconds to connect, and to wait for data."""
QUIET_SECONDS = 30.0
"""Seconds without output after which a followed log is requested again, because the connection may be dead."""
EXITED_REASON = "ExitedWithCode"
"""Reason of the training-operator's events that report a pod's exit code."""
WORKLOADS = ("kueue.x-k8s.io", "v1beta2")
"""API group and version of Kueue's workloads."""
MERGE_PATCH = "application/merge-patch+json"
NO_KUEUE = "the cluster has no Kueue; install Kueue, or leave out `queue`"
"""Reason why a queued job stays suspended in a cluster without Kueue."""


class Unreachable(CommandError):
    """The cluster cannot be queried, or a request fails. The message says why."""

    is_running = False
    """True if the API server has answered: the object is missing, or the user has no permission."""
    has_advice = False
    """True if the message says what to do."""

    def report(self, up: str = "") -> str:
        """Return the message. If the cluster does not answer, add what to do. `up` is the command that starts it."""
        if self.is_running:
            return str(self)
        if holder := lock_holder(os.environ.get("STACK", DEFAULT_STACK)):
            why = "" if self.has_advice else f"{self}; "
            return f"the cluster cannot be queried: {why}{holder}; wait until it ends"
        if self.has_advice:
            return str(self)
        up, down = up or make_command("up"), make_command("down")
        again = f"{up} starts it again if it is on this machine"
        return f"the cluster cannot be queried: {self}; {again}, {down} removes the stack"


class NotFound(Unreachable):
    """The API server does not have the object."""

    is_running = True


class NoKubeconfig(Unreachable):
    """The kubeconfig file is missing."""

    has_advice = True


class ClusterRemoved(NoKubeconfig):
    """The cluster ran on this machine and was removed. Pulumi still has its stack."""


class Forbidden(Unreachable):
    """The user has no permission for the request."""

    is_running = True


class Untrusted(Unreachable):
    """The kubeconfig does not verify the API server's certificate, or the API server rejects the kubeconfig's login."""


class UnknownStack(CommandError):
    """The stack has neither a settings file nor resources."""


class StackNotFound(CommandError):
    """A command does not find a stack, job or pod. The message says what to do."""


@dataclass(frozen=True, kw_only=True)
class StackOutputs:
    """Outputs of a stack that the commands need."""

    kubeconfig_path: str
    """Kubeconfig file of its cluster, or several files, separated as in `$KUBECONFIG`."""
    namespace: str
    jobs: tuple[str, ...]
    context: str | None = None
    """Context in the kubeconfig; None for the current one."""

    @classmethod
    def of(cls, stack: str, found: Mapping[str, Any]) -> StackOutputs:
        """Select these outputs from all outputs of a stack."""
        return cls(
            kubeconfig_path=kubeconfig_of(stack, found),
            namespace=found["namespace"],
            jobs=tuple(found["jobs"]),
            context=found.get("context"),
        )

    def cluster(self) -> Cluster:
        """Return a client for the stack's jobs. Raises Unreachable for a missing or invalid kubeconfig."""
        return Cluster(self.kubeconfig_path, self.namespace, self.context)


def job_named(found: StackOutputs, name: str, target: str = "exec") -> str:
    """Return the stack's job `name`, or its only job if `name` is empty. Raises StackNotFound if there is none.

    `target` is the command that the error shows as an example.
    """
    if not name and len(found.jobs) == 1:
        return found.jobs[0]
    if name in found.jobs:
        return name
    if not found.jobs:
        raise StackNotFound(f"the stack has no jobs; add one to its settings and run {make_command('up')}")
    problem = f"{name}: the stack has no such job" if name else "the stack has several jobs"
    example = make_command(target, JOB=found.jobs[0])
    raise StackNotFound(f"{problem}; name one of {', '.join(found.jobs)}, as in {example}")


def outputs_with(stack: str, *names: str) -> dict[str, Any]:
    """Return the outputs of a stack, and write its kubeconfig if `kubeconfig_path` is one of `names`.

    Raises StackNotFound or UnknownStack if the stack is not up or lacks one of `names`.
    """
    try:
        found = outputs(stack)
    except FileNotFoundError as error:
        check_settings_file(stack)
        raise StackNotFound(f"nothing is up: this checkout is not set up yet; run {make_command('up')}") from error
    except PulumiFailed as error:
        if UNKNOWN_STACK in str(error):
            check_settings_file(stack)
            raise StackNotFound(f"stack {stack} is not up; run {make_command('up', STACK=stack)}") from error
        raise
    if missing := sorted(set(names) - found.keys()):
        up = make_command("up", STACK=stack)
        detail = f" (no output {', '.join(missing)})" if found else ""
        raise StackNotFound(f"stack {stack} is not up{detail}; run {up}")
    if "kubeconfig_path" in names:
        renew_kubeconfig(stack, found)
    return found


def check_settings_file(stack: str) -> None:
    """Raise UnknownStack if a stack has no settings file. Its name is then probably misspelled."""
    file = PROJECT / f"Pulumi.{stack}.yaml"
    if not file.exists():
        # Slow to import.
        from stack.config import missing_file

        raise UnknownStack(missing_file(file))


def stack_outputs() -> StackOutputs:
    """Return the outputs of the stack in $STACK (`local` by default). Raises StackNotFound if it is not up."""
    stack = os.environ.get("STACK", DEFAULT_STACK)
    return StackOutputs.of(stack, outputs_with(stack, "kubeconfig_path", "namespace", "jobs"))


def client_settings(files: str, context: str | None) -> Configuration:
    """Return the settings of a client for a context of kubeconfig files. Raises ConfigException or OSError.

    Like kubectl, do not use the proxy of the environment for a server on this machine.
    """
    settings = Configuration()
    settings.retries = False
    load: Any = load_kube_config
    load(files, context=context, client_configuration=settings)
    is_here = urlsplit(settings.host).hostname in ("127.0.0.1", "::1", "localhost")
    if is_here and settings.proxy in getproxies().values():
        settings.proxy = None
    return settings


class Cluster:
    """Client for the jobs of one namespace. Its methods raise Unreachable if a request fails."""

    def __init__(self, kubeconfig_path: str, namespace: str, context: str | None = None) -> None:
        self.kubeconfig_path = kubeconfig_path
        self.namespace = namespace
        self._context = context
        self.connect()
        self._kinds = list(CUSTOM_KINDS)
        self._forbidden: Forbidden | None = None
        self._owners: dict[str, str] = {}
        self._job_specs: dict[str, Object] = {}

    def connect(self) -> None:
        """Read the kubeconfig and use it from now on. It changes when a cluster starts with new keys."""
        if not any(Path(each).expanduser().exists() for each in self.kubeconfig_path.split(os.pathsep)):
            if is_removed(self.kubeconfig_path):
                up, down = make_command("up"), make_command("down")
                raise ClusterRemoved(
                    f"the stack is partly down: its cluster was removed; {down} removes the rest, {up} starts it again"
                )
            raise NoKubeconfig(
                f"the kubeconfig {self.kubeconfig_path} is missing; if it is your own file, restore it; otherwise "
                f"{make_command('up')} writes it again"
            )
        try:
            settings = client_settings(self.kubeconfig_path, self._context)
        except (ConfigException, OSError) as error:
            raise Unreachable(f"kubeconfig {self.kubeconfig_path} cannot be used: {error}") from error
        settings.connection_pool_maxsize = 100
        api = ApiClient(settings)
        # Any, because with `_preload_content=False` the calls return raw answers, contrary to their annotations.
        self._core: Any = CoreV1Api(api)
        self._batch: Any = BatchV1Api(api)
        self._custom: Any = CustomObjectsApi(api)

    def namespace_is_gone(self) -> bool:
        """Return True if the jobs' namespace is missing or in deletion; False if the user may not see it."""
        try:
            with _translating_errors():
                call = self._core.read_namespace
                answer = call(self.namespace, _preload_content=False, _request_timeout=TIMEOUT)
                return "deletionTimestamp" in json.loads(answer.data)["metadata"]
        except NotFound:
            return True
        except Forbidden:
            return False

    def pods(self, jobs: Sequence[str]) -> list[PodState]:
        """Return the pods of the jobs, replaced pods included. Call `jobs` first: it reads the owners of the pods."""
        selector = f"{JOB_LABEL} in ({','.join(jobs)})"
        call = self._core.list_namespaced_pod
        items = _items(call, self.namespace, label_selector=selector)
        found = [pod_state(pod, self._job_specs.get(owner_of(pod))) for pod in items]
        return [replace(pod, owner=self._root(pod.owner)) for pod in found]

    def pods_of_all_stacks(self) -> list[PodState]:
        """Return the pods of every stack's jobs, in all namespaces."""
        return [pod_state(pod) for pod in _items(self._core.list_pod_for_all_namespaces, label_selector=JOB_LABEL)]

    def jobs(self, jobs: Sequence[str]) -> dict[str, JobState]:
        """Return the jobs by name, of any kind. A job that does not exist is `absent`."""
        custom_jobs, intermediates = self._custom_objects()
        batch_jobs = _items(self._batch.list_namespaced_job, self.namespace)
        self._job_specs = {each["metadata"]["uid"]: each["spec"] for each in batch_jobs}
        objects = [*batch_jobs, *custom_jobs]
        # A job may own other jobs: a TrainJob owns a JobSet of the same name, and the JobSet owns Jobs.
        owners = {each["metadata"]["uid"]: owner for each in (*objects, *intermediates) if (owner := owner_of(each))}
        self._owners = owners
        found = {each["metadata"]["name"]: job_state(each) for each in objects if each["metadata"]["uid"] not in owners}
        if any(each.state == "queued" for each in found.values()):
            found = self._with_reasons(found)
        reason = f"or you have no permission to list its kind: {self._forbidden}" if self._forbidden else ""
        return {name: found.get(name) or JobState(name=name, kind="", state="absent", reason=reason) for name in jobs}

    def _with_reasons(self, jobs: dict[str, JobState]) -> dict[str, JobState]:
        """Return the jobs, with Kueue's reasons for those that wait in a queue."""
        call = partial(self._custom.list_namespaced_custom_object, *WORKLOADS, self.namespace)
        try:
            reasons = {owner_of(each): why_queued(each) for each in _items(call, "workloads")}
        except NotFound:
            reasons = {job.uid: NO_KUEUE for job in jobs.values()}
        except Forbidden as error:
            reasons = {job.uid: f"you have no permission to read Kueue's reason: {error}" for job in jobs.values()}
        return {
            name: replace(job, reason=f"{job.reason}: {reasons[job.uid]}")
            if job.state == "queued" and reasons.get(job.uid)
            else job
            for name, job in jobs.items()
        }

    def set_suspended(self, job: JobState, value: bool) -> None:
        """Suspend a job, which ends its pods, or resume it. For a job with a queue, change Kueue's workload instead."""
        if job.queue:
            call = partial(self._custom.list_namespaced_custom_object, *WORKLOADS, self.namespace)
            names = [each["metadata"]["name"] for each in _items(call, "workloads") if owner_of(each) == job.uid]
            if not names:
                raise NotFound(
                    f"Kueue has no workload of job {job.name} in queue {job.queue}; nothing was changed; check that "
                    "Kueue's controller runs, then try again"
                )
            for name in names:
                self._patch_custom(*WORKLOADS, "workloads", name, {"active": not value})
            return
        resource = CUSTOM_KINDS.get(job.kind)
        if resource is None:
            with _translating_errors():
                self._batch.patch_namespaced_job(
                    job.name,
                    self.namespace,
                    {"spec": {"suspend": value}},
                    _content_type=MERGE_PATCH,
                    _request_timeout=TIMEOUT,
                )
            return
        spec: Any = value
        for key in reversed(resource.suspend):
            spec = {key: spec}
        group, _, version = resource.api_version.partition("/")
        self._patch_custom(group, version, resource.plural, job.name, spec)

    def _patch_custom(self, group: str, version: str, plural: str, name: str, spec: Mapping[str, Any]) -> None:
        with _translating_errors():
            self._custom.patch_namespaced_custom_object(
                group,
                version,
                self.namespace,
                plural,
                name,
                {"spec": spec},
                _content_type=MERGE_PATCH,
                _request_timeout=TIMEOUT,
            )

    def delete(self, job: JobState) -> None:
        """Delete a job. Its object stays until its pods have ended."""
        resource = CUSTOM_KINDS.get(job.kind)
        options = {"propagation_policy": "Foreground", "_request_timeout": TIMEOUT}
        with _translating_errors():
            if resource is None:
                self._batch.delete_namespaced_job(job.name, self.namespace, **options)
            else:
                group, _, version = resource.api_version.partition("/")
                self._custom.delete_namespaced_custom_object(
                    group, version, self.namespace, resource.plural, job.name, **options
                )

    def _custom_objects(self) -> tuple[list[Object], list[Object]]:
        """Return the operators' jobs, and the objects between jobs and pods. Query a missing kind only once."""
        jobs: list[Object] = []
        intermediates: list[Object] = []
        for kind in list(self._kinds):
            resource = CUSTOM_KINDS[kind]
            group, _, version = resource.api_version.partition("/")
            call = partial(self._custom.list_namespaced_custom_object, group, version, self.namespace)
            try:
                api = {"apiVersion": resource.api_version, "kind": resource.kind}
                found = [{**each, **api} for each in _items(call, resource.plural)]
                jobs += found
                for plural in resource.intermediates if found else ():
                    intermediates += _items(call, plural)
            except NotFound:
                self._kinds.remove(kind)
            except Forbidden as error:
                # A user without permission gets 403 even for a kind that the cluster lacks, so the kind may not exist.
                self._kinds.remove(kind)
                self._forbidden = error
        return jobs, intermediates

    def _root(self, uid: str) -> str:
        """Return the uid of the object at the top of this uid's chain of owners."""
        while uid in self._owners:
            uid = self._owners[uid]
        return uid

    def warnings(self, uid: str) -> list[str]:
        """Return the warning events about one object and the objects that it owns, oldest first: `Reason: message`."""
        call = partial(self._core.list_namespaced_event, self.namespace)
        owned = [each for each in self._owners if self._root(each) == uid]
        events = [
            event
            for each in (uid, *owned)
            for event in _items(call, field_selector=f"involvedObject.uid={each},type=Warning")
        ]
        events.sort(key=lambda event: event.get("lastTimestamp") or event.get("eventTime") or "")
        return [f"{event.get('reason', '')}: {' '.join(event.get('message', '').split())}" for event in events]

    def events(self, *, only_warnings: bool = False) -> list[Object]:
        """Return time, type, reason, object, count and message of the namespace's events, oldest first."""
        selectors = {"field_selector": "type=Warning"} if only_warnings else {}
        found = [
            {
                "time": event.get("lastTimestamp") or event.get("eventTime") or "",
                "type": event.get("type", ""),
                "reason": event.get("reason", ""),
                "object": f"{event['involvedObject'].get('kind')}/{event['involvedObject'].get('name')}",
                "count": event.get("count") or 1,
                "message": event.get("message", ""),
            }
            for event in _items(self._core.list_namespaced_event, self.namespace, **selectors)
        ]
        return sorted(found, key=lambda event: str(event["time"]))

    def exit_codes(self, job: JobState) -> dict[str, int]:
        """Return pod name -> last exit code, for the pods that the job's operator has recreated."""
        selector = f"involvedObject.uid={job.uid},reason={EXITED_REASON}"
        return exit_codes_of_pods(_items(self._core.list_namespaced_event, self.namespace, field_selector=selector))

    def nodes(self) -> list[Object]:
        """Return the cluster's nodes as the API has them. Raises Forbidden if the user may only see a namespace."""
        return _items(self._core.list_node)

    def log(self, pod: PodState, tail_lines: int | None = None) -> list[str]:
        """Return the lines of a pod's log, or only the last ones; empty if it has no log."""
        with _translating_errors():
            answer = self._log(pod, TIMEOUT, tail_lines=tail_lines)
            return [] if answer is None else answer.data.decode(errors="replace").splitlines()

    def stamped_log(self, pod: PodState, since_seconds: int | None = None, **options: int) -> list[tuple[str, str]]:
        """Return the time (RFC 3339) and text of each line of a pod's log, or of its last `since_seconds`."""
        with _translating_errors():
            answer = self._log(pod, TIMEOUT, timestamps=True, since_seconds=since_seconds, **options)
            return [] if answer is None else [_split_timestamp(line) for line in answer.data.splitlines()]

    def newest_time(self, pod: PodState) -> str:
        """Return the time (RFC 3339) of the last line of a pod's log; empty if it has none."""
        lines = self.stamped_log(pod, tail_lines=1)
        return lines[-1][0] if lines else ""

    def follow_log(
        self, pod: PodState, since_seconds: int | None, opened: Callable[[Callable[[], None]], None]
    ) -> Iterator[tuple[str, str]]:
        """Yield the time (RFC 3339) and text of each line of a pod's log until the container ends.

        Call `opened` with a function that ends the request.
        """
        with _translating_errors():
            timeout = (TIMEOUT[0], QUIET_SECONDS)
            answer = self._log(pod, timeout, follow=True, timestamps=True, since_seconds=since_seconds)
            if answer is None:
                return
            opened(partial(_end, answer))
            with closing(answer):
                rest = b""
                for chunk in answer.stream(amt=65536):
                    *whole, rest = (rest + chunk).split(b"\n")
                    yield from map(_split_timestamp, whole)

    def _log(self, pod: PodState, timeout: tuple[float, float], **options: Any) -> Any:
        """Return the answer to a request for a log; None if the pod is gone or has no log yet."""
        try:
            return self._core.read_namespaced_pod_log(
                pod.name, self.namespace, **options, _preload_content=False, _request_timeout=timeout
            )
        except ApiException as error:
            if error.status in (400, 404):
                return None
            raise


def _end(answer: Any) -> None:
    """End an answer that another thread is reading."""
    with suppress(ValueError, RuntimeError):  # The answer may have ended already.
        answer.shutdown()


def _split_timestamp(line: bytes) -> tuple[str, str]:
    time, _, text = line.decode(errors="replace").partition(" ")
    return time, text


def _items(call: Any, *arguments: str, **selectors: str) -> list[Object]:
    """Return the objects of a list as JSON values. Building the client's model objects would take much longer."""
    with _translating_errors():
        answer = call(*arguments, **selectors, _preload_content=False, _request_timeout=TIMEOUT)
        return list(json.loads(answer.data)["items"])


@contextmanager
def _translating_errors() -> Iterator[None]:
    """Raise Unreachable or one of its subclasses if a request fails."""
    try:
        yield
    except ApiException as error:
        kind = {401: Untrusted, 403: Forbidden, 404: NotFound}.get(error.status, Unreachable)
        raise kind(f"the API server answers {error.status} {error.reason}: {_detail(error.body)}") from error
    except (HTTPError, OSError, ValueError) as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise Untrusted(
                "the kubeconfig does not verify the API server's certificate; another cluster may have its address"
            ) from error
        raise Unreachable(f"the API server does not answer: {_short(error)}") from error


def _detail(body: Any) -> str:
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text.strip()[:200]


def _short(error: BaseException) -> str:
    """Return the text of a connection error, without the name of the client's connection object."""
    return str(error.__cause__ or error).rpartition(">: ")[2] or type(error).__name__


class LocalCluster:
    """Local cluster. Its folder and processes show its state even if its API server does not answer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of_kubeconfig(cls, path: str) -> LocalCluster | None:
        """Return the local cluster that a kubeconfig belongs to; None for another cluster."""
        cluster = cls(Path(path).parent.parent)
        return None if cluster.is_removed() else cluster

    def is_removed(self) -> bool:
        """Return True if the cluster's data is gone or being removed, as after `make down`."""
        return not (self._folder / ID_FILE).is_file()

    def has_processes(self) -> bool:
        """Return True if any process of the cluster runs."""
        return bool(leftovers.processes(self._folder))


def is_removed(kubeconfig: str) -> bool:
    """Return True if a kubeconfig belongs to a removed cluster of this machine. The stack's state may remain."""
    return Path(kubeconfig).is_relative_to(clusters_folder()) and LocalCluster.of_kubeconfig(kubeconfig) is None
