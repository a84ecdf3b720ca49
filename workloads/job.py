"""TrainingJob component: the resources of one job of any kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pulumi
from pulumi_kubernetes.core.v1 import ConfigMap, Secret

from infra.naming import secret_name
from workloads import user_script
from workloads.kinds import KINDS
from workloads.objects import secondary_metadata
from workloads.pod import Placement
from workloads.spec import JobSpec


@dataclass(frozen=True, kw_only=True)
class TrainingJobArgs:
    """Arguments of a TrainingJob."""

    spec: JobSpec
    """Description of the job."""
    placement: Placement
    """The platform's values for its pods."""
    secrets: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Secret value of each variable in the spec's `secrets`."""
    checkout: Path = Path()
    """Folder that the paths of user scripts are relative to."""
    after: Sequence[pulumi.Resource] = ()
    """Resources that must exist before its pods can start."""


class TrainingJob(pulumi.ComponentResource):
    """Kubernetes resources of a distributed training job."""

    name: pulumi.Output[str]
    """Name of the job in its namespace, known after the job exists."""

    def __init__(self, name: str, args: TrainingJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:workloads:TrainingJob", name, None, opts)
        spec, placement = args.spec, args.placement
        # Child resources do not inherit `depends_on` from their component.
        dependencies = list(args.after)
        child = pulumi.ResourceOptions(parent=self, depends_on=dependencies)
        if spec.script and user_script.is_in_checkout(spec.script):
            script = user_script.read(spec.script, args.checkout)
            config_map = ConfigMap(
                f"{name}-script",
                metadata=secondary_metadata(spec, placement, script.config_map(spec.name), {}),
                data={script.keys[path]: text for path, text in script.files.items()},
                immutable=True,
                opts=child,
            )
            placement = replace(placement, script=script.config_map(spec.name), script_paths=script.paths)
            dependencies = [*dependencies, config_map]
        if spec.secrets:
            secret = Secret(
                f"{name}-secrets",
                metadata=secondary_metadata(spec, placement, secret_name(spec.name), {}),
                string_data={variable: args.secrets[variable] for variable in spec.secrets},
                opts=child,
            )
            dependencies = [*dependencies, secret]
        if spec.rendezvous_backend == "etcd":
            # Import here: its types take 0.1 s to import, and most jobs use another rendezvous.
            from workloads.etcd import render_etcd

            render_etcd(name, spec, placement, child)
        render = KINDS[spec.kind].render
        self.name = render(name, spec, placement, pulumi.ResourceOptions(parent=self, depends_on=dependencies))
        self.register_outputs({"name": self.name})
