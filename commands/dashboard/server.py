"""Web server of `make dashboard`: the page, its updates as server-sent events, and logs. It listens only on 127.0.0.1.

Every path begins with a secret token, and the Host header must name this machine. Another page in the browser can then
neither read the dashboard nor guess its address. The check of the Host header also prevents DNS rebinding.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import secrets
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from commands.dashboard.document import document
from commands.dashboard.watch import Source, StackGone, StackWatcher, sources, state_folder
from commands.interrupts import STILL_RUNNING, CommandError, set_closing
from commands.monitor.cluster import StackNotFound, Unreachable
from infra.make_command import DEFAULT_STACK, make_command, option_text

ADDRESS = "127.0.0.1"
HOST_NAMES = (ADDRESS, "localhost")
"""Names of this machine that a Host header may have."""
PAGE = Path(__file__).with_name("page.html")
TOKEN_BYTES = 24
MAX_LISTENERS = 32
"""Maximum number of open pages that get updates."""
KEEP_ALIVE_SECONDS = 10.0
"""Seconds between two lines to a page if nothing changes. Only a write detects that the page was closed."""
END_SECONDS = 1.0
"""Maximum seconds that the server waits at its end until all open pages have the final message."""
REQUEST_SECONDS = 30.0
"""Seconds after which the server closes a connection that sends no request or reads nothing."""

Log = Callable[[str, str], str]
"""Function that returns the log of a stack's pod. Raises KeyError if there is none."""


class Hub:
    """Newest document of each stack, and the number of pages that wait for the next one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._messages: dict[str, str] = {}
        self._titles: dict[str, str] = {}
        self.listeners = 0
        self._end = ""

    def add(self, key: str, title: str) -> None:
        """Add a stack."""
        with self._changed:
            self._titles[key] = title
            self._set("waiting", key, {})

    def put(self, key: str, document: dict[str, Any]) -> None:
        """Set the newest document of a stack."""
        self._set("stack", key, document)

    def problem(self, key: str, text: str) -> None:
        """Set the reason why a stack has no newer document. The page keeps the last one."""
        self._set("problem", key, {"text": text})

    def remove(self, key: str, text: str) -> None:
        """Remove a stack that no longer exists."""
        with self._changed:
            self._set("gone", key, {"text": text})
            self._titles.pop(key, None)

    def _set(self, name: str, key: str, content: dict[str, Any]) -> None:
        with self._changed:
            if key in self._titles:
                self._messages[key] = message(name, {"key": key, "title": self._titles[key], **content})
                self._changed.notify_all()

    def end(self, text: str) -> None:
        """End all streams with a final message."""
        with self._changed:
            self._end = text
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.listeners == 0, END_SECONDS)

    @property
    def is_ended(self) -> bool:
        """True after `end`."""
        return bool(self._end)

    def wait_for_listener(self, seconds: float) -> bool:
        """Wait until a page is open. Return False after `seconds` without a page, or after `end`."""
        with self._changed:
            self._changed.wait_for(lambda: self.listeners > 0 or bool(self._end), seconds)
            return self.listeners > 0 and not self._end

    def wait_for_end(self, seconds: float) -> bool:
        """Wait at most `seconds` for `end`. Return True if it was called."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._end), seconds)

    def join(self) -> bool:
        """Count a new page. Return False if too many pages are open, or after `end`."""
        with self._changed:
            if self.listeners >= MAX_LISTENERS or self._end:
                return False
            self.listeners += 1
            self._changed.notify_all()
            return True

    def leave(self) -> None:
        """Stop counting a page."""
        with self._changed:
            self.listeners -= 1
            self._changed.notify_all()

    def news(self, sent: dict[str, str]) -> tuple[list[str], bool]:
        """Wait at most KEEP_ALIVE_SECONDS for messages that are not in `sent`. Return them, and True after `end`."""
        with self._changed:

            def found() -> list[str]:
                return [text for key, text in self._messages.items() if sent.get(key) is not text]

            self._changed.wait_for(lambda: bool(found()) or bool(self._end), KEEP_ALIVE_SECONDS)
            messages = found()
            sent.update(self._messages)
            if self._end:
                messages.append(message("end", {"text": self._end}))
            return messages, bool(self._end)


def message(name: str, content: dict[str, Any]) -> str:
    """Return a server-sent event."""
    return f"event: {name}\ndata: {json.dumps(content, separators=(',', ':'))}\n\n"


