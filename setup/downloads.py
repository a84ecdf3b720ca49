"""Downloads of official releases, with a limited wait, a checksum, and a draft until the file is complete."""

from __future__ import annotations

import hashlib
import http.client
import queue
import re
import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

PROBE_SECONDS = 5.0
"""Total time that all unanswered requests of one set-up may take."""
READ_SECONDS = 30.0
"""Maximum time without a byte during a download."""


class DownloadError(RuntimeError):
    """Error for a release that cannot be downloaded. The message gives the reason."""


class Downloads:
    """Downloads of one set-up run. They share the time for unanswered requests."""

    def __init__(self, *, probe_seconds: float = PROBE_SECONDS, read_seconds: float = READ_SECONDS) -> None:
        self._left = probe_seconds
        self._read_seconds = read_seconds
        self._lock = threading.Lock()
        self._reported = False

    def fetch(self, url: str, digest: str, file: Path) -> None:
        """Download `url` to `file` if its hexadecimal checksum is `digest`, a SHA-512 or SHA-256.

        Raises DownloadError, and leaves no file, if the server does not answer, stops in the middle or sends another
        file.
        """
        algorithm = {64: "sha256", 128: "sha512"}[len(digest)]
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.part")
        try:
            with self._open(url) as reply, draft.open("wb") as target:
                shutil.copyfileobj(reply, target)
            with draft.open("rb") as written:
                found = hashlib.file_digest(written, algorithm).hexdigest()
            if found != digest:
                raise DownloadError(f"{url} has {algorithm} {found[:12]}..., not {digest[:12]}...")
            draft.replace(file)
        except (OSError, http.client.HTTPException) as error:
            raise DownloadError(f"{url}: {error}") from error
        finally:
            draft.unlink(missing_ok=True)

    def text(self, url: str) -> str:
        """Return the text at `url`. Raises DownloadError."""
        try:
            with self._open(url) as reply:
                return reply.read().decode()
        except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
            raise DownloadError(f"{url}: {error}") from error

    def probe(self, url: str) -> None:
        """Ask a server for any answer. Raises DownloadError without one."""
        try:
            self._open(url).close()
        except urllib.error.HTTPError:
            return
        except (OSError, http.client.HTTPException) as error:
            raise DownloadError(f"{url}: {error}") from error

    def report(self, error: DownloadError, say: Callable[[str], None]) -> None:
        """Report once per set-up that releases cannot be downloaded and are built instead."""
        with self._lock:
            first, self._reported = not self._reported, True
        if first:
            say(f"no official release ({error}): building from Go modules")

    def _open(self, url: str) -> IO[bytes]:
        """Open `url` within the remaining time for probes.

        The request runs in a thread, because the lookup of a host name has no time-out.
        """
        with self._lock:
            if self._left <= 0:
                raise DownloadError(f"{url}: not tried, because no official host answered in {PROBE_SECONDS:.0f} s")
            begun = time.monotonic()
            answers: queue.Queue[IO[bytes] | Exception] = queue.Queue()
            threading.Thread(target=_request, args=(url, self._read_seconds, answers.put), daemon=True).start()
            try:
                answer = answers.get(timeout=self._left)
            except queue.Empty:
                answer = TimeoutError("no answer")
            if isinstance(answer, Exception):
                self._left -= time.monotonic() - begun
                raise answer
        return answer


def _request(url: str, seconds: float, put: Callable[[IO[bytes] | Exception], None]) -> None:
    try:
        put(urllib.request.urlopen(url, timeout=seconds))
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        put(error)


def listed_digest(text: str, name: str) -> str:
    """Return the SHA-512 or SHA-256 on the line of `text` with `name`. Raises DownloadError without one."""
    for line in text.splitlines():
        found = re.search(r"\b(?:[0-9a-f]{128}|[0-9a-f]{64})\b", line)
        if found and re.search(re.escape(name) + r"(?![\w.])", line):
            return found[0]
    raise DownloadError(f"the project's list of checksums has none of {name}")
