"""Checks and questions before a command spends money or deletes something: credentials, budget, quota, price."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from commands.interrupts import CommandError, ExitStatus
from commands.stack import BACKEND_VARIABLE, pulumi
from infra.cloud import Cloud
from infra.cost import over_budget
from infra.inventory import API_DISABLED, run_json
from infra.make_command import COMMAND_VARIABLE, make_command
from infra.naming import JOB_LABEL
from settings.problems import ConfigError
from stack.config import CONFIG_NAMESPACE, StackConfig, parse
from stack.placement import advice

if TYPE_CHECKING:
    from commands.monitor.job_state import JobState
    from commands.review.plan import Step


class NotConfirmed(CommandError):
    """Error if the user did not answer yes, or if there is no terminal for the answer."""

    status = ExitStatus.NOT_CONFIRMED


def confirm(question: str, *, is_confirmed: bool = False) -> None:
    """Ask the user, unless `is_confirmed`. Raises NotConfirmed if the answer is not yes.

    `question` has no question mark.
    """
    if is_confirmed:
        return
    if not sys.stdin.isatty():
        option = "`--yes`" if os.environ.get(COMMAND_VARIABLE) else "`YES=1`"
        raise NotConfirmed(
            f"{question}? There is no terminal for the answer; nothing was changed; add {option} to answer yes"
        )
    sys.stdout.flush()
    try:
        answer = input(f"{question}? [y/N] ")
    except EOFError:
        answer = ""
        print(flush=True)  # Ctrl-D leaves the cursor on the line of the question.
    if answer.strip().lower() not in ("y", "yes"):
        raise NotConfirmed("nothing was changed")


def join_question(parts: Sequence[str]) -> str:
    """Join the parts of a question with "and". Return an empty text if there are no parts."""
    question = ", and ".join(parts)
    return question[:1].upper() + question[1:]


def job_end(job: str, state: JobState | None) -> str:
    """Return the part of a question that asks to end a job; empty if the job does not run. An unknown state is None."""
    if state is None:
        return f"end job {job}, whose state is unknown"
    is_stopped = state.is_over or state.state in ("absent", "suspended")
    return "" if is_stopped else f"end job {job}, which is {state.state}"


TIMEOUT_SECONDS = 30
"""Time limit of a command that checks a login."""
LOGINS: Mapping[str, str] = {
    "gs": "run `gcloud auth login` and `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS "
    "to a key file and run `gcloud auth login --cred-file=FILE`",
    "s3": "run `aws sso login` or `aws configure`, or set AWS_PROFILE",
}
"""Scheme of a bucket's URL -> commands that log in to that cloud.

`gcloud` and other programs use separate credentials for Google Cloud:
https://cloud.google.com/docs/authentication/gcloud
"""
AWS_VARIABLES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_PROFILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
"""Variables with credentials: https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html"""
PRODUCT_FILE = Path("/sys/class/dmi/id/product_name")
VENDOR_FILE = Path("/sys/class/dmi/id/sys_vendor")
"""Files that name the cloud of a virtual machine. The cloud may give such a machine credentials."""


def missing_credentials(scheme: str, environment: Mapping[str, str] = os.environ) -> str:
    """Check this machine's login to a cloud. Return the problem; empty if there is none.

    `scheme` is the URL scheme of the cloud's buckets.
    """
    return CREDENTIAL_CHECKS[scheme](environment)


def _google(environment: Mapping[str, str]) -> str:
    """Check Google's application default credentials.

    https://cloud.google.com/docs/authentication/application-default-credentials. Pulumi's provider also reads other
    variables, but the kubeconfig's plugin does not.
    """
    login = LOGINS["gs"]
    if account := environment.get("GOOGLE_IMPERSONATE_SERVICE_ACCOUNT"):
        return (
            f"GOOGLE_IMPERSONATE_SERVICE_ACCOUNT = {account}: kubectl's plugin does not read it; unset it, and run "
            f"gcloud auth application-default login --impersonate-service-account={account}"
        )
    if file := environment.get("GOOGLE_APPLICATION_CREDENTIALS"):
        if not Path(file).is_file():
            return f"GOOGLE_APPLICATION_CREDENTIALS = {file}: no such file; {login}"
        return ""
    folder = environment.get("CLOUDSDK_CONFIG") or f"{environment.get('HOME', '')}/.config/gcloud"
    if not (Path(folder) / "application_default_credentials.json").is_file():
        # https://cloud.google.com/compute/docs/instances/detect-compute-engine
        return "" if "Google" in _read(PRODUCT_FILE) else f"this machine has no credentials for Google Cloud; {login}"
    problem = _failure("gcloud", "auth", "application-default", "print-access-token")
    return problem and f"Google Cloud does not accept the credentials ({problem}); {login}"


def _aws(environment: Mapping[str, str]) -> str:
    login = LOGINS["s3"]
    files = [
        environment.get("AWS_SHARED_CREDENTIALS_FILE") or f"{environment.get('HOME', '')}/.aws/credentials",
        environment.get("AWS_CONFIG_FILE") or f"{environment.get('HOME', '')}/.aws/config",
    ]
    has_any = any(environment.get(name) for name in AWS_VARIABLES) or any(Path(file).is_file() for file in files)
    # https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/identify_ec2_instances.html
    if not has_any and "Amazon" not in _read(VENDOR_FILE):
        return f"this machine has no credentials for AWS; {login}"
    problem = _failure("aws", "sts", "get-caller-identity", "--output=json")
    return problem and f"AWS does not accept the credentials ({problem}); {login}"


CREDENTIAL_CHECKS: Mapping[str, Callable[[Mapping[str, str]], str]] = {"gs": _google, "s3": _aws}
"""Scheme of a bucket's URL -> check of the credentials for that cloud."""


