"""`python -m network_check [-- PROGRAM]`: measure the bandwidth between hosts, and of an all-reduce.

torchrun starts this script. For each pair of hosts, the first ranks of both hosts exchange data, through NCCL on GPUs
and gloo on CPUs. The script exits with SLOW_LINK if the slowest link is below the minimum.
Otherwise the same processes run the program after `--`: a file, or `-m MODULE`, and arguments.
"""

from __future__ import annotations

import argparse
import os
import runpy
import statistics
import sys
import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from trainer.exit_codes import DONE, SLOW_LINK, ConfigurationError
from trainer.gpu import should_use_gpu

BITS_PER_BYTE = 8
GIGA = 1e9
WARMUP_TRANSFERS = 2
"""Number of transfers before the measured ones. The first transfer opens connections."""


def rounds_of_pairs(count: int) -> Iterator[list[tuple[int, int]]]:
    """Yield rounds of pairs. Each pair of hosts is in one round, and a host has at most one partner per round.

    This is the circle method of a round-robin tournament.
    """
    hosts: list[int | None] = list(range(count))
    if count % 2:
        hosts.append(None)
    for _ in range(len(hosts) - 1):
        half = len(hosts) // 2
        pairs = zip(hosts[:half], reversed(hosts[half:]), strict=True)
        yield [(min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None]
        hosts = [hosts[0], hosts[-1], *hosts[1:-1]]


def allreduce_gigabits(size: int, ranks: int, seconds: float) -> float:
    """Return the bus bandwidth of an all-reduce of `size` bytes, in 10^9 bits a second.

    Formula: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md#allreduce
    """
    return size * BITS_PER_BYTE / seconds / GIGA * 2 * (ranks - 1) / ranks


def measure(device: torch.device, *, megabytes: float, repetitions: int) -> float:
    """Measure all links and an all-reduce over all ranks. Print the results on rank 0.

    Return the bandwidth of the slowest link in 10^9 bits a second, on every rank.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    ranks_per_host = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    hosts = ranks // ranks_per_host
    data = torch.zeros(int(megabytes * 1e6), dtype=torch.uint8, device=device)
    bandwidths = torch.full((hosts, hosts), float("inf"), dtype=torch.float64, device=device)
    for pairs in rounds_of_pairs(hosts):
        for pair in pairs:
            if rank in (pair[0] * ranks_per_host, pair[1] * ranks_per_host):
                bandwidths[pair] = _link_gigabits(data, pair[0] * ranks_per_host, pair[1] * ranks_per_host, repetitions)
        dist.barrier()
    dist.all_reduce(bandwidths, dist.ReduceOp.MIN)
    seconds = _median_seconds(lambda: dist.all_reduce(data), repetitions, device)
    if rank == 0:
        for first in range(hosts):
            for second in range(first + 1, hosts):
                print(f"link hosts={first}-{second} gigabits={float(bandwidths[first, second]):.2f}", flush=True)
        rate = allreduce_gigabits(data.numel(), ranks, seconds)
        print(f"allreduce ranks={ranks} megabytes={megabytes:g} gigabits={rate:.2f}", flush=True)
    return float(bandwidths.min())


def _link_gigabits(data: torch.Tensor, first: int, second: int, repetitions: int) -> float:
    """Return the one-way bandwidth between two ranks in 10^9 bits a second, from the time of a round trip."""

    def round_trip() -> None:
        if dist.get_rank() == first:
            dist.send(data, second)
            dist.recv(data, second)
        else:
            dist.recv(data, first)
            dist.send(data, first)

    return 2 * data.numel() * BITS_PER_BYTE / _median_seconds(round_trip, repetitions, data.device) / GIGA


def _median_seconds(transfer: Callable[[], object], repetitions: int, device: torch.device) -> float:
    seconds = []
    for _ in range(WARMUP_TRANSFERS + repetitions):
        started = time.perf_counter()
        transfer()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - started)
    return statistics.median(seconds[WARMUP_TRANSFERS:])


def parse(arguments: list[str]) -> argparse.Namespace:
    """Parse the command line. `program` holds the words after `--`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--min-bandwidth-gbps", type=float, default=0.0, help="minimum bandwidth of every link, 10^9 bits/s"
    )
    parser.add_argument("--megabytes", type=float, default=64.0, help="size of a transfer in 10^6 bytes")
    parser.add_argument("--repetitions", type=int, default=5, help="number of times each transfer is measured")
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return parser.parse_args(arguments[:end], argparse.Namespace(program=arguments[end + 1 :]))


def check(options: argparse.Namespace) -> bool:
    """Run the check in a separate process group. Return True if every link has the minimum bandwidth."""
    gpu = should_use_gpu()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if gpu else torch.device("cpu")
    if gpu:
        torch.cuda.set_device(device)
    store, rank, ranks = next(iter(rendezvous("env://")))
    # Keep these keys separate from those of the program that runs next.
    own_store = PrefixStore("links", store)
    dist.init_process_group("nccl" if gpu else "gloo", store=own_store, rank=rank, world_size=ranks)
    try:
        slowest = measure(device, megabytes=options.megabytes, repetitions=options.repetitions)
    finally:
        dist.destroy_process_group()
    is_fast_enough: bool = slowest >= options.min_bandwidth_gbps
    if rank == 0:
        print(
            f"links {'good' if is_fast_enough else 'slow'} slowest={slowest:.2f} "
            f"minimum={options.min_bandwidth_gbps:g}",
            flush=True,
        )
    if not is_fast_enough:
        text = (
            f"error: the slowest link has {slowest:.2f} gigabits/s; the minimum is {options.min_bandwidth_gbps:g}; "
            "rank 0's `link` lines show the slow hosts: replace these, or lower `min_bandwidth_gbps`"
        )
        print(f"{text} (rank {rank}, exit code {SLOW_LINK})", file=sys.stderr, flush=True)
    return is_fast_enough


def run_after(program: list[str]) -> None:
    """Run a program, which is a file or `-m MODULE` with arguments, in this process."""
    if program[0] == "-m":
        sys.argv = program[1:]
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = program
        runpy.run_path(program[0], run_name="__main__")


def main() -> int:
    """Run the check and return its exit code. The program that runs next exits with its own code."""
    options = parse(sys.argv[1:])
    try:
        is_fast_enough = check(options)
    except ConfigurationError as error:
        print(f"error: {error} (exit code {error.exit_code})", file=sys.stderr, flush=True)
        return error.exit_code
    if not is_fast_enough:
        return SLOW_LINK
    if options.program:
        run_after(options.program)
    return DONE


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    if code != DONE:
        os._exit(code)
