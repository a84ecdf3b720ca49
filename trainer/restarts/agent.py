"""Restart the ranks of a host in its pod when any rank of the job fails.

If pods failed instead, Kubernetes' Job controller would replace N failed pods only after 10 s x 2^(N - 1), at most 600
s: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/controller/job/backoff_utils.go (newBackoffRecord). With
this agent a pod fails only if its host is lost, no restart is left, or a restart cannot help.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

from torch.distributed.elastic.agent.server.api import DEFAULT_ROLE, RunResult, WorkerSpec, WorkerState
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous.utils import parse_rendezvous_endpoint
from torch.distributed.launcher.api import LaunchConfig

from trainer.exit_codes import BAD_CONFIGURATION, DATA_ERROR, DIVERGED, DONE, PREEMPTED, RESTARTS_USED, SLOW_LINK
from trainer.restarts.rounds import HostsMissing, JobEnded, Rounds

NON_RETRYABLE_EXIT_CODES = frozenset({DIVERGED, DATA_ERROR, SLOW_LINK, BAD_CONFIGURATION})
"""Exit codes after which the same ranks would fail again."""
STOP_SECONDS = 5
"""Seconds that ranks have to exit after another rank has failed. Saving needs all ranks, so do not wait longer."""
SHUTDOWN_SECONDS = 30
"""Seconds that ranks of a preempted host have to exit, if torchrun has no --shutdown-timeout."""
NUM_EXIT_CODES = 256
"""Number of exit codes. Modulo this number, Python's code for a signal, such as -9, becomes 247."""


def is_applicable(arguments: argparse.Namespace) -> bool:
    """Return True if torchrun's arguments allow restarts and set a static rendezvous, so that this agent can run."""
    is_fixed = arguments.rdzv_backend == "static" and arguments.rdzv_endpoint and not arguments.standalone
    return bool(is_fixed and arguments.max_restarts > 0)


def run(config: LaunchConfig, entrypoint: Callable[..., object] | str, arguments: list[str]) -> int:
    """Run this host's ranks until they are done. Return the launcher's exit code."""
    # torch 2.9 (the XLA image) lacks this field and handles its default signals.
    if signals := getattr(config, "signals_to_handle", None):
        os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = signals
    # All hosts have equally many ranks, so torch need not ask each host for its number (_assign_worker_ranks).
    os.environ["TORCH_ELASTIC_WORKER_IDENTICAL"] = "1"
    address, port = parse_rendezvous_endpoint(config.rdzv_endpoint, default_port=29500)
    rounds = Rounds(
        address=address,
        port=port,
        host=int(config.rdzv_configs["rank"]),
        hosts=config.max_nodes,
        run_id=config.run_id,
        max_restarts=config.max_restarts,
        join_seconds=float(config.rdzv_configs.get("timeout", 600)),
    )
    agent = InPlaceAgent(_worker_spec(config, entrypoint, arguments, rounds), rounds, config)
    try:
        agent.run()
    except JobEnded as ended:
        rounds.end()
        source = "" if ended.is_mine else "another host ended the job: "
        print(f"error: {source}{ended}", file=sys.stderr, flush=True)
        return agent.exit_code(is_mine=ended.is_mine)
    except HostsMissing as missing:
        print(f"error: {missing}", file=sys.stderr, flush=True)
        return PREEMPTED
    finally:
        rounds.shutdown()
    return DONE


def _worker_spec(
    config: LaunchConfig, entrypoint: Callable[..., object] | str, arguments: list[str], rounds: Rounds
) -> WorkerSpec:
    # The fields that both classes have depend on torch's version: the images have 2.9, 2.10 and 2.15.
    shared = {each.name for each in fields(WorkerSpec)} & {each.name for each in fields(LaunchConfig)}
    return WorkerSpec(
        local_world_size=config.nproc_per_node,
        entrypoint=entrypoint,
        args=tuple(arguments),
        rdzv_handler=rounds,
        **{name: getattr(config, name) for name in shared},
    )


