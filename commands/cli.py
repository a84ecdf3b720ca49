"""Command line `trainyard`. Each command imports its module when it runs, so that `--help` is fast."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from commands.command_line import (
    PROJECT_OPTION,
    ClusterCommand,
    OrderedGroup,
    RootCommand,
    SetUpCommand,
    StackCommand,
    job_argument,
    json_option,
    option,
    output_option,
    port_option,
    run_group,
    verbose_option,
    yes_option,
)
from commands.interrupts import run_command, run_set_up
from infra.make_command import command_title
from infra.project import CHECKOUT, PROJECT_VARIABLE

SET_UP_CLOSING = "set-up keeps its finished steps; the next run continues from there"


def print_version(ctx: click.Context, _parameter: click.Parameter, is_set: bool) -> None:
    """Print the version and the commit, and exit."""
    if not is_set or ctx.resilient_parsing:
        return
    import tomllib

    from commands.doctor import commit

    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    click.echo(f"trainyard {project['version']}, {commit(CHECKOUT)}")
    ctx.exit()


@click.group(cls=OrderedGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=print_version, help="Print the version."
)
def cli() -> None:
    """Stand up a training cluster and run distributed training jobs on it.

    \b
    Examples:
      trainyard up                   create a cluster here and run its jobs
      trainyard preview --stack dev  show resources and cost of a cloud stack
      trainyard status               show jobs, hosts and ranks
      trainyard down                 destroy the stack and check for leftovers
    """


@cli.command(cls=ClusterCommand)
@option(
    "--job",
    "--example",
    envvar="JOB",
    metavar="NAMES",
    help="Run examples of docs/recipes instead of the stack's jobs.",
)
@yes_option
@option("--no-follow", is_flag=True, help="Exit after the update, while the jobs run. The exit status is the update's.")
@json_option
@verbose_option
def up(job: str | None, yes: bool, no_follow: bool, as_json: bool) -> int:
    """Create or update the stack and follow its jobs.

    Sets up this machine first. Before it changes resources of a cloud, it shows the plan, the price and the quota, and
    asks for confirmation. Except on platform `local`, it also asks before it ends a running job. The exit status is
    that of the jobs. While jobs run, Ctrl-C ends only this command; the jobs continue.

    \b
    Examples:
      trainyard up
      trainyard up --stack dev --yes
      trainyard up --stack dev --yes --no-follow
      trainyard up --example pytorch-gloo
      trainyard up --yes --json | jq '.jobs[].state'
    """
    # The settings read the names of the examples from this variable.
    os.environ["JOB"] = job or ""
    from commands import up as command
    from commands.status import with_status

    return with_status(lambda: command.main(is_confirmed=yes, no_follow=no_follow), as_json=as_json)


@cli.command(cls=ClusterCommand)
@job_argument
@json_option
def stop(job: str | None, as_json: bool) -> int:
    """Stop JOB: its hosts save a checkpoint and end. The cluster stays.

    Your own script saves a checkpoint only if it handles SIGTERM. JOB is needed if the stack has several jobs.

    \b
    Examples:
      trainyard stop
      trainyard stop digits --stack dev
    """
    from commands import jobs as command
    from commands.status import with_status

    return with_status(lambda: command.stop(job or ""), as_json=as_json)


@cli.command(cls=ClusterCommand)
@job_argument
@json_option
@verbose_option
def resume(job: str | None, as_json: bool) -> int:
    """Resume a stopped JOB from its checkpoint, and follow it.

    Your own script must load its checkpoint itself.

    \b
    Example:
      trainyard resume digits
    """
    from commands import jobs as command
    from commands.status import with_status

    return with_status(lambda: command.resume(job or ""), as_json=as_json)


@cli.command(cls=ClusterCommand)
@job_argument
@option(
    "--fresh",
    is_flag=True,
    envvar="FRESH",
    help="Delete the job's checkpoints, move its curves to another folder, and train from the beginning.",
)
@yes_option
@json_option
@verbose_option
def rerun(job: str | None, fresh: bool, yes: bool, as_json: bool) -> int:
    """Run JOB again, with the current settings. It resumes from its last checkpoint unless --fresh is set.

    A complete job of a recipe needs --fresh. Your own script must load its checkpoint itself.

    Asks before it ends a running job or deletes checkpoints.

    \b
    Examples:
      trainyard rerun digits
      trainyard rerun digits --fresh
    """
    from commands import jobs as command
    from commands.status import with_status

    return with_status(lambda: command.rerun(job or "", fresh=fresh, is_confirmed=yes), as_json=as_json)


@cli.command(cls=ClusterCommand)
@job_argument
@json_option
@option(
    "--to",
    envvar="TO",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Target folder. Default: ./JOB.",
)
@option("--all", "should_copy_all", is_flag=True, help="Copy all checkpoints, not only the newest.")
def fetch(job: str | None, as_json: bool, to: Path | None, should_copy_all: bool) -> int:
    """Copy the results of JOB to this machine.

    Copies the newest checkpoint, the metrics and the run record. Copies all checkpoints if their names do not show
    which is the newest.

    \b
    Examples:
      trainyard fetch digits
      trainyard fetch digits --to results/digits --all
    """
    from commands import bucket as command

    return command.fetch(job or "", to, should_copy_all=should_copy_all, as_json=as_json)


@cli.command(cls=ClusterCommand)
@option("--orphan", envvar="ORPHAN", metavar="NAME", help="Delete this cluster, whose checkout no longer exists.")
@json_option
@verbose_option
def down(orphan: str | None, as_json: bool) -> int:
    """Destroy the stack and check this machine for leftovers.

    `verify-empty` checks the cloud for leftovers.

    \b
    Examples:
      trainyard down
      trainyard down --stack dev
    """
    os.environ["ORPHAN"] = orphan or ""
    from commands import down as command
    from commands.status import with_status

    return with_status(command.main, as_json=as_json, removes_stack=orphan is None)


@cli.command(cls=ClusterCommand)
@json_option
def status(as_json: bool) -> int:
    """Show jobs and hosts: state, step, loss, rate, problems.

    \b
    Examples:
      trainyard status
      trainyard status --json | jq '.jobs[].state'
    """
    from commands import status as command

    return command.main(as_json=as_json)


@cli.command(cls=ClusterCommand)
@job_argument
@option("--rank", type=int, envvar="RANK", help="Show only this rank.")
@option("--no-follow", is_flag=True, help="Print the lines so far and exit.")
@option("--json", "as_json", is_flag=True, help="Print a JSON object for each line.")
@verbose_option
def logs(job: str | None, rank: int | None, no_follow: bool, as_json: bool) -> int:
    """Follow the logs of all jobs, or of JOB, until they end.

    \b
    Examples:
      trainyard logs
      trainyard logs digits --rank 1
      trainyard logs digits --no-follow > digits.log
      trainyard logs digits --json | jq 'select(.event == "test").fields'
    """
    from commands import follow

    return follow.main(job or "", rank, no_follow=no_follow, as_json=as_json)


@cli.command("exec", cls=ClusterCommand, context_settings={"allow_interspersed_args": False})
@option("--job", envvar="JOB", metavar="NAME", help="The job. Needed if the stack has several.")
@option("--rank", envvar="RANK", default="0", show_default=True, help="The rank, or a role such as `launcher`.")
@click.argument("command", nargs=-1)
def exec_(job: str | None, rank: str, command: tuple[str, ...]) -> int:
    """Open a shell in the pod of a rank, or run COMMAND there. Options of `exec` come before COMMAND.

    The memory of COMMAND counts toward the pod's limit. The exit status is that of COMMAND or of the shell.

    \b
    Examples:
      trainyard exec
      trainyard exec --rank 1 nvidia-smi -L
    """
    os.environ.update(JOB=job or "", RANK=rank)
    from commands import jobs

    return jobs.open_shell(command)


@cli.command(cls=StackCommand)
@json_option
@option("--base", metavar="COMMIT", help="Compare with the last common commit of HEAD and this branch or commit.")
@option("--engine", is_flag=True, help="Compare with the deployed stack. A cloud stack needs credentials.")
@option("--credentials", is_flag=True, help="Query the running jobs and the remaining quota.")
@option("--no-plugins", is_flag=True, help="Skip the checks by the official Pulumi plugins of the clouds.")
@option("--rehearsal", hidden=True, type=click.Path(path_type=Path), help="Output of `rehearse --json`.")
@option(
    "--output",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write report.md, comment.md, report.html, report.json.",
)
def preview(**options: Any) -> int:
    """Show resources, cost, quota and broken rules of a change.

    Needs credentials only with --engine or --credentials. Exit status 1: the change must not be merged.

    \b
    Examples:
      trainyard preview --stack dev
      trainyard preview --stack dev --base HEAD~1 --json
    """
    from commands import preview as command

    return command.main(os.environ["STACK"], **options)


@cli.command(cls=RootCommand)
@json_option
@verbose_option
@option("--fault", envvar="FAULT", metavar="FAULT", help="Inject a fault, such as stockout:nodepool:gpus.")
@option("--quota", multiple=True, metavar="NAME=LIMIT", help="Limit a quota, such as us-central1/NVIDIA_T4_GPUS=4.")
@option("--name", help="Name of the rehearsal, to run several at the same time.")
@option("--page", metavar="FILE", type=click.Path(dir_okay=False), help="Write the report as an HTML page too.")
def rehearse(as_json: bool, fault: str | None, quota: tuple[str, ...], name: str | None, page: str | None) -> int:
    """Try a cloud stack in a simulated cloud.

    Creates, runs and destroys it, without an account.

    \b
    Examples:
      trainyard rehearse --stack dev
      trainyard rehearse --stack dev --fault stockout:nodepool:gpus
      trainyard rehearse --stack dev --page rehearsal.html
    """
    from commands.rehearse import __main__ as command

    options = [*(("--quota", each) for each in quota), ("--fault", fault), ("--name", name), ("--page", page)]
    words = [word for option, value in options if value for word in (option, value)]
    return command.main([os.environ["STACK"], *(["--json"] if as_json else []), *words])


@cli.command(cls=ClusterCommand)
@job_argument
@port_option(6006, 1, "Port on this machine.")
def tensorboard(job: str | None, port: int) -> int:
    """Serve curves and profiles in TensorBoard.

    The address is http://localhost:6006 unless --port sets another port.

    \b
    Examples:
      trainyard tensorboard
      trainyard tensorboard digits --port 7000
    """
    from commands import profile as command

    command.check_port(port)
    os.environ.update(JOB=job or "", PORT=str(port))
    set_up = ("setup/python", ".venv-tensorboard", "requirements-tensorboard.txt")
    return command.serve_tensorboard(lambda: run_set_up(set_up, SET_UP_CLOSING))


@cli.command(cls=ClusterCommand)
@option("--only", is_flag=True, help="Show only the stack of --stack.")
@port_option(6007, 0, "Port on this machine; 0 for a free one.")
@option(
    "--open/--no-open",
    "opens",
    default=None,
    help="Open the page in the browser. Default: open it from a terminal with a graphical desktop.",
)
def dashboard(only: bool, port: int, opens: bool | None) -> int:
    """Show jobs, ranks, curves, nodes and cost in the browser.

    Serves one page on this machine. It shows the project's stacks that are up, and stacks of other projects with a
    cluster on this machine. With a Pulumi backend that is not a folder, it shows only the stack of --stack. The page
    loads nothing from the internet, and the command changes nothing. The address contains a secret token.

    \b
    Examples:
      trainyard dashboard
      trainyard dashboard --stack dev --only --port 7000 --no-open
    """
    from commands.dashboard import server as command

    return command.main(port=port, only=only, opens=opens)


@cli.command("verify-empty", cls=ClusterCommand)
def verify_empty() -> int:
    """List leftovers of a destroyed stack.

    Queries the cloud's API, or this machine for a stack without a cloud, and writes a JSON receipt.

    Exit status 1: there are leftovers.

    \b
    Example:
      trainyard verify-empty --stack dev
    """
    from commands import cloud_inventory as command

    return command.main(os.environ["STACK"])


@cli.command(cls=ClusterCommand)
@job_argument
@json_option
@output_option("The page. Default: report.html next to a run record on this machine, else ./JOB-report.html.")
def report(job: str | None, as_json: bool, output: Path | None) -> int:
    """Write a page about JOB: curves, restarts, settings, price.

    The page is one HTML file that needs no network.

    \b
    Examples:
      trainyard report digits
      trainyard report digits --output digits.html
    """
    from commands import report as command

    return command.report(job or "", output, as_json=as_json)


@cli.command(cls=ClusterCommand)
@job_argument
@json_option
@option("--rank", type=click.IntRange(0), default=0, show_default=True, envvar="RANK", help="The rank.")
@output_option("The page. Default: profile-JOB-RANK.html in this folder.")
def profile(job: str | None, as_json: bool, rank: int, output: Path | None) -> int:
    """Write a page about the trace that JOB has recorded.

    A job with the flag `profile_steps` records a trace. The page contains the time of each operation and a time line.
    The page is one HTML file that needs no network.

    \b
    Examples:
      trainyard profile digits
      trainyard profile digits --rank 3 --json
    """
    from commands import profile as command

    return command.profile(job or "", rank, output, as_json=as_json)


@cli.command(params=[PROJECT_OPTION])
@json_option
def doctor(project: Path | None, as_json: bool) -> int:
    """Check this machine, and show how to fix what is missing.

    Checks the machine, the tools, and the stacks of the folder.

    Exit status 1: the settings of a stack are invalid.

    \b
    Examples:
      trainyard doctor
      trainyard doctor --json | jq '.[] | select(.state != "ok")'
    """
    from commands import doctor as command

    return command.doctor(project, as_json=as_json)


@cli.command(cls=ClusterCommand)
@output_option("The archive.")
def bundle(output: Path | None) -> int:
    """Pack an archive for a bug report, with secrets masked.

    It contains settings, outputs, state, events, recent logs and versions. The state contains the source files of your
    jobs.

    \b
    Example:
      trainyard bundle --stack dev
    """
    from commands import doctor as command

    return command.bundle(output)


@cli.command(cls=StackCommand, context_settings={"ignore_unknown_options": True})
@json_option
@click.argument("action", type=click.Choice(["show", "set", "get", "rm"]), default="show", metavar="[ACTION]")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[KEY] [VALUE]")
def config(as_json: bool, action: str, words: tuple[str, ...]) -> int:
    """Show the settings with their defaults, or change one.

    `set`, `get` and `rm` take the arguments of `pulumi config`. `set --secret` encrypts the value.

    \b
    Examples:
      trainyard config
      trainyard config set --path 'trainyard:jobs[0].hosts' 4
      trainyard config set --secret secrets:wandb
    """
    from commands import stack_settings as command

    return command.show(as_json=as_json) if action == "show" else command.pulumi_config([action, *words])


@cli.command()
@option("--project", "-C", metavar="FOLDER", type=click.Path(file_okay=False, path_type=Path), help="Default: here.")
@option("--stack", "-s", default="local", show_default=True, metavar="NAME", help="Name of the stack.")
@option("--platform", metavar="KIND", help="local, gke or eks.")
@option("--program", metavar="NAME", help="A script such as ./train.py, or a recipe.")
@option("--hosts", type=int, help="Hosts of the job.")
@option("--account", metavar="NAME", help="Google Cloud project, or AWS region.")
@option("--accelerator", metavar="NAME", help="GPU of the hosts, such as nvidia-l4.")
def init(project: Path | None, stack: str, **given: str | int | None) -> int:
    """Write the first stack of a folder.

    Asks a few questions, or reads the answers from options.

    \b
    Examples:
      trainyard init
      trainyard init --program ./train.py --hosts 2
      trainyard init --stack dev --platform gke --account my-project-1 --accelerator nvidia-l4
    """
    folder = (project or Path.cwd()).resolve()
    os.environ.update({"STACK": stack, PROJECT_VARIABLE: str(folder)})
    from commands import stack_settings as command

    return run_command(command_title("init"), lambda: command.init(folder, stack, given))


@cli.command(cls=ClusterCommand)
def shell() -> int:
    """Open a shell with the stack's pulumi, kubectl and python.

    \b
    Example:
      trainyard shell --stack dev
    """
    from commands import shell as command

    status = run_set_up([sys.executable, "-m", "setup", *command.set_up_options()], SET_UP_CLOSING)
    if status == 0:
        command.main()
    return status


@cli.command(cls=SetUpCommand)
def setup() -> int:
    """Install tools and build the trainer's image.

    Needed for platform `local`, for which `trainyard up` also does this.

    \b
    Example:
      trainyard setup
    """
    return run_set_up([sys.executable, "-m", "setup"], SET_UP_CLOSING)


@cli.command()
@click.argument("name", type=click.Choice(["bash", "zsh", "fish"]), metavar="[bash|zsh|fish]")
def completion(name: str) -> int:
    """Print the completion script of a shell.

    \b
    Examples:
      trainyard completion bash >> ~/.bashrc
      trainyard completion zsh >> ~/.zshrc
      trainyard completion fish > ~/.config/fish/completions/trainyard.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(name)
    assert found is not None
    click.echo(found(cli, {}, "trainyard", "_TRAINYARD_COMPLETE").source())
    return 0


def main(arguments: list[str]) -> int:
    """Run the command line. Return the exit status."""
    return run_group(cli, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
