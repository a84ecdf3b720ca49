"""Tables of EKS and GKE versions: versions that are accepted on a day, and the age of the tables."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from infra.hardware.versions import (
    DEFAULT_EKS_VERSION,
    EKS_VERSIONS,
    EKS_VERSIONS_CHECKED,
    EXTENDED_CHANNEL,
    GKE_MINORS,
    GKE_STANDARD_ENDS,
    GKE_VERSIONS_CHECKED,
    eks_version_error,
    gke_version_error,
    is_in_standard_support,
)

TODAY = datetime.now(tz=UTC).date()


@pytest.mark.parametrize("version", EKS_VERSIONS)
def test_eks_version_is_supported_until_last_day_of_standard_support(version: str) -> None:
    last = EKS_VERSIONS[version].standard_ends
    assert eks_version_error(version, last) is None
    code, message = eks_version_error(version, last + timedelta(days=1)) or ("", "")
    assert code == "standard_support_ended"
    assert str(last) in message


@pytest.mark.parametrize(("version", "expected"), [("1.20", "no_longer_offered"), ("1.99", "not_yet_offered")])
def test_version_outside_table_has_code_and_offered_versions(version: str, expected: str) -> None:
    code, message = eks_version_error(version, date(2026, 12, 3)) or ("", "")
    assert (code, "1.35, 1.36" in message) == (expected, True)
    code, message = gke_version_error(version, "REGULAR", date(2026, 11, 25)) or ("", "")
    assert (code, "1.35 to 1.36" in message) == (expected, True)


def test_eks_versions_are_sorted_by_end_of_support() -> None:
    ends = [each.standard_ends for each in EKS_VERSIONS.values()]
    assert ends == sorted(set(ends))


@pytest.mark.parametrize("version", EKS_VERSIONS)
def test_eks_extended_support_ends_a_year_after_standard_support(version: str) -> None:
    support = EKS_VERSIONS[version]
    assert support.extended_ends == support.standard_ends.replace(year=support.standard_ends.year + 1)


def test_eks_default_version_is_newest_with_three_months_of_support() -> None:
    assert list(EKS_VERSIONS)[-1] == DEFAULT_EKS_VERSION
    left = EKS_VERSIONS[DEFAULT_EKS_VERSION].standard_ends - TODAY
    assert left > timedelta(days=90), "add the newer versions of EKS to infra/hardware/versions.py"


@pytest.mark.parametrize("version", ["1.34", "1.35.2-gke.100"])
def test_gke_version_is_offered_until_last_day_of_standard_support(version: str) -> None:
    last = GKE_STANDARD_ENDS[int(version.split(".")[1])]
    assert gke_version_error(version, "REGULAR", last) is None
    code, message = gke_version_error(version, "REGULAR", last + timedelta(days=1)) or ("", "")
    assert code == "standard_support_ended"
    assert "release_channel: EXTENDED" in message
    assert gke_version_error(version, EXTENDED_CHANNEL, last + timedelta(days=1)) is None


def test_gke_versions_are_sorted_by_end_of_support() -> None:
    assert list(GKE_STANDARD_ENDS) == sorted(GKE_STANDARD_ENDS)
    assert list(GKE_STANDARD_ENDS.values()) == sorted(set(GKE_STANDARD_ENDS.values()))


@pytest.mark.parametrize("channel", sorted(set(GKE_MINORS) - {EXTENDED_CHANNEL}))
def test_gke_channel_has_version_with_two_months_of_support(channel: str) -> None:
    oldest, newest = GKE_MINORS[channel]
    soon = TODAY + timedelta(days=60)
    known = [each for each in range(oldest, newest + 1) if is_in_standard_support(each, soon)]
    assert known, "add the newer versions of GKE to infra/hardware/versions.py"


def test_gke_versions_newest_end_of_support_is_three_months_away() -> None:
    left = max(GKE_STANDARD_ENDS.values()) - TODAY
    assert left > timedelta(days=90), "add the dates of GKE's release schedule to infra/hardware/versions.py"


@pytest.mark.parametrize(
    ("checked", "source"),
    [(EKS_VERSIONS_CHECKED, "AWS's table"), (GKE_VERSIONS_CHECKED, "GKE's release schedule")],
    ids=["eks", "gke"],
)
def test_versions_were_checked_within_four_months(checked: date, source: str) -> None:
    # EKS and GKE each add a version about every four months.
    age = TODAY - checked
    assert age < timedelta(days=130), f"compare infra/hardware/versions.py with {source} and set the day"
