"""A script of the checkout, which goes into the pods as it is: no image has to be built for it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

HERE = ("./", "../")
"""How the path of a file here begins; any other is one in the image, or in a bucket that is mounted."""
FOLDER_IN_POD = "/opt/script"
MOST_BYTES = 900_000
"""A ConfigMap holds 1 MiB with all that is around it: https://kubernetes.io/docs/concepts/configuration/configmap/"""


@dataclass(frozen=True, kw_only=True)
class OwnScript:
    """One file and what the pods have it from."""

    name: str
    """Name of the file."""
    text: str
    """What is in it."""

    def config_map(self, job: str) -> str:
        """Name of the job's ConfigMap with it; another text has another name, so that what runs it is made again."""
        return f"{job}-script-{hashlib.sha256(f'{self.name} {self.text}'.encode()).hexdigest()[:8]}"


def is_here(script: str) -> bool:
    """Whether a job's script is a file of the checkout."""
    return script.startswith(HERE)


def path_in_pod(script: str) -> str:
    """Where a job's script is in its pods."""
    return f"{FOLDER_IN_POD}/{PurePosixPath(script).name}" if is_here(script) else script


def read(script: str, checkout: Path) -> OwnScript:
    """The script. Raises ValueError with what is wrong with the file, and what to do."""
    path = checkout / script
    try:
        content = path.read_bytes()
        text = content.decode()
    except (FileNotFoundError, IsADirectoryError) as error:
        raise ValueError(f"is no file of {checkout}; write its path from there, or one in the image") from error
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror}); give yourself the right to read it") from error
    except UnicodeDecodeError as error:
        raise ValueError("is no text in UTF-8; save it as that") from error
    if len(content) > MOST_BYTES:
        raise ValueError(
            f"has {len(content):,} bytes, and at most {MOST_BYTES:,} go into a pod; build an image with it"
        )
    return OwnScript(name=path.name, text=text)
