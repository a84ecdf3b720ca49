"""Table of GKE versions: those that a channel accepts on a day, and the age of the table."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from infra.hardware.versions import (
    EXTENDED,
    GKE_MINORS,
    GKE_STANDARD_ENDS,
    GKE_VERSIONS_CHECKED,
    gke_version_error,
    is_in_standard_support,
)

TODAY = datetime.now(tz=UTC).date()


@pytest.mark.parametrize("version", ["1.34", "1.35.2-gke.100"])
def test_unoffered_version_is_accepted_until_its_last_day_of_standard_support(version: str) -> None:
    last = GKE_STANDARD_ENDS[int(version.split(".")[1])]
    assert gke_version_error(version, "REGULAR", last) is None
    code, said = gke_version_error(version, "REGULAR", last + timedelta(days=1)) or ("", "")
    assert code == "standard_support_ended"
    assert f"left standard support on {last}" in said
    assert "release_channel: EXTENDED, which costs an additional fee" in said
    assert gke_version_error(version, EXTENDED, last + timedelta(days=1)) is None


def test_unoffered_version_outside_the_channel_names_those_of_the_day() -> None:
    day = date(2026, 11, 25)
    regular = "write one of 1.35 to 1.36, in quotes, or another release_channel than REGULAR"
    assert gke_version_error("1.20", "REGULAR", day) == ("no_longer_offered", f"is no longer offered; {regular}")
    assert gke_version_error("1.99", "REGULAR", day) == ("not_yet_offered", f"is not yet offered; {regular}")


def test_support_of_each_version_ends_later_than_that_of_the_one_before() -> None:
    assert list(GKE_STANDARD_ENDS) == sorted(GKE_STANDARD_ENDS)
    assert list(GKE_STANDARD_ENDS.values()) == sorted(set(GKE_STANDARD_ENDS.values()))


@pytest.mark.parametrize("channel", sorted(set(GKE_MINORS) - {EXTENDED}))
def test_each_channel_has_a_version_whose_support_lasts_two_months(channel: str) -> None:
    oldest, newest = GKE_MINORS[channel]
    soon = TODAY + timedelta(days=60)
    known = [each for each in range(oldest, newest + 1) if is_in_standard_support(each, soon)]
    assert known, "add the newer versions of GKE to infra/hardware/versions.py"


def test_newest_known_end_of_support_is_three_months_away() -> None:
    left = max(GKE_STANDARD_ENDS.values()) - TODAY
    assert left > timedelta(days=90), "add the dates of GKE's release schedule to infra/hardware/versions.py"


def test_the_table_was_compared_with_gke_in_the_last_four_months() -> None:
    # GKE adds a version about once in four months.
    age = TODAY - GKE_VERSIONS_CHECKED
    assert age < timedelta(days=130), "compare infra/hardware/versions.py with GKE's release schedule and set the day"
