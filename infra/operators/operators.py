"""Operators component: all operators that a stack's jobs require, in one namespace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
from pulumi_kubernetes.core.v1 import Namespace
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from infra.naming import stack_labels
from infra.operators.operator import Operator, OperatorArgs
from infra.operators.releases import needed_releases
from infra.platform import Platform
from settings.types import OPERATORS_NAMESPACE


@dataclass(frozen=True, kw_only=True)
class OperatorsArgs:
    """Arguments of the operators."""

    needed: frozenset[str]
    """Names of the operators that the jobs require. The component adds those that these operators require."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Operator -> image; by default the image that the project publishes."""
    after: Sequence[pulumi.Resource] = ()
    """Resources that must exist before a pod can start."""


class Operators(pulumi.ComponentResource):
    """The operators, in a separate namespace that enforces the `restricted` Pod Security Standard.

    Pulumi creates dependents of this component after every webhook answers. On destroy it deletes them first, then the
    controllers, and the CRDs last.
    """

    versions: pulumi.Output[Mapping[str, str]]
    """Operator -> version, known when all operators are ready."""

    def __init__(self, name: str, args: OperatorsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:infra:Operators", name, None, opts)
        releases = needed_releases(args.needed)
        pod_security = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
        namespace = Namespace(
            f"{name}-namespace",
            metadata=ObjectMetaArgs(name=OPERATORS_NAMESPACE, labels={**stack_labels(), **pod_security}),
            opts=pulumi.ResourceOptions(parent=self),
        )
        operators: dict[str, Operator] = {}
        for release in releases:
            predecessors = sorted((release.requires | release.follows) & operators.keys())
            operators[release.name] = Operator(
                f"{name}-{release.name}",
                OperatorArgs(
                    release=release,
                    image=args.images.get(release.name, release.image),
                    namespace=namespace.metadata.name,
                    after=[*args.after, *(operators[predecessor] for predecessor in predecessors)],
                ),
                pulumi.ResourceOptions(parent=self),
            )
        self.versions = pulumi.Output.all(**{name: operator.version for name, operator in operators.items()})
        self.register_outputs({"versions": self.versions})


def install_operators(names: frozenset[str], platform: Platform) -> list[pulumi.Resource]:
    """Install operators on the platform. Return the resources that jobs must wait for.

    Raises ValueError if set-up has not run.
    """
    if not names:
        return []
    args = OperatorsArgs(needed=names, images=platform.operator_images, after=platform.before_pods())
    return [Operators("operators", args, platform.resource_options())]