def content_policy(page: str) -> str:
    """Return the page's Content-Security-Policy: only its own script and style, by their digests."""

    def digests(tag: str) -> str:
        blocks = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        return " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'" for each in blocks
        )

    return (
        f"default-src 'none'; script-src {digests('script')}; style-src {digests('style')}; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


class Server(ThreadingHTTPServer):
    """Web server. Each connection has a thread, which ends with the process."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int, hub: Hub, log: Log) -> None:
        """Listen on a port of this machine; 0 for a free one. Raises CommandError if it cannot be opened."""
        self.hub, self.log = hub, log
        self.token = secrets.token_urlsafe(TOKEN_BYTES)
        self.page = PAGE.read_text(encoding="utf-8")
        self.policy = content_policy(self.page)
        try:
            super().__init__((ADDRESS, port), Handler)
        except OSError as error:
            raise CommandError(
                f"{option_text('PORT', str(port))}: cannot be opened on {ADDRESS} ({error.strerror}); set another "
                "port, or 0 for a free one"
            ) from error

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{ADDRESS}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connection errors, such as a connection that the browser has closed. Print any other error."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Handler of the requests of one connection."""

    server: Server
    server_version = "trainyard"
    sys_version = ""
    timeout = REQUEST_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing, because the paths contain the token."""

    def do_GET(self) -> None:
        """Answer a GET request."""
        if problem := self._problem():
            self._send(HTTPStatus.FORBIDDEN, problem)
            return
        parts = urlsplit(self.path)
        name = parts.path.split("/", 2)[2] if parts.path.count("/") > 1 else None
        if name is None:
            # The page requests `events` relative to its address. The address must therefore end with a slash.
            self._send(
                HTTPStatus.PERMANENT_REDIRECT, "the page's address ends with /", location=f"/{self.server.token}/"
            )
        elif name == "":
            self._send(HTTPStatus.OK, self.server.page, "text/html")
        elif name == "events":
            self._stream()
        elif name == "log":
            self._log({key: values[-1] for key, values in parse_qs(parts.query).items()})
        else:
            self._send(HTTPStatus.NOT_FOUND, "not found")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer in one line to an invalid request, or to a request with a method other than GET."""
        del explain
        status = HTTPStatus(code)
        text = "the dashboard only answers GET" if status is HTTPStatus.NOT_IMPLEMENTED else message or status.phrase
        self.close_connection = True
        self._send(status, f"{text}\n")

    def _problem(self) -> str:
        """Return the reason to reject a request; empty if it may read the dashboard."""
        hosts = {f"{name}:{self.server.server_port}" for name in HOST_NAMES}
        if self.headers.get("Host") not in hosts:
            return f"the Host header must be {' or '.join(sorted(hosts))}: open the address that was printed"
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            return "other pages may not read the dashboard"
        given = urlsplit(self.path).path.removeprefix("/").partition("/")[0]
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            return "wrong token: open the address that the dashboard has printed"
        return ""

    def _log(self, values: dict[str, str]) -> None:
        try:
            text = self.server.log(values.get("stack", ""), values.get("pod", ""))
        except KeyError:
            self._send(HTTPStatus.NOT_FOUND, "no such pod: it was replaced, or its job is gone")
        except CommandError as error:
            self._send(HTTPStatus.BAD_GATEWAY, str(error))
        else:
            self._send(HTTPStatus.OK, text or "the pod has printed nothing so far\n")

    def _stream(self) -> None:
        """Send the documents of all stacks, then newer ones, until the browser closes or the server ends."""
        hub = self.server.hub
        if not hub.join():
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open, or the dashboard has ended")
            return
        try:
            self._headers(HTTPStatus.OK, "text/event-stream")
            self.end_headers()
            self.close_connection = True
            sent: dict[str, str] = {}
            is_over = False
            while not is_over:
                messages, is_over = hub.news(sent)
                self.wfile.write("".join(messages or [": nothing new\n\n"]).encode())
                self.wfile.flush()
        finally:
            hub.leave()

    def _send(self, status: HTTPStatus, text: str, kind: str = "text/plain", location: str = "") -> None:
        body = text.encode()
        self._headers(status, kind)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _headers(self, status: HTTPStatus, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Security-Policy", self.server.policy)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")


def serve(server: Server) -> threading.Thread:
    """Start the server in a thread."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    return thread


def stop(server: Server, text: str) -> None:
    """End all streams and the server. Open pages show the text."""
    server.hub.end(text)
    server.shutdown()
    server.server_close()


REFRESH_SECONDS = 2.0
"""Seconds between two queries of a stack while a page is open. Without a page, the dashboard queries no cluster."""
CHECK_SECONDS = 0.5
"""Seconds between two checks that at least one watched stack remains."""
SCAN_SECONDS = 5.0
"""Seconds between two searches for new stacks and jobs."""
REMOTE_SCAN_SECONDS = 60.0
"""Seconds between two such searches if the backend is remote, because each search runs Pulumi."""
ENDED_TEXT = "the dashboard has ended; the stacks and their jobs continue"
GONE_TEXT = "the last stack is gone, so the dashboard has ended"


class Dashboard:
    """Threads that watch the stacks and give their documents to the hub."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.watchers: dict[str, StackWatcher] = {}
        self._texts: list[str] = []
        self._gone: dict[str, Mapping[str, Any]] = {}

    def update(self, found: Sequence[Source]) -> None:
        """Watch new stacks, and update the outputs of the others. Raises CommandError if a stack cannot be watched."""
        for source in found:
            if watcher := self.watchers.get(source.key):
                watcher.renew(source)
                continue
            if self._gone.get(source.key) == source.outputs:
                continue
            watcher = self.watchers[source.key] = StackWatcher(source)
            self.hub.add(source.key, source.title)
            threading.Thread(target=self._watch, args=(watcher,), name=source.key, daemon=True).start()

    def log(self, key: str, pod: str) -> str:
        """Return the last lines of a pod's log. Raises KeyError if there is no such stack or pod."""
        return "\n".join([*self.watchers[key].log(pod), ""])

    def removal_messages(self) -> list[str]:
        """Return the messages about stacks that have gone since the last call."""
        found, self._texts = self._texts, []
        return found

    def _watch(self, watcher: StackWatcher) -> None:
        key = watcher.source.key
        while not self.hub.is_ended:
            begun = time.monotonic()
            try:
                if self.hub.wait_for_listener(SCAN_SECONDS):
                    self.hub.put(key, document(watcher.observe()))
                else:
                    watcher.check()
                    continue
            except StackGone as error:
                self.hub.remove(key, str(error))
                self._texts.append(str(error))
                if not watcher.is_local:
                    # The state of the removed stack may remain, and must not count as a new stack.
                    self._gone[key] = watcher.source.outputs
                del self.watchers[key]
                return
            except Unreachable as error:
                self.hub.problem(key, str(error))
            except Exception as error:
                # Without this, the page would show an old state as if it were new.
                self.hub.problem(key, f"the state cannot be shown: {type(error).__name__}: {error}")
            self.hub.wait_for_end(max(REFRESH_SECONDS - (time.monotonic() - begun), REFRESH_SECONDS / 4))


def main(*, port: int, only: bool, opens: bool | None) -> int:
    """Serve the dashboard until Ctrl-C, or until no stack is left.

    With `only`, show only the stack in $STACK. With `opens`, open a browser; if None, only on a graphical desktop.
    """
    stack = os.environ.get("STACK", DEFAULT_STACK)
    set_closing(STILL_RUNNING)
    found = sources(stack, only=only)
    if not found:
        name = f"stack {stack} is not up" if only else "no stack is up"
        raise StackNotFound(f"{name}; run {make_command('up')}")
    hub = Hub()
    dashboard = Dashboard(hub)
    server = Server(port, hub, dashboard.log)
    serve(server)
    try:
        dashboard.update(found)
        print(f"{server.url}\n  {_listed(found)}; only this machine can open it; Ctrl-C ends it", flush=True)
        if opens is None:  # Without a graphical desktop, Python would start a browser in the terminal.
            opens = sys.stdout.isatty() and bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
        if opens and not webbrowser.open(server.url):
            print("  no browser could be started; open the address yourself", flush=True)
        _until_gone(dashboard, stack, only=only)
        print(GONE_TEXT, flush=True)
        stop(server, GONE_TEXT)
    except BaseException:
        stop(server, ENDED_TEXT)
        raise
    return 0


def _until_gone(dashboard: Dashboard, stack: str, *, only: bool) -> None:
    """Look for new stacks and jobs until no watched stack is left."""
    scan_seconds = REMOTE_SCAN_SECONDS if state_folder() is None else SCAN_SECONDS
    warned, due = "", time.monotonic() + scan_seconds
    while dashboard.watchers:
        time.sleep(CHECK_SECONDS)
        for text in dashboard.removal_messages():
            print(text, flush=True)
        if time.monotonic() < due:
            continue
        try:
            dashboard.update(sources(stack, only=only))
        except StackNotFound:
            pass  # The stack's watcher reports it.
        except CommandError as error:
            if warned != str(error):
                warned = str(error)
                print(f"warning: the page may miss new stacks and jobs: {error}", file=sys.stderr, flush=True)
        due = time.monotonic() + scan_seconds
    # The last watcher may have ended after the messages were printed.
    for text in dashboard.removal_messages():
        print(text, flush=True)


def _listed(found: Sequence[Source]) -> str:
    return f"stack{'s' if len(found) > 1 else ''} {', '.join(each.title for each in found)}"
