"""Names are DNS labels, and labels have values that Kubernetes accepts."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.naming import job_labels, job_selector
from settings.kubernetes_values import check_label

LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set"""

DNS_LABEL = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
dns_labels = st.from_regex(DNS_LABEL, fullmatch=True)


@given(dns_labels)
def test_check_label_accepts_every_dns_label(value: str) -> None:
    assert check_label(value) == value


@given(st.text(max_size=70).filter(lambda text: not re.fullmatch(DNS_LABEL, text)))
def test_check_label_rejects_all_other_text(value: str) -> None:
    with pytest.raises(ValueError, match="DNS label"):
        check_label(value)


@pytest.mark.parametrize("value", ["a\n", "-a", "a-", "1a", "", "A", "a_b", "a.b", "a" * 64])
def test_check_label_rejects_near_misses(value: str) -> None:
    with pytest.raises(ValueError, match="DNS label"):
        check_label(value)


@given(dns_labels)
def test_job_labels_are_valid_and_include_selector(job: str) -> None:
    found = job_labels(job, "digits")
    assert all(LABEL_VALUE.fullmatch(value) for value in found.values())
    assert job_selector(job).items() <= found.items()
