"""Table of GKE versions: those that a channel accepts on a day, and the age of the table."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from infra.hardware.versions import (
    EXTENDED,
    GKE_MINORS,
    GKE_STANDARD_ENDS,
    GKE_VERSIONS_CHECKED,
    is_in_standard_support,
    unoffered,
)

TODAY = datetime.now(tz=UTC).date()


@pytest.mark.parametrize("version", ["1.34", "1.35.2-gke.100"])
def test_gke_version_is_offered_until_last_day_of_standard_support(version: str) -> None:
    last = GKE_STANDARD_ENDS[int(version.split(".")[1])]
    assert unoffered(version, "REGULAR", last) is None
    code, said = unoffered(version, "REGULAR", last + timedelta(days=1)) or ("", "")
    assert code == "standard_support_ended"
    assert f"left standard support on {last}" in said
    assert "release_channel: EXTENDED, which costs an additional fee" in said
    assert unoffered(version, EXTENDED, last + timedelta(days=1)) is None


def test_gke_version_outside_channel_has_code_and_offered_versions() -> None:
    day = date(2026, 11, 25)
    regular = "write one of 1.35 to 1.36, in quotes, or another release_channel than REGULAR"
    assert unoffered("1.20", "REGULAR", day) == ("no_longer_offered", f"is no longer offered; {regular}")
    assert unoffered("1.99", "REGULAR", day) == ("not_yet_offered", f"is not yet offered; {regular}")


def test_gke_versions_are_sorted_by_end_of_support() -> None:
    assert list(GKE_STANDARD_ENDS) == sorted(GKE_STANDARD_ENDS)
    assert list(GKE_STANDARD_ENDS.values()) == sorted(set(GKE_STANDARD_ENDS.values()))


@pytest.mark.parametrize("channel", sorted(set(GKE_MINORS) - {EXTENDED}))
def test_gke_channel_has_version_with_two_months_of_support(channel: str) -> None:
    oldest, newest = GKE_MINORS[channel]
    soon = TODAY + timedelta(days=60)
    known = [each for each in range(oldest, newest + 1) if is_in_standard_support(each, soon)]
    assert known, "add the newer versions of GKE to infra/hardware/versions.py"


def test_gke_versions_newest_end_of_support_is_three_months_away() -> None:
    left = max(GKE_STANDARD_ENDS.values()) - TODAY
    assert left > timedelta(days=90), "add the dates of GKE's release schedule to infra/hardware/versions.py"


def test_gke_versions_were_checked_within_four_months() -> None:
    # GKE adds a version about once in four months.
    age = TODAY - GKE_VERSIONS_CHECKED
    assert age < timedelta(days=130), "compare infra/hardware/versions.py with GKE's release schedule and set the day"
