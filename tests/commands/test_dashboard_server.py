"""Web server of the dashboard: token, Host header, streams, logs, shutdown, and the page in a browser."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest

from commands.dashboard import server as command
from commands.dashboard.document import CURVE_KEYS, JobMetrics, document
from commands.dashboard.metrics import Curves
from commands.dashboard.server import MAX_LISTENERS, PAGE, Hub, Server, content_policy, message, serve, stop
from commands.environment import PROJECT
from commands.interrupts import STILL_RUNNING, CommandError
from commands.monitor.cluster import StackNotFound, Unreachable
from commands.monitor.job_state import JobState
from commands.run_times import times_of
from tests.commands.browser import draw, needs_chromium
from tests.commands.dashboard_state import START_TIME, event, observed, pod, stamp

LOG_TEXT = "a line\n"


def log(stack: str, pod: str) -> str:
    """Return the log of a pod. Raises Unreachable for the stack `unreachable`, and KeyError for an unknown pod."""
    if stack == "unreachable":
        raise Unreachable("the API server does not answer")
    return {("dev", "digits-0"): LOG_TEXT, ("dev", "digits-1"): ""}[stack, pod]


@pytest.fixture
def server() -> Iterator[Server]:
    """Yield a running server with the stack `dev`."""
    made = Server(0, Hub(), log)
    made.hub.add("dev", "dev")
    serve(made)
    yield made
    stop(made, "the test has ended")


def get(server: Server, path: str, **headers: str) -> tuple[int, str]:
    """Return status and body of a request."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request("GET", path, headers={key.replace("_", "-"): value for key, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


