"""A script of the checkout is in every pod of every kind; a new text replaces the job; an invalid script is
rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from stack import validation
from stack.config import parse
from tests.golden.manifests import ON_CLAIM
from tests.recording import run
from workloads.job import TrainingJob, TrainingJobArgs
from workloads.spec import JobKind, JobSpec
from workloads.user_script import MAX_BYTES

TEXT = "import os\nprint(os.environ['RANK'])\n"


def objects(folder: Path, kind: JobKind = "indexed-job", **job: Any) -> list[dict[str, Any]]:
    """Return the objects of a job with the script `train.py` of a folder."""
    spec = JobSpec(name="mine", kind=kind, script="./train.py", hosts=2, **job)
    args = TrainingJobArgs(spec=spec, placement=ON_CLAIM, checkout=folder)
    return run(lambda: TrainingJob("mine", args)).manifests()


def pods(found: Any) -> list[dict[str, Any]]:
    """Return the specs of all pods in manifests."""
    if isinstance(found, list):
        return [each for part in found for each in pods(part)]
    if not isinstance(found, dict):
        return []
    return ([found] if "containers" in found else []) + pods(list(found.values()))


@pytest.mark.parametrize("kind", get_args(JobKind))
def test_every_pod_has_it(kind: JobKind, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TEXT, encoding="utf-8")
    found = objects(tmp_path, kind)
    (sent,) = [each for each in found if each["kind"] == "ConfigMap"]
    assert sent["data"] == {"train.py": TEXT}
    specs = pods(found)
    assert specs
    for spec in specs:
        assert {"name": "script", "configMap": {"name": sent["metadata"]["name"]}} in spec["volumes"]
        (container,) = spec["containers"]
        assert {"name": "script", "mountPath": "/opt/script"} in container["volumeMounts"]
    words = [word for spec in specs for word in [*spec["containers"][0]["command"], *spec["containers"][0]["args"]]]
    assert any("/opt/script/train.py" in word for word in words)


def test_another_text_has_another_name(tmp_path: Path) -> None:
    names = []
    for text in (TEXT, TEXT, TEXT + "#\n"):
        (tmp_path / "train.py").write_text(text, encoding="utf-8")
        names += [each["metadata"]["name"] for each in objects(tmp_path) if each["kind"] == "ConfigMap"]
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "is not a file of"),
        (b"\xff\xfe", "is not UTF-8 text; save it as UTF-8"),
        (b"#" * (MAX_BYTES + 1), "are allowed; build an image with it"),
        (b"key = 'AKIA" + b"Q" * 16 + b"'", "contains an access key of AWS in clear"),
    ],
)
def test_what_cannot_go_is_refused(
    content: bytes | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / "train.py").write_bytes(content)
    monkeypatch.setattr(validation, "CHECKOUT", tmp_path)
    job = {"name": "mine", "script": "./train.py", "resources": {"cpu": "1m", "memory": "9Mi"}, "shared_memory": "1Mi"}
    with pytest.raises(ValueError, match=r"jobs\[0\].script = \"./train.py\": ") as refused:
        parse({"platform": {"kind": "local"}, "jobs": [job]})
    assert why in str(refused.value)
