"""The program of tests/local/test_operators.py: operators, a namespace that enforces `restricted`, a job of each kind.

It runs after the preamble of tests/stand_ins/stack.py; `EDIT_jobs=no` leaves out the jobs.
"""

TEXT = """
import sys
sys.path.insert(0, {project!r})

from infra.local.program_image import program_reference
from infra.operator_releases import RELEASES
from infra.operators import Operators, OperatorsArgs
from tests.local.operator_jobs import jobs

images = {{name: program_reference(name) for name in RELEASES}}
operators = Operators(
    "operators",
    OperatorsArgs(needed=frozenset(RELEASES), images=images),
    pulumi.ResourceOptions(providers={{"kubernetes": cluster}}),
)
space = k8s.core.v1.Namespace(
    "jobs",
    metadata={{"name": namespace, "labels": {{"pod-security.kubernetes.io/enforce": "restricted"}}}},
    opts=on,
)
before = [operators, space]
for document in jobs(namespace, {image!r}) if edit("jobs", "yes") == "yes" else ():
    made = k8s.apiextensions.CustomResource(
        document["kind"],
        api_version=document["apiVersion"],
        kind=document["kind"],
        metadata={{**document["metadata"], "annotations": {{"pulumi.com/waitFor": "jsonpath={{.metadata.uid}}"}}}},
        spec=document["spec"],
        opts=pulumi.ResourceOptions(provider=cluster, depends_on=list(before)),
    )
    if document["kind"] == "ClusterTrainingRuntime":
        before.append(made)
"""