@contextmanager
def stream(url: str) -> Iterator[Iterator[tuple[str, dict[str, Any]]]]:
    """Yield an iterator over the events that a browser gets: name and content."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    connection.request("GET", f"{parts.path}events")
    answer = connection.getresponse()
    assert answer.status == 200

    def events() -> Iterator[tuple[str, dict[str, Any]]]:
        name = ""
        for line in answer:
            key, _, value = line.decode().strip().partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                yield name, json.loads(value)

    try:
        yield events()
    finally:
        answer.close()
        connection.close()


def test_page_needs_the_token_and_a_host_of_this_machine(server: Server) -> None:
    good, port = f"/{server.token}/", server.server_port
    assert get(server, good)[0] == 200
    assert get(server, good, Host=f"localhost:{port}")[0] == 200
    problem = f"the Host header must be 127.0.0.1:{port} or localhost:{port}: open the address that was printed"
    assert get(server, good, Host=f"attacker.example:{port}") == (403, problem)
    assert get(server, good, Host="127.0.0.1")[0] == 403
    assert get(server, good, Sec_Fetch_Site="cross-site")[0] == 403
    paths = (f"/{server.token[:-1]}/", f"/{server.token}x/", f"/x/{server.token}/")
    for path in ("/", "/wrong/", *paths, "/%C3%BC/", "without-a-slash"):
        assert get(server, path)[0] == 403
    assert get(server, f"/{server.token}/other")[0] == 404


def test_address_without_its_last_slash_redirects_to_the_page(server: Server) -> None:
    with urlopen(server.url.removesuffix("/"), timeout=10) as answer:
        assert (answer.status, answer.url) == (200, server.url)
        assert answer.read().decode() == server.page
    assert get(server, "/wrong")[0] == 403


def test_server_rejects_methods_other_than_get(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        connection.request(method, f"/{server.token}/log")
        answer = connection.getresponse()
        assert answer.read() == b"the dashboard only answers GET\n"
        assert (answer.status, answer.getheader("Content-Type")) == (501, "text/plain; charset=utf-8")


def test_log_of_a_known_pod_is_returned_and_of_an_unknown_pod_is_an_error(server: Server) -> None:
    path = f"/{server.token}/log?stack=dev&pod="
    assert get(server, f"{path}digits-0") == (200, LOG_TEXT)
    assert get(server, f"{path}digits-1") == (200, "the pod has printed nothing so far\n")
    assert get(server, f"{path}other")[0] == 404
    assert get(server, f"/{server.token}/log")[0] == 404
    assert get(server, f"/{server.token}/log?stack=unreachable")[0] == 502


def test_stream_has_each_newer_document_and_the_end(server: Server) -> None:
    with stream(server.url) as events:
        assert next(events) == ("waiting", {"key": "dev", "title": "dev"})
        server.hub.put("dev", {"time": 1})
        assert next(events) == ("stack", {"key": "dev", "title": "dev", "time": 1})
        server.hub.problem("dev", "no answer")
        assert next(events)[0] == "problem"
        server.hub.remove("dev", "stack dev is gone")
        assert next(events) == ("gone", {"key": "dev", "title": "dev", "text": "stack dev is gone"})
        server.hub.put("dev", {"time": 2})
        threading.Thread(target=server.hub.end, args=("over",)).start()
        assert list(events) == [("end", {"text": "over"})]
    assert server.hub.listeners == 0


def test_hub_accepts_a_limited_number_of_streams() -> None:
    hub = Hub()
    assert [hub.join() for _ in range(MAX_LISTENERS + 1)] == [True] * MAX_LISTENERS + [False]
    hub.leave()
    assert hub.join()


def test_message_has_no_line_break_in_its_data() -> None:
    assert message("stack", {"text": "a\nb"}) == 'event: stack\ndata: {"text":"a\\nb"}\n\n'


def test_content_policy_allows_only_the_scripts_and_styles_of_the_page() -> None:
    policy = content_policy("<style>a</style><script>b</script>")
    assert policy.startswith("default-src 'none'; script-src 'sha256-PiPoFgA5WUoziU9lZOGxNIu9egCI1CxKy3PurtWcAJ0='; ")
    assert "; style-src 'sha256-ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs='; " in policy
    assert "unsafe" not in policy


def test_page_loads_nothing_and_has_no_inline_handlers() -> None:
    text = PAGE.read_text(encoding="utf-8")
    markup = re.sub(r"<script>.*?</script>|<style>.*?</style>", "", text, flags=re.DOTALL)
    assert re.findall(r'(?:src|href)=(?!"data:,")', markup) == []
    assert re.findall(r"\s(?:on\w+|style)=", markup) == []
    assert re.findall(r"https?://(?!www\.w3\.org/2000/svg)|innerHTML|eval\(|@import|url\(", text) == []


def test_port_in_use_is_an_error_with_advice(server: Server) -> None:
    with pytest.raises(CommandError, match=rf"PORT={server.server_port}: cannot be opened .* 0 for a free one"):
        Server(server.server_port, Hub(), log)


def test_dashboard_without_a_stack_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACK", "dev")
    monkeypatch.setattr(command, "sources", lambda *_words, **_options: [])
    with pytest.raises(StackNotFound, match="stack dev is not up; run `make up STACK=dev`"):
        command.main(port=0, only=True, opens=False)
    with pytest.raises(StackNotFound, match="no stack is up"):
        command.main(port=0, only=False, opens=False)


PROGRAM = """\
import pathlib, sys
from commands.dashboard import server as command
from commands.dashboard.watch import Source, StackGone
from commands.interrupts import run_command
from commands.monitor.cluster import Unreachable

class Watcher:
    is_local = True
    def __init__(self, source):
        self.source = source
    def check(self):
        if pathlib.Path(sys.argv[1]).exists():
            raise StackGone("stack dev is gone")
    def observe(self):
        self.check()
        raise Unreachable("no answer")

