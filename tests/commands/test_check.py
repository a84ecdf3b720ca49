"""Interpretation of pip-audit's output by `make check`."""

from commands.check import verdict


def test_verdict_counts_skipped_packages_separately_from_checked_ones() -> None:
    vulnerability = {"id": "PYSEC-1", "fix_versions": ["2.0"]}
    answer = {
        "dependencies": [
            {"name": "a", "version": "1.0", "vulns": [vulnerability]},
            {"name": "b", "version": "1.0", "vulns": []},
            {"name": "c", "skip_reason": "not found"},
        ]
    }
    assert verdict(answer) == (["a 1.0 has PYSEC-1; fixed in ['2.0']"], 1, 2)
