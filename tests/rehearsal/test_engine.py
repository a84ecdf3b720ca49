"""The real Pulumi engine creates, replaces and deletes resources of the simulated clouds, and previews updates."""

from collections.abc import Callable

from tests.rehearsal.simulated_stack import SimulatedStack

NewStack = Callable[[str], SimulatedStack]

NETWORK = """
import pulumi_gcp as gcp
provider = gcp.Provider("google", project="some-project", region="us-central1")
on = ResourceOptions(provider=provider)
api = gcp.projects.Service("compute", service="compute.googleapis.com", opts=on)
vpc = gcp.compute.Network("vpc", name="{name}", project=api.project, auto_create_subnetworks=False, opts=on)
subnet = gcp.compute.Subnetwork("subnet", network=vpc.id, ip_cidr_range="10.0.0.0/20", opts=on)
pulumi.export("subnet", subnet.self_link)
"""


def test_resources_are_created_replaced_and_deleted(new_stack: NewStack) -> None:
    stack = new_stack(NETWORK.format(name="first"))
    stack.up()
    clouds = stack.clouds
    assert "gcp:compute/network:Network projects/some-project/global/networks/first" in clouds.resources
    [subnet] = clouds.of_type("gcp:compute/subnetwork:Subnetwork")
    assert subnet.inputs["name"].startswith("subnet-")
    assert stack.outputs()["subnet"] == f"https://www.googleapis.com/compute/v1/{subnet.id}"
    stack.run("up", "--yes", "--skip-preview", "--expect-no-changes")
    stack.write(NETWORK.format(name="second"))
    stack.up()
    assert {each.inputs["name"] for each in stack.clouds.of_type("gcp:compute/network:Network")} == {"second"}
    stack.destroy()
    assert stack.clouds.resources == {}
    removed = [each.type for each in stack.clouds.operations if each.verb == "delete"][-3:]
    assert removed.index("gcp:compute/subnetwork:Subnetwork") < removed.index("gcp:compute/network:Network")


BUCKET = """
import pulumi_gcp as gcp
replaced = ["softDeletePolicy.retentionDurationSeconds"]
gcp.storage.Bucket("bucket", name="kept", project="some-project", location="us",
    soft_delete_policy={{"retention_duration_seconds": {seconds}}},
    lifecycle_rules=[{{"action": {{"type": "Delete"}}, "condition": {{"age": {age}}}}}],
    opts=ResourceOptions(replace_on_changes=replaced))
"""


def test_replace_on_changes_of_a_nested_input_replaces_only_for_that_input(new_stack: NewStack) -> None:
    stack = new_stack(BUCKET.format(seconds=604800, age=5))
    stack.up()
    shown = stack.run("preview", "--diff")
    assert "1 to update" not in shown
    stack.write(BUCKET.format(seconds=604800, age=6))
    shown = stack.run("preview", "--diff")
    assert "1 to update" in shown
    assert "replace" not in shown.replace("replaceOnChanges", "")
    stack.write(BUCKET.format(seconds=691200, age=6))
    assert "1 to replace" in stack.run("preview", "--diff")


def test_preview_rejects_a_wrong_input_with_its_rule(new_stack: NewStack) -> None:
    stack = new_stack(NETWORK.format(name="Upper_Case"))
    shown = stack.run("preview", fails=True)
    assert "rule provider-schema, https://github.com/hashicorp/terraform-provider-google-beta/blob/" in shown
    assert stack.clouds.resources == {}