command.StackWatcher = Watcher
command.sources = lambda stack, only: [Source(stack="dev", outputs={})]
command.REFRESH_SECONDS = 0.2
sys.exit(run_command("make dashboard", lambda: command.main(port=0, only=False, opens=False)))
"""


@contextmanager
def dashboard(marker: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield a process of `make dashboard` and the address of its page. Its stack is gone once `marker` exists."""
    words = [sys.executable, "-c", PROGRAM, str(marker)]
    with subprocess.Popen(words, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert process.stdout.readline() == "  stack dev; only this machine can open it; Ctrl-C ends it\n"
        yield process, url


def test_ctrl_c_with_an_open_page_prints_one_line_and_ends_the_stream(tmp_path: Path) -> None:
    with dashboard(tmp_path / "gone") as (process, url), stream(url) as events:
        assert next(events)[0] in ("waiting", "problem")
        process.send_signal(signal.SIGINT)
        assert list(events)[-1] == ("end", {"text": command.ENDED_TEXT})
        text = process.communicate(timeout=60)[0]
    assert (process.returncode, text) == (130, f"make dashboard: stopped; {STILL_RUNNING}\n")


def test_dashboard_with_an_open_page_ends_when_its_last_stack_is_gone(tmp_path: Path) -> None:
    with dashboard(tmp_path / "gone") as (process, url), stream(url) as events:
        names = iter(name for name, _ in events)
        assert next(name for name in names if name == "problem")
        (tmp_path / "gone").touch()
        assert [name for name in names if name != "problem"] == ["gone", "end"]
        text = process.communicate(timeout=60)[0]
    assert (process.returncode, text) == (0, "stack dev is gone\nthe last stack is gone, so the dashboard has ended\n")


def draw_until_the_stream_ends(server: Server, folder: Path) -> subprocess.CompletedProcess[str]:
    """Draw the page, and end its stream: headless Chromium waits for the stream before it takes the picture."""

    def end() -> None:
        server.hub.wait_for_listener(60)
        server.hub.end("the test has ended")

    threading.Thread(target=end).start()
    return draw(server.url, folder)


@needs_chromium
def test_browser_shows_a_failed_job_whose_rank_0_has_no_pod(server: Server, tmp_path: Path) -> None:
    failed = JobState(name="script", kind="indexed-job", state="failed", hosts=2, uid="uid-script", started=stamp(0))
    digits = observed().metrics["digits"]
    latest = {0: {**digits.latest[0], "global_steps": 1250}}
    seen = observed(
        jobs={"script": failed, **observed().jobs},
        pods=[pod(1, job="script", state="failed", runs_script=True)],
        metrics={"digits": replace(digits, latest=latest), "script": late_metrics()},
    )
    server.hub.put("dev", document(seen))
    page = draw_until_the_stream_ends(server, tmp_path).stdout
    assert "<td>no pod: Kubernetes deletes the pods that still run when a job fails</td>" in page
    assert 'aria-label="script: 1 host without a pod, 1 host failed"' in page
    assert "The steps of the job are unknown: the log of rank 0 was deleted with its pod" in page
    assert "step 639 of 1,250, epoch 6" in page
    assert '<b class="warn">1</b><span>problem or slow rank</span>' in page
    assert "with the oldest log of rank 0 that the cluster has." in page
    assert "2 earlier pauses may be stops, and count as waiting or lost." in page


def late_metrics() -> JobMetrics:
    """Return metrics of a dashboard that started late: the first logs are gone, and two pauses have no known cause."""
    times = times_of([event("start", 10), event("start", 90), event("start", 150)], START_TIME + 200)
    return JobMetrics(curves=Curves(CURVE_KEYS), times=times, since=START_TIME + 5)


@needs_chromium
def test_browser_draws_ranks_curves_timeline_and_nodes(server: Server, tmp_path: Path) -> None:
    metrics = replace(observed().metrics["digits"], fresh_start="2026-11-26 10:00:00 UTC")
    server.hub.put("dev", document(observed(metrics={"digits": metrics})))
    drawn = draw_until_the_stream_ends(server, tmp_path)
    page = drawn.stdout
    assert page.count("<polyline") == 6
    assert 'aria-label="digits: 4 hosts running"' in page
    assert "takes 1.9 times the median time for its own part of a step" in page
    assert "rank 2: exit code 75: preempted" in page
    assert 'href="log?stack=dev&amp;pod=digits-0-x7k2p"' in page
    assert "5 of 5 nodes ready, g2-standard-8" in page
    assert ">digits&nbsp;rank&nbsp;0</div>" in page
    assert '<span class="hint">The job started from the beginning at 2026-11-26 10:00:00 UTC' in page
    assert '<div id="banner" role="alert">the test has ended</div>' in page
    assert "CONSOLE" not in drawn.stderr
    assert "Content Security Policy" not in drawn.stderr
