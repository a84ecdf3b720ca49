"""RULES: all rules of Trainyard, in the order of the documentation."""

from __future__ import annotations

from policy.cloud_rules import CLOUD_RULES
from policy.job_rules import JOB_RULES
from policy.rules import Rule

RULES: tuple[Rule, ...] = (*CLOUD_RULES, *JOB_RULES)
"""All rules. Their names are unique."""
