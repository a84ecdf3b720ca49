"""`make dashboard`: serve the dashboard's page on this machine until Ctrl-C, or until no stack is left."""

from __future__ import annotations

import os
import sys
import threading
import time
import webbrowser
from collections.abc import Mapping, Sequence
from typing import Any

from commands.dashboard.document import document
from commands.dashboard.server import Hub, Server, serve, stop
from commands.dashboard.watch import Source, StackGone, StackWatcher, sources
from commands.interrupts import STILL_RUNNING, CommandError, set_closing
from commands.monitor.cluster import StackNotFound, Unreachable
from infra.make_command import DEFAULT_STACK, make_command

REFRESH_SECONDS = 2.0
"""Seconds between two looks at a stack while a page is open. Without a page, clusters are not queried."""
LOOK_SECONDS = 0.5
"""Seconds between two looks for the end of the last stack."""
SCAN_SECONDS = 5.0
"""Seconds between two looks for new stacks."""
ENDED = "the dashboard has ended; the stacks and their jobs continue"
GONE = "the last stack is gone, so the dashboard has ended"


class Dashboard:
    """Threads that watch the stacks, and the hub that has their documents."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.watchers: dict[str, StackWatcher] = {}
        self._texts: list[str] = []
        self._gone: dict[str, Mapping[str, Any]] = {}

    def update(self, found: Sequence[Source]) -> None:
        """Start to watch the stacks that are new. Raises CommandError if one cannot be watched."""
        for source in found:
            if source.key in self.watchers or self._gone.get(source.key) == source.outputs:
                continue
            watcher = self.watchers[source.key] = StackWatcher(source)
            self.hub.add(source.key, _title(source))
            threading.Thread(target=self._watch, args=(watcher,), name=source.key, daemon=True).start()

    def log(self, key: str, pod: str) -> str:
        """Return the last lines of a pod's log. Raises KeyError if there is no such stack or pod."""
        return "\n".join([*self.watchers[key].log(pod), ""])

    def farewells(self) -> list[str]:
        """Return the texts about stacks that are gone since the last call."""
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
                    # Its state may be left, and must not count as a new stack.
                    self._gone[key] = watcher.source.outputs
                del self.watchers[key]
                return
            except Unreachable as error:
                self.hub.problem(key, str(error))
            except Exception as error:
                # Without this the page would silently keep an old state.
                self.hub.problem(key, f"the state cannot be shown: {type(error).__name__}: {error}")
            self.hub.wait_for_end(max(REFRESH_SECONDS - (time.monotonic() - begun), REFRESH_SECONDS / 4))


def main(*, port: int, only: bool, opens: bool | None) -> int:
    """Serve until Ctrl-C, or until no stack is left."""
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
        if (has_desktop() if opens is None else opens) and not webbrowser.open(server.url):
            print("  no browser could be started; open the address yourself", flush=True)
        _until_gone(dashboard, stack, only=only)
        stop(server, GONE)
    except BaseException:
        stop(server, ENDED)
        raise
    return 0


def has_desktop() -> bool:
    """Return True if a browser can open a window here. Without one Python would start a browser in the terminal."""
    return sys.stdout.isatty() and bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _until_gone(dashboard: Dashboard, stack: str, *, only: bool) -> None:
    """Look for new stacks until none is left."""
    warned, due = "", time.monotonic() + SCAN_SECONDS
    while dashboard.watchers:
        time.sleep(LOOK_SECONDS)
        for text in dashboard.farewells():
            print(text, flush=True)
        if time.monotonic() < due:
            continue
        due = time.monotonic() + SCAN_SECONDS
        try:
            dashboard.update(sources(stack, only=only, is_first=False))
        except CommandError as error:
            if warned != str(error):
                warned = str(error)
                print(f"warning: a stack that came up since is not shown: {error}", file=sys.stderr, flush=True)


def _title(source: Source) -> str:
    return f"{source.stack} of {source.folder}" if source.folder else source.stack


def _listed(found: Sequence[Source]) -> str:
    return f"stack{'s' if len(found) > 1 else ''} {', '.join(map(_title, found))}"