def _failure(*words: str) -> str:
    """Return a command's error in one line; empty if it succeeds or is not installed."""
    if shutil.which(words[0]) is None:
        return ""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"`{words[0]}` did not answer within {TIMEOUT_SECONDS} s"
    if done.returncode == 0:
        return ""
    return " ".join(done.stderr.split()) or f"`{' '.join(words)}` failed with {done.returncode}"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


HOURS_PER_MONTH = 730
"""Hours per month in Google's and AWS's price calculators."""
RemainingQuota = Mapping[tuple[str, str], int]
"""Name and location of a quota -> its remaining amount."""


class NotAllowed(CommandError):
    """Error if the account, the budget or the policy does not allow a change of the stack. Nothing was created."""


def check_account(stack: str, config: StackConfig) -> RemainingQuota:
    """Check the credentials and the budget. Return the remaining quota; empty if it is unknown.

    Raises NotAllowed if a check fails or the quota cannot be queried.
    """
    cloud = config.cloud
    if problem := missing_credentials(cloud.scheme):
        raise NotAllowed(f"{problem}; nothing was created")
    if excess := over_budget(cloud.cost_estimate(), config.budget):
        raise NotAllowed(f"stack {stack} {excess}; nothing was created")
    try:
        return remaining_quota(cloud)
    except FileNotFoundError:
        command = cloud.provisioned and cloud.provisioned.command
        print(f"the remaining quota is unknown, because `{command}` is missing; install it to check the quota")
        return {}
    except subprocess.CalledProcessError as error:
        raise NotAllowed(
            f"the account cannot be queried: {query_error(error)}; if you are not logged in, {LOGINS[cloud.scheme]}; "
            f"otherwise check `platform` in Pulumi.{stack}.yaml, and your permissions; nothing was created"
        ) from error


def remaining_quota(cloud: Cloud) -> RemainingQuota:
    """Return the account's remaining quota; empty if the project has not enabled the API that lists it.

    Raises FileNotFoundError if the cloud's command is missing, and CalledProcessError if the account cannot be queried.
    """
    try:
        return dict(cloud.remaining_quota(run_json))
    except subprocess.CalledProcessError as error:
        if not any(words in (error.stderr or "") for words in API_DISABLED):
            raise
        reason = "because the project has not enabled the Compute Engine API; the stack enables it"
        print(f"the remaining quota is unknown, {reason}", file=sys.stderr)
        return {}


def query_error(error: subprocess.CalledProcessError) -> str:
    """Return the error of a command that queries an account, in one line."""
    return " ".join((error.stderr or "").split()) or f"exit status {error.returncode}"


def confirm_update(
    stack: str,
    config: StackConfig,
    remaining: RemainingQuota,
    options: Sequence[str] = (),
    *,
    is_confirmed: bool,
    rerun: str = "",
) -> None:
    """Ask for confirmation of an update that changes the cloud or ends jobs. Show the plan and the price for a cloud.

    `options` are Pulumi's options for the update, such as the resources to replace. The question omits the job `rerun`,
    because the user has already confirmed its end. Raises NotConfirmed. Raises NotAllowed if the quota is too small or
    the policy forbids a change.
    """
    # Import this module here, because it is slow to import.
    from commands.review.plan import steps_of

    print(f"stack {stack}: computing the changes with Pulumi", flush=True)
    steps = steps_of(pulumi("preview", "--json", "--show-sames", *options, "--stack", stack, quiet=True))
    is_cloud = config.cloud.provisioned is not None
    changes = [step for step in steps if is_cloud and is_in_cloud(step) and step.action != "same"]
    if changes:
        _check_plan(stack, config, steps, changes, remaining)
    if is_confirmed:
        return
    jobs = sorted(ended_jobs(steps) - {rerun})
    states = job_states(stack, jobs) if jobs else {}
    ends = [end for job in jobs if (end := job_end(job, states.get(job)))]
    if question := join_question([*([f"change stack {stack}"] if changes else []), *ends]):
        confirm(question)


def _check_plan(
    stack: str, config: StackConfig, steps: Sequence[Step], changes: Sequence[Step], remaining: RemainingQuota
) -> None:
    """Print the plan of an update; `changes` are its steps in the cloud. Raises NotAllowed like `confirm_update`."""
    from commands.review.plan import forbidden

    is_new = not any(is_in_cloud(step) and step.action == "same" for step in steps)
    before = None if is_new or not remaining else deployed_config(stack)
    quota = missing_quota(config, remaining, before) if is_new or before else ()
    problems = [*quota, *forbidden(steps, {}, config.policy.may_replace)]
    print(*plan_lines(stack, config, changes, remaining), sep="\n", flush=True)
    if problems:
        raise NotAllowed("\n".join([*(f"stack {stack} {each}" for each in problems), "nothing was created"]))