class InPlaceAgent(LocalElasticAgent):
    """torchrun's agent of one host. It restarts its ranks when the job starts a new round."""

    def __init__(self, spec: WorkerSpec, rounds: Rounds, config: LaunchConfig) -> None:
        assert config.logs_specs
        super().__init__(
            spec=spec,
            logs_specs=config.logs_specs,
            start_method=config.start_method,
            log_line_prefix_template=config.log_line_prefix_template,
        )
        # Some versions of torch in the images lack this parameter.
        self._shutdown_timeout = getattr(config, "shutdown_timeout", SHUTDOWN_SECONDS)
        self._rounds = rounds
        self._failed_with: int | None = None

    def exit_code(self, *, is_mine: bool) -> int:
        """Return this launcher's exit code after the job has ended. `is_mine` is True if this host ended the job.

        If a rank of this host has failed, return the rank's code; 256 - N if signal N ended the rank. 128 + N would
        mean that the launcher itself was killed, and Kubernetes would restart this host. If no rank has failed, or they
        failed because other ranks ended, return RESTARTS_USED on the host that ended the job. On other hosts return
        PREEMPTED, so that the host with the first failure decides how the job ends.
        """
        if (code := self._failed_with) is None or code == PREEMPTED:
            return RESTARTS_USED if is_mine else PREEMPTED
        return code % NUM_EXIT_CODES

    def _invoke_run(self, role: str = DEFAULT_ROLE) -> RunResult:
        del role
        group = self._worker_group
        try:
            while True:
                # The ranks of all hosts get the same TORCHELASTIC_RESTART_COUNT, the number of the round.
                self._initialize_workers(group)
                if result := self._supervise():
                    return result
                self._stop_workers(group)
        except SignalException:
            self._rounds.announce_preemption()
            raise

    def _rendezvous(self, worker_group: Any) -> None:
        super()._rendezvous(worker_group)
        self._remaining_restarts = self._worker_group.spec.max_restarts - self._rounds.joined.round

    def _start_workers(self, worker_group: Any) -> dict[int, Any]:
        found: dict[int, Any] = super()._start_workers(worker_group)
        assert self._pcontext
        # When a rank fails, torch would give the host's other ranks 30 seconds to exit.
        self._pcontext.close = partial(_close, self._pcontext.close)  # type: ignore[method-assign]  # torch has no hook
        return found

    def _stop_workers(self, worker_group: Any) -> None:
        del worker_group
        self._shutdown(signal.SIGTERM, STOP_SECONDS)

    def _shutdown(self, death_sig: signal.Signals = signal.SIGTERM, timeout: int | None = None) -> None:
        # torch 2.9 would end the ranks without this time-out, so end them before torch does.
        if self._pcontext:
            self._pcontext.close(death_sig, self._shutdown_timeout if timeout is None else timeout)
        super()._shutdown(death_sig)

    def _supervise(self) -> RunResult | None:
        """Wait until the ranks of all hosts are done. Return None if the round ends before that."""
        self._failed_with = None
        while True:
            time.sleep(self._worker_group.spec.monitor_interval)
            result = self._monitor_workers(self._worker_group)
            self._worker_group.state = result.state
            if result.state == WorkerState.SUCCEEDED:
                return result if self._rounds.finish() else None
            if result.state in (WorkerState.UNHEALTHY, WorkerState.FAILED):
                self._restart_after(result)
                return None
            if self._rounds.is_superseded:
                return None

    def _restart_after(self, result: RunResult) -> None:
        """Start another round after a failure of this host's ranks. Raises JobEnded if the job ends instead."""
        rank, failure = ChildFailedError("", result.failures).get_first_failure()
        code = self._failed_with = failure.exitcode
        reason = f"rank {rank} ended with {f'exit code {code}' if code > 0 else f'signal {-code}'}"
        following = self._rounds.restart(
            reason, can_help=code not in NON_RETRYABLE_EXIT_CODES, is_own=code != PREEMPTED
        )
        counted = f"{following.restarts}/{self._rounds.max_restarts}"
        print(f"restart number={following.round} counted={counted} failed_rank={rank} exit_code={code}", flush=True)


def _close(close: Callable[..., None], death_sig: signal.Signals | None = None, timeout: int = STOP_SECONDS) -> None:
    close(death_sig, timeout)
