"""Table of EKS versions: those accepted on a day, and the age of the table."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from infra.hardware.versions import (
    DEFAULT_EKS_VERSION,
    EKS_VERSIONS,
    EKS_VERSIONS_CHECKED,
    eks_version_error,
)

TODAY = datetime.now(tz=UTC).date()


@pytest.mark.parametrize("version", EKS_VERSIONS)
def test_unsupported_version_is_accepted_until_its_last_day_of_standard_support(version: str) -> None:
    last = EKS_VERSIONS[version].standard_ends
    assert eks_version_error(version, last) is None
    assert str(last) in (eks_version_error(version, last + timedelta(days=1)) or ("", ""))[1]


def test_unsupported_version_outside_the_table_names_those_of_the_day() -> None:
    assert eks_version_error("1.20", date(2026, 12, 3)) == (
        "no_longer_offered",
        "is no longer offered; write one of 1.35, 1.36, in quotes",
    )
    assert eks_version_error("1.99", date(2026, 12, 3)) == (
        "not_yet_offered",
        "is not yet offered; write one of 1.35, 1.36, in quotes",
    )


def test_support_of_each_version_ends_later_than_that_of_the_one_before() -> None:
    ends = [each.standard_ends for each in EKS_VERSIONS.values()]
    assert ends == sorted(set(ends))
    assert all(each.extended_ends == each.standard_ends.replace(year=each.standard_ends.year + 1)
               for each in EKS_VERSIONS.values())  # fmt: skip


def test_the_default_is_the_newest_version_and_has_three_months_of_standard_support_left() -> None:
    assert list(EKS_VERSIONS)[-1] == DEFAULT_EKS_VERSION
    left = EKS_VERSIONS[DEFAULT_EKS_VERSION].standard_ends - TODAY
    assert left > timedelta(days=90), "add the newer versions of EKS to infra/hardware/versions.py"


def test_the_table_was_compared_with_aws_in_the_last_four_months() -> None:
    # EKS adds a version about once in four months.
    age = TODAY - EKS_VERSIONS_CHECKED
    assert age < timedelta(days=130), "compare infra/hardware/versions.py with AWS's table and set the day"
