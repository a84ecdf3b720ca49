"""Real etcd, kube-apiserver and kube-controller-manager on this machine's loopback, for the tests in this folder."""

import json
import shutil
import ssl
import subprocess
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from bench.measure import free_port
from infra.local.settings import cache_folder

START_TIMEOUT_SECONDS = 60.0
ADMIN_TOKEN = "plugin-tests-admin"
MANAGER_TOKEN = "plugin-tests-manager"


def program(name: str) -> Path:
    """Return a program's path: on PATH, or else where `make setup` built it. Raises FileNotFoundError."""
    built = cache_folder() / "bin"
    on_path = [Path(found)] if (found := shutil.which(name)) else []
    for candidate in [*on_path, *sorted(built.glob(f"*/{name}"))]:
        if candidate.is_file():
            return candidate
    raise FileNotFoundError(f"{name} is neither on PATH nor in {built}; run `make setup`")


@dataclass
class ApiServer:
    """etcd, the API server and the controller manager, with their files in a folder."""

    folder: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    logs: list[IO[bytes]] = field(default_factory=list)
    port: int = 0

    @property
    def kubeconfig(self) -> Path:
        """Path of the administrator's kubeconfig."""
        return self.folder / "kubeconfig"

    def start(self) -> None:
        """Start all processes and wait until the API answers. A failure leaves no process running."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop the processes, the last started first."""
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        for log in self.logs:
            log.close()
        self.processes.clear()

    def _start(self) -> None:
        etcd_port, peer_port, self.port = free_port(), free_port(), free_port()
        etcd_url, peer_url = f"http://127.0.0.1:{etcd_port}", f"http://127.0.0.1:{peer_port}"
        self._start_process(
            program("etcd"),
            *("--data-dir", self.folder / "etcd", "--unsafe-no-fsync", "--initial-cluster", f"default={peer_url}"),
            *("--listen-client-urls", etcd_url, "--advertise-client-urls", etcd_url),
            *("--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url),
        )
        key = self.folder / "service-account.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens = self.folder / "tokens.csv"
        tokens.write_text(
            f"{ADMIN_TOKEN},admin,admin,system:masters\n"
            f"{MANAGER_TOKEN},system:kube-controller-manager,manager,system:masters\n"
        )
        certificates = ("--cert-dir", self.folder / "certs")
        self._start_process(
            program("kube-apiserver"),
            *("--etcd-servers", etcd_url, "--service-cluster-ip-range", "10.0.0.0/24", *certificates),
            *("--bind-address", "127.0.0.1", "--secure-port", str(self.port)),
            *("--authorization-mode", "RBAC", "--token-auth-file", tokens, "--endpoint-reconciler-type", "none"),
            *("--service-account-issuer", "https://kubernetes.default.svc"),
            *("--service-account-key-file", key, "--service-account-signing-key-file", key),
        )
        self._wait_until_ready()
        self._write_kubeconfig(self.kubeconfig, ADMIN_TOKEN)
        self._write_kubeconfig(self.folder / "manager.kubeconfig", MANAGER_TOKEN)
        self._start_process(
            program("kube-controller-manager"),
            *("--kubeconfig", self.folder / "manager.kubeconfig", "--leader-elect=false", *certificates),
            *("--service-account-private-key-file", key),
            *("--bind-address", "127.0.0.1", "--secure-port", str(free_port())),
        )

    def _start_process(self, *command: str | Path) -> None:
        log = (self.folder / f"{Path(command[0]).name}.log").open("wb")
        self.logs.append(log)
        self.processes.append(subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=subprocess.STDOUT))

    def _write_kubeconfig(self, path: Path, token: str) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {
                        "server": f"https://127.0.0.1:{self.port}",
                        "certificate-authority": str(self.folder / "certs" / "apiserver.crt"),
                    },
                }
            ],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path.write_text(json.dumps(config))

    def _wait_until_ready(self) -> None:
        insecure = ssl._create_unverified_context()
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}/readyz", headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}
        )
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while True:
            try:
                urllib.request.urlopen(request, context=insecure, timeout=5).close()
                return
            except OSError as error:
                for process in self.processes:
                    if process.poll() is not None:
                        raise RuntimeError(f"{process.args!r} ended; see the logs in {self.folder}") from error
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the API server is not ready: {error}; logs in {self.folder}") from error
            time.sleep(0.2)
