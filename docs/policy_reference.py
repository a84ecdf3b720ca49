"""`python -m docs.policy_reference` writes docs/policy.md: every rule, from the rules."""

from __future__ import annotations

from pathlib import Path

from policy.catalogue import RULES

TARGET = Path(__file__).with_name("policy.md")

INTRODUCTION = """\
# Policy

Rules for stacks, generated from `policy/` by `python -m docs.policy_reference`.

The rules run as plain predicates in `make preview`, and as a Pulumi policy pack (`pulumi preview --policy-pack
policy/pack`), from the same source. A `mandatory` finding fails the preview; an `advisory` one is shown.

```yaml
trainyard:policy:
  levels: {images-by-digest: mandatory}
  exceptions:
    - {rule: limits-set, resource: digits-job, reason: measured without limits for a week}
  may_replace: [gpus]
```

`levels` changes the level of a rule in a stack. `exceptions` allows a resource to break a rule, for a reason that
every preview shows. `may_replace` lists the pools with a running job and the buckets that a plan may replace or
delete.
"""


def render() -> str:
    """Return the text of docs/policy.md."""
    rows = ["| rule | level | looks at | why |", "|---|---|---|---|"]
    for rule in RULES:
        kinds = ", ".join(f"`{kind.rpartition(':')[2]}`" for kind in rule.types)
        rows.append(f"| `{rule.name}` | {rule.level} | {kinds} | {rule.why} [more]({rule.link}) |")
    return INTRODUCTION + "\n" + "\n".join(rows) + "\n"


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
