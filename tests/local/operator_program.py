"""Program of tests/local/test_operators.py: operators, a namespace that enforces `restricted`, jobs.

It runs after the preamble of tests/plugins/stack.py. `EDIT_jobs` selects the jobs: one of each kind (`each`), `none`,
or jobs in a queue with capacity for one at a time: `two`, or one of each kind that supports queues (`queued`).
"""

TEXT = """
import sys
sys.path.insert(0, {project!r})

from infra.hardware import Capacity
from infra.local.program_image import program_reference
from infra.operators.releases import RELEASES
from infra.operators.operators import Operators, OperatorsArgs
from infra.hardware import PoolCapacity
from tests.local.operator_jobs import jobs, queued, two
from workloads.queues import Queues, QueuesArgs

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
chosen = edit("jobs", "each")
if chosen in ("two", "queued"):
    args = QueuesArgs(
        names=frozenset({{"research"}}),
        namespace=namespace,
        pools=[PoolCapacity(name="nodes", free=Capacity(millicores=300, memory=2**30))],
        after=before,
    )
    options = pulumi.ResourceOptions(providers={{"kubernetes": cluster}})
    before.append(Queues("queues", args, options))
documents = {{"each": jobs, "none": lambda *_: [], "two": two, "queued": queued}}[chosen](namespace, {image!r})
for document in documents:
    made = k8s.apiextensions.CustomResource(
        document["metadata"]["name"],
        api_version=document["apiVersion"],
        kind=document["kind"],
        metadata={{**document["metadata"], "annotations": {{"pulumi.com/waitFor": "jsonpath={{.metadata.uid}}"}}}},
        spec=document["spec"],
        opts=pulumi.ResourceOptions(provider=cluster, depends_on=list(before)),
    )
    if document["kind"] == "ClusterTrainingRuntime":
        before.append(made)
"""
