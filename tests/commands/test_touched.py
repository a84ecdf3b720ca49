"""Which stacks a change touches."""

from commands.touched import removed, touched

STACKS = {"eks": "", "dev": "jobs: [{script: ./train.py}]"}


def test_a_stack_file_touches_its_stack() -> None:
    assert touched(["Pulumi.dev.yaml", "README.md"], STACKS) == ["dev"]


def test_the_program_touches_all() -> None:
    assert touched(["infra/gcp/cluster.py"], STACKS) == ["dev", "eks"]


def test_documentation_and_removed_stacks_touch_none() -> None:
    assert touched(["docs/tour.md", "Pulumi.gone.yaml"], STACKS) == []


def test_a_script_of_the_checkout_touches_the_stacks_that_run_it() -> None:
    assert touched(["train.py"], STACKS) == ["dev"]


def test_a_removed_stack_is_named() -> None:
    assert removed(["docs/tour.md", "Pulumi.gone.yaml", "Pulumi.dev.yaml"], STACKS) == ["gone"]
