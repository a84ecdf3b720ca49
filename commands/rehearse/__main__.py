"""`python -m commands.rehearse STACK`: rehearse a cloud stack without an account. Exit status 0 means no problem."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from commands.command_line import STACK_NAME
from commands.environment import PROJECT
from commands.interrupts import ExitStatus, run_command, run_set_up, set_closing
from commands.rehearse.folder import cluster_settings, rehearsal_folder
from commands.rehearse.report import page
from commands.rehearse.run import Rehearsal, Subject
from infra.make_command import make_command
from infra.project import CHECKOUT
from settings.problems import error_text
from settings.text import wrap
from simulation.cloud import lifecycle
from stack.config import StackConfig, load_file
from workloads.kinds import operators_of


def _parse_quota(text: str) -> tuple[str, int]:
    """Return the name and the limit of a quota `NAME=LIMIT`. Raises ValueError for other text."""
    name, _, limit = text.rpartition("=")
    if not name or not limit.isdecimal():
        raise ValueError(f"--quota {text}: must be NAME=LIMIT, such as us-central1/NVIDIA_T4_GPUS=4")
    return name, int(limit)


def main(arguments: list[str]) -> int:
    """Rehearse the stack that the command line names. Return 0 if it finds no problem."""
    options = _options(arguments)
    file = options.file or PROJECT / f"Pulumi.{options.stack}.yaml"
    try:
        lifecycle.check_fault(options.fault)
        quotas = dict(map(_parse_quota, options.quota))
        # The rehearsal deletes the folder with this name.
        if not STACK_NAME.fullmatch(options.name):
            raise ValueError(
                f"--name {options.name}: must have only letters, digits, '-' and '_', and begin with a letter or "
                "digit; write another name"
            )
        if options.page and not options.page.absolute().parent.is_dir():
            raise ValueError(f"--page {options.page}: its folder does not exist; create it, or name another file")
    except ValueError as error:
        print(error, file=sys.stderr)
        return ExitStatus.USAGE
    try:
        config = load_file(file)
    except ValueError as error:
        print(error_text(file.name, error), file=sys.stderr)
        return 1
    if config.cloud.provisioned is None:
        print(
            f"{file.name}: platform.kind = {config.platform.kind}: rehearsals support only gke and eks; name a stack "
            "of one of these",
            file=sys.stderr,
        )
        return 1
    if status := _set_up(config, options):
        return status
    rehearsal = Rehearsal(
        subject=_subject(config, options.stack, file),
        folder=rehearsal_folder(options.name),
        cluster=cluster_settings(options.name, options.port),
        fault=options.fault,
        quotas=quotas,
        verbose=not options.json,
    )
    set_closing("the rehearsal's cluster and folder are removed")
    try:
        report = rehearsal.run()
    except RuntimeError as error:
        print(f"rehearsal: {error}", file=sys.stderr)
        return 1
    print(report.to_json() if options.json else wrap(report.to_text(), sys.stdout))
    if options.page:
        options.page.write_text(page(report), encoding="utf-8")
        print(f"page: {options.page.resolve()}", file=sys.stderr)
    return 0 if report.passed else 1


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m commands.rehearse", description=__doc__)
    parser.add_argument("stack", help="name of a stack whose settings are in Pulumi.<stack>.yaml")
    parser.add_argument("--file", type=Path, help="settings file (default: Pulumi.<stack>.yaml)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--page", type=Path, help="also write the report as an HTML page to this file")
    parser.add_argument(
        "--fault",
        default=os.environ.get("FAULT", ""),
        help="fault to inject, such as stockout:nodepool:gpus (the cloud has no capacity for pool gpus) or denied:7 "
        "(it denies the 7th change)",
    )
    parser.add_argument(
        "--quota",
        action="append",
        default=[],
        help="limit of a quota, such as us-central1/NVIDIA_T4_GPUS=4; repeat the option for more quotas",
    )
    parser.add_argument("--name", default="rehearsal", help="name of the cluster on this machine")
    parser.add_argument("--port", type=int, help="port of the cluster's API on 127.0.0.1 (default: a free port)")
    return parser.parse_args(arguments)


def _set_up(config: StackConfig, options: argparse.Namespace) -> int:
    """Install the tools that the rehearsal needs. Return the exit status."""
    operators = [f"--operator={name}" for name in sorted(operators_of(config.jobs))]
    image = ["--image"] if config.builds_images else []
    command = [sys.executable, "-m", "setup", f"--rehearsal={config.cloud.scheme}", *image, *operators]
    again = make_command("rehearse", STACK=options.stack)
    closing = f"set-up keeps its finished steps; {again} continues from there"
    return run_set_up(command, closing, stdout=sys.stderr if options.json else None)


def _subject(config: StackConfig, stack: str, file: Path) -> Subject:
    """Return the stack to rehearse, with the number of pods that each job must have."""
    return Subject(
        stack=stack,
        project=CHECKOUT,
        settings=file,
        jobs={job.name: sum(group.count for group in job.pod_groups) for job in config.jobs if not job.suspend},
        queued=frozenset(job.name for job in config.jobs if job.queue),
        cloud=config.cloud.provisioned,
    )


if __name__ == "__main__":
    sys.exit(run_command("rehearsal", lambda: main(sys.argv[1:])))