def ended_jobs(steps: Sequence[Step]) -> set[str]:
    """Return the jobs whose main resource the steps replace or delete."""
    from commands.monitor.job_state import CUSTOM_KINDS

    kinds = {"Job", *(resource.kind for resource in CUSTOM_KINDS.values())}
    ended = [step for step in steps if step.kind in kinds and step.action in ("replace", "delete")]
    labels = [(step.inputs.get("metadata") or {}).get("labels") or {} for step in ended]
    return {each[JOB_LABEL] for each in labels if JOB_LABEL in each}


def job_states(stack: str, jobs: Sequence[str]) -> Mapping[str, JobState]:
    """Return the states of jobs by name; empty if the cluster does not answer."""
    # Import this module here, because it is slow to import.
    from commands.monitor.cluster import StackNotFound, StackOutputs, Unreachable, outputs_with

    try:
        return StackOutputs.of(stack, outputs_with(stack, "kubeconfig_path", "namespace", "jobs")).cluster().jobs(jobs)
    except (StackNotFound, Unreachable):
        return {}


def is_in_cloud(step: Step) -> bool:
    """Return True if a step's resource is in the cloud account, not in the Kubernetes cluster."""
    return not step.is_component and not step.type.startswith("kubernetes:")


def deployed_config(stack: str) -> StackConfig | None:
    """Return the settings of the last successful update, if only refreshes have followed.

    Return None after any other operation, because then only some resources may exist. Also return None if this
    version of Trainyard cannot read the settings.
    """
    entries = json.loads(pulumi("stack", "history", "--json", "--page-size", "20", "--stack", stack, quiet=True))
    last = next((each for each in entries if each["kind"] != "refresh"), None)
    if last is None or last["kind"] != "update" or last["result"] != "succeeded":
        return None
    values = {
        key.partition(":")[2]: each.get("objectValue", each.get("value"))
        for key, each in last["config"].items()
        if key.startswith(f"{CONFIG_NAMESPACE}:")
    }
    try:
        return parse(values)
    except ConfigError:
        return None


def missing_quota(config: StackConfig, remaining: RemainingQuota, before: StackConfig | None = None) -> Iterator[str]:
    """Yield a problem for each quota that is too small. `before` are the deployed settings, whose quota is in use."""
    used = {(each.name, each.location): each.amount for each in before.cloud.quota()} if before else {}
    for quota in config.cloud.quota():
        key = (quota.name, quota.location)
        more, available = quota.amount - used.get(key, 0), remaining.get(key)
        if available is not None and more > available:
            needed = f"{more} more" if key in used else f"{more}"
            yield f"needs {needed} of {quota.location} {quota.name}, but only {available} are left; request more quota"


def plan_lines(stack: str, config: StackConfig, steps: Sequence[Step], remaining: RemainingQuota) -> list[str]:
    """Return the lines to show before the question: the changes, the price and the quota of a stack."""
    from commands.review.plan import by_kind

    lines = [f"Stack {stack} on {config.platform.kind}"]
    for action, kinds in by_kind(steps).items():
        listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
        lines.append(f"  {action} {sum(kinds.values())}: {listed}")
    lines += price_lines(config)
    for quota in config.cloud.quota():
        available = remaining.get((quota.name, quota.location))
        known = "remaining quota unknown" if available is None else f"{available} left"
        lines.append(f"  quota: {quota.amount} of {quota.name} in {quota.location} ({known})")
    down = make_command("down", STACK=stack)
    end = "the stack has no `ttl_hours`"
    if config.ttl_hours and BACKEND_VARIABLE in os.environ:
        end = f"the GitHub workflow `destroy` removes the stack after {config.ttl_hours:g} h, if a reviewer approves"
    elif config.ttl_hours:
        end = f"`ttl_hours` has no effect, because no workflow can read the stack's state; set {BACKEND_VARIABLE}"
    lines += [f"  note: {each}" for each in advice(config.cloud, config.jobs, config.ttl_hours)]
    return [*lines, f"  the stack costs money until {down}; {end}"]


def price_lines(config: StackConfig) -> list[str]:
    """Return a stack's total price, the price of each part, and the items without a known price."""
    estimate = config.cloud.cost_estimate()
    total = estimate.total
    hour, day, month = (f"${total.amount * hours:,.2f}" for hours in (1, 24, HOURS_PER_MONTH))
    lines = [
        f"  price: {hour} an hour, {day} a day, {month} a month, at the maximum number of nodes; "
        f"the estimated range is ${total.low:,.2f} to ${total.high:,.2f} an hour"
    ]
    lines += [f"    {money.amount:10,.2f} an hour: {part}" for part, money in estimate.by_part().items()]
    return lines + [f"      price unknown: {each}" for each in estimate.unpriced]
