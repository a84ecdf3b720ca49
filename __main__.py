"""The Trainyard program: load the configuration, build the platform, submit the jobs and export the outputs."""

from __future__ import annotations

import gc
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

# Imports and resource declarations create almost no garbage. With 513 jobs, one collection takes half a second and
# frees 3 % of the memory.
gc.disable()

import pulumi

from infra.builtin_images import TRAINER
from infra.naming import JOB_LABEL, KUEUE, stack_labels
from infra.project import project_folder
from stack import config as stack_config
from stack.placement import pools_of_jobs, queue_capacity
from stack.run_record import run_records
from stack.validation import data_source
from workloads.kinds import KINDS
from workloads.spec import ETCD_IMAGE, JobSpec

if TYPE_CHECKING:
    from infra.platform import Platform
    from workloads.job import TrainingJob


def submit(
    config: stack_config.StackConfig,
    spec: JobSpec,
    platform: Platform,
    pool: str | None,
    dependencies: list[pulumi.Resource],
) -> TrainingJob:
    """Create the resources of one job after its dependencies. The job runs on the nodes of `pool`, if set."""
    # Import here: these modules import the Kubernetes types, which is slow. Platform `local` imports them while its
    # cluster starts.
    from workloads.job import TrainingJob, TrainingJobArgs
    from workloads.objects import PUBLIC_ETCD_IMAGE, Placement

    data, layer = data_source(config.cloud, spec), config.job_layers.get(spec.name)
    placement = Placement(
        namespace=platform.namespace,
        service_account=platform.service_account,
        image=spec.image_ref.reference or platform.image(layer or spec.image_ref.builtin),
        bucket_url=platform.bucket_url,
        bucket_claim=platform.bucket_claim,
        data_location=data.location if data else None,
        data_claim=mount_folder(spec, data.folder, platform) if data and data.folder else None,
        etcd_image=platform.image(ETCD_IMAGE) if ETCD_IMAGE in config.cloud.built_images else PUBLIC_ETCD_IMAGE,
        scheduling=config.cloud.scheduling(spec.host_group, pool),
    )
    args = TrainingJobArgs(
        spec=spec,
        placement=placement,
        secrets={variable: stack_config.secret(name) for variable, name in spec.secrets.items()},
        project=project_folder(),
        left_out=config.left_out,
        after=[*platform.before_pods(), *dependencies],
    )
    return TrainingJob(spec.name, args, platform.resource_options())


def mount_folder(spec: JobSpec, folder: Path, platform: Platform) -> pulumi.Output[str]:
    """Create a volume and a claim for a local folder. Return the claim's name, which contains a hash of the path."""
    # Import here, as in `submit`.
    from infra.platform import HostFolder, HostFolderArgs

    claim = f"{spec.name}-data-{hashlib.sha256(str(folder).encode()).hexdigest()[:8]}"
    args = HostFolderArgs(namespace=platform.namespace, claim=claim, folder=str(folder))
    return HostFolder(claim, args, platform.resource_options()).claim


def install_operators(config: stack_config.StackConfig, platform: Platform) -> list[pulumi.Resource]:
    """Install the operators that the jobs require. Return the resources that these jobs must wait for.

    Raises ValueError if set-up has not prepared an operator.
    """
    if not config.operators:
        return []
    # Import here: the module is slow to import, and the default stack has no operators.
    from infra.operators import Operators, OperatorsArgs

    args = OperatorsArgs(needed=config.operators, images=platform.operator_images, after=platform.before_pods())
    return [Operators("operators", args, platform.resource_options())]


def create_queues(
    config: stack_config.StackConfig, platform: Platform, operators: list[pulumi.Resource]
) -> list[pulumi.Resource]:
    """Create the queues of the jobs, with the platform's capacity for queued jobs as their quota.

    Return the resources that queued jobs must wait for.
    """
    # Import here: the module is slow to import, and most stacks have no queues.
    from workloads.queues import Queues, QueuesArgs

    args = QueuesArgs(
        names=frozenset(spec.queue for spec in config.jobs if spec.queue),
        namespace=platform.namespace,
        pools=queue_capacity(config.cloud, config.jobs),
        after=operators,
    )
    return [Queues("queues", args, platform.resource_options())]


def outputs(
    config: stack_config.StackConfig, platform: Platform, jobs: dict[str, TrainingJob]
) -> dict[str, pulumi.Input[object]]:
    """Return the stack's outputs, except `run_records`. README.md describes each output."""
    is_unused = TRAINER in config.cloud.built_images - config.builtin_images
    part_of = "app.kubernetes.io/part-of"
    logs_command = "logs --follow --prefix --tail=-1 --max-log-requests=100 --selector"
    return {
        "kubeconfig": platform.kubeconfig,
        "kubeconfig_path": platform.kubeconfig_path,
        "context": platform.context,
        "get_kubeconfig": platform.get_kubeconfig,
        "console": dict(platform.console),
        "namespace": platform.namespace,
        "bucket_url": platform.bucket_location,
        "image": "" if is_unused else platform.image(TRAINER),
        "jobs": list(jobs),
        "logs": {name: pulumi.Output.concat(platform.kubectl, f" {logs_command} {JOB_LABEL}={name}") for name in jobs},
        "status": pulumi.Output.concat(
            platform.kubectl, f" get jobs,pods --output wide --selector {part_of}={stack_labels()[part_of]}"
        ),
    }


async def main() -> None:
    """Declare the stack. Report errors in the configuration without a traceback."""
    try:
        config = stack_config.load()
        layers = frozenset(config.job_layers.values())
        platform = await config.cloud.build(config.operators, config.builtin_images, layers)
        operators = install_operators(config, platform)
    except ValueError as error:
        raise pulumi.RunError(str(error)) from error
    queues = create_queues(config, platform, operators) if KUEUE in config.operators else []
    jobs, pools = {}, pools_of_jobs(config.cloud, config.jobs)
    for spec in config.jobs:
        dependencies = [*(operators if KINDS[spec.kind].operators else []), *(queues if spec.queue else [])]
        jobs[spec.name] = submit(config, spec, platform, pools[spec.name], dependencies)
    for key, value in outputs(config, platform, jobs).items():
        pulumi.export(key, value)
    records = {name: {**record, "image": jobs[name].image} for name, record in run_records(config).items()}
    pulumi.export("run_records", records)


if __name__ == "__main__":
    pulumi.run(main)
