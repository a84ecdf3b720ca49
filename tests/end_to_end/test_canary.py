"""A job's secret reaches the pod on the local cluster, but no log, pod object, image layer, state or output."""

from __future__ import annotations

import gzip
import json
import subprocess
import tarfile
from pathlib import Path

import pytest

from infra.local.image_builder import find_builder
from tests.canary import CANARY, FORMS, leaks
from tests.end_to_end.conftest import Checkout

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(1200)]

CREATE_STACK = "from commands.stack import ensure_stack; ensure_stack('local')"
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
"""First bytes of files in these compression formats: RFC 1952, RFC 8878."""
MAX_LAYER_BYTES = 100_000_000
"""Maximum size of a searched layer. Larger layers contain libraries. Their build did not have this secret."""
PRINT_SECRET_LENGTH = """
import os
print("the secret has", len(os.environ.get("WANDB_API_KEY", "")), "letters")
"""


def searched_layers(reference: str, folder: Path) -> list[bytes]:
    """Return the settings and the small layers of an image. A build could add the secret to these."""
    archive = folder / "image.tar"
    with archive.open("wb") as file:
        find_builder().write_archive(reference, file)
    found = []
    with tarfile.open(archive) as members:
        for member in members:
            content = members.extractfile(member) if member.size < MAX_LAYER_BYTES else None
            if content is not None:
                found.append(decompressed(content.read()))
    archive.unlink()
    return found


def decompressed(content: bytes) -> bytes:
    """Return the content of a layer without compression."""
    if content.startswith(GZIP):
        return gzip.decompress(content)
    if content.startswith(ZSTD):
        return subprocess.run(["zstd", "-dc"], input=content, capture_output=True, check=True).stdout
    return content


def texts_in(folder: Path) -> list[str]:
    """Return the text of every file in a folder and its subfolders."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [path.read_text(encoding="utf-8", errors="replace") for path in files]


@pytest.fixture(scope="module")
def up_output(checkout: Checkout) -> str:
    """Return the output of `make up`. The secret is in the stack's settings and in the environment."""
    # Change the source, so that `make up` builds an image while the secret is set.
    source = checkout.folder / "trainer" / "__init__.py"
    source.write_text(source.read_text(encoding="utf-8") + f"\n{PRINT_SECRET_LENGTH}", encoding="utf-8")
    checkout.change(flags={"epochs": 1}, secrets={"WANDB_API_KEY": "wandb"})
    checkout.run("make", "setup")
    checkout.tool(".venv/bin/python", "-c", CREATE_STACK)
    checkout.tool("pulumi", "config", "set", "--stack", "local", "--secret", "secrets:wandb", CANARY)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_API_KEY", CANARY)
        return checkout.run("make", "up", seconds=900)


def test_secret_reaches_pod_and_is_in_no_log(checkout: Checkout, up_output: str) -> None:
    assert f"the secret has {len(CANARY)} letters" in up_output
    (secret,) = [each for each in checkout.objects("secrets") if each["metadata"]["name"] == "digits-secrets"]
    assert leaks(json.dumps(secret["data"])) == [FORMS[1]], "the search must find the value in the Secret"
    logs = checkout.kubectl("logs", "-l", "trainyard.dev/job=digits", "--tail=-1", "--all-containers")
    assert "letters" in logs
    assert leaks(up_output, logs, checkout.run("make", "logs"), checkout.run("make", "status")) == []


@pytest.mark.usefixtures("up_output")
def test_secret_is_not_in_objects_of_cluster(checkout: Checkout) -> None:
    found = checkout.kubectl("get", "pods,jobs,events,configmaps", "--all-namespaces", "-o", "yaml")
    assert "secretKeyRef" in found
    assert leaks(found, checkout.kubectl("describe", "pods")) == []


@pytest.mark.usefixtures("up_output")
def test_secret_is_not_in_image_layers(checkout: Checkout, tmp_path: Path) -> None:
    (pod, *_) = checkout.objects("pods")
    layers = searched_layers(pod["spec"]["containers"][0]["image"], tmp_path)
    assert any(b"the secret has" in layer for layer in layers), "the search must include the layer with the sources"
    assert [form for form in FORMS for layer in layers if form.encode() in layer] == []


@pytest.mark.usefixtures("up_output")
def test_secret_is_not_in_state_or_files(checkout: Checkout) -> None:
    folders = [checkout.folder / ".trainyard", checkout.cluster.folder / "logs", checkout.cluster.bucket]
    nodes = [checkout.cluster.node_folder(index) / "logs" for index in range(checkout.cluster.nodes)]
    found = [text for folder in (*folders, *nodes) for text in texts_in(folder)]
    assert any("digits-secrets" in text for text in found), "the search must include the state"
    settings = checkout.stack_file.read_text(encoding="utf-8")
    assert "secure:" in settings
    assert leaks(settings, *found) == []
