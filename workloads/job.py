"""The TrainingJob component: the resources of one job, whatever its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from workloads.kinds import RENDERERS
from workloads.pod import Placement
from workloads.spec import JobSpec


@dataclass(frozen=True, kw_only=True)
class TrainingJobArgs:
    """What a training job is made from."""

    spec: JobSpec
    """What the job is meant to do."""
    placement: Placement
    """What the platform gives to its pods."""
    after: Sequence[pulumi.Resource] = ()
    """What must be there before its pods can start."""


class TrainingJob(pulumi.ComponentResource):
    """One distributed training job in the cluster."""

    name: pulumi.Output[str]
    """Name of the job in its namespace, known when the job is there."""

    def __init__(self, name: str, args: TrainingJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:workloads:TrainingJob", name, None, opts)
        render = RENDERERS[args.spec.kind]
        # Children do not inherit `depends_on` from their component.
        opts = pulumi.ResourceOptions(parent=self, depends_on=list(args.after))
        self.name = render(name, args.spec, args.placement, opts)
        self.register_outputs({"name": self.name})
