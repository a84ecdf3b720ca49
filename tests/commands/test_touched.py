"""Which stacks a change touches."""

from commands.touched import touched

STACKS = ["eks", "dev"]


def test_a_stack_file_touches_its_stack() -> None:
    assert touched(["Pulumi.dev.yaml", "README.md"], STACKS) == ["dev"]


def test_the_program_touches_all() -> None:
    assert touched(["infra/gcp/cluster.py"], STACKS) == ["dev", "eks"]


def test_documentation_and_removed_stacks_touch_none() -> None:
    assert touched(["docs/tour.md", "Pulumi.gone.yaml"], STACKS) == []
