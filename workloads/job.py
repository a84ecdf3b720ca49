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
from workloads.objects import companion
from workloads.pod import Placement
from workloads.spec import JobSpec


@dataclass(frozen=True, kw_only=True)
class TrainingJobArgs:
    """Arguments of a TrainingJob."""

    spec: JobSpec
    """Description of the job."""
    placement: Placement
    """Platform's values for its pods."""
    secrets: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Secret value of each variable in the spec's `secrets`."""
    checkout: Path = Path()
    """Folder that the paths of user scripts are relative to."""
    after: Sequence[pulumi.Resource] = ()
    """Resources that must exist before its pods can start."""


class TrainingJob(pulumi.ComponentResource):
    """Distributed training job in the cluster."""

    name: pulumi.Output[str]
    """Name of the job in its namespace, known after the job exists."""

    def __init__(self, name: str, args: TrainingJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:workloads:TrainingJob", name, None, opts)
        spec, placement = args.spec, args.placement
        # Child resources do not inherit `depends_on` from their component.
        before = list(args.after)
        child = pulumi.ResourceOptions(parent=self, depends_on=before)
        if spec.script and user_script.is_here(spec.script):
            script = user_script.read(spec.script, args.checkout)
            sent = ConfigMap(
                f"{name}-script",
                metadata=companion(spec, placement, script.config_map(spec.name), {}),
                data={script.name: script.text},
                immutable=True,
                opts=child,
            )
            placement, before = replace(placement, script=script.config_map(spec.name)), [*before, sent]
        if spec.secrets:
            secret = Secret(
                f"{name}-secrets",
                metadata=companion(spec, placement, secret_name(spec.name), {}),
                string_data={variable: args.secrets[variable] for variable in spec.secrets},
                opts=child,
            )
            before = [*before, secret]
        if spec.rendezvous_backend == "etcd":
            # Its types take 0.1 s to import, and most jobs use another rendezvous.
            from workloads.etcd import render_etcd

            render_etcd(name, spec, placement, child)
        render = KINDS[spec.kind].render
        self.name = render(name, spec, placement, pulumi.ResourceOptions(parent=self, depends_on=before))
        self.register_outputs({"name": self.name})
