"""The Kubernetes REST interface: authenticated requests, and the server's refusals as errors."""

import base64
import json
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3

from setup.stand_ins.kubernetes.kubeconfig import Access, KubeconfigError
from setup.stand_ins.kubernetes.objects import Object

CONNECT_SECONDS = 30.0
USER_AGENT = "trainyard-stand-in"


class ApiError(Exception):
    """The server answered with a failure; `str()` is the server's own message."""

    def __init__(self, code: int, status: Mapping[str, Any]) -> None:
        super().__init__(status.get("message") or f"the server answered {code} {status.get('reason', '')}".strip())
        self.code = code
        self.reason = str(status.get("reason") or "")
        self.details: Mapping[str, Any] = status.get("details") or {}

    @property
    def is_missing_namespace(self) -> bool:
        """Whether what was not found is the namespace, not the object."""
        return self.code == 404 and self.details.get("kind") == "namespaces"

    def causes(self, reason: str) -> list[str]:
        """The fields that the server names for this reason, e.g. `FieldValueRequired`."""
        return [str(cause.get("field")) for cause in self.details.get("causes") or [] if cause.get("reason") == reason]


class Unreachable(Exception):
    """No answer came from the server."""


class Api:
    """Requests to one API server as one user; safe to use from many threads."""

    def __init__(self, access: Access, *, timeout: float | None = None) -> None:
        self.server = str(access.cluster["server"]).rstrip("/")
        self._access = access
        self._timeout = urllib3.Timeout(connect=timeout or CONNECT_SECONDS, read=timeout)
        self._headers = _static_headers(access.user)
        self._pool = self._make_pool()

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> Object:
        """Send one request and return the answer's JSON. Raises ApiError, or Unreachable."""
        response = self._send(method, path, query, body, content_type)
        if response.status == 401 and "exec" in self._access.user:
            self._pool = self._make_pool()  # the plugin's credential has expired: ask it for another
            response = self._send(method, path, query, body, content_type)
        if response.status >= 400:
            raise ApiError(response.status, _status(response.data))
        answer = json.loads(response.data)
        assert isinstance(answer, dict)
        return answer

    def _send(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Any, content_type: str
    ) -> urllib3.BaseHTTPResponse:
        headers = dict(self._headers)
        if body is not None:
            headers["Content-Type"] = content_type
        url = f"{self.server}{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body)
        try:
            return self._pool.request(method, url, body=data, headers=headers, timeout=self._timeout)
        except urllib3.exceptions.HTTPError as error:
            cause = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
            raise Unreachable(f'{method.capitalize()} "{url}": {cause}') from error

    def _make_pool(self) -> urllib3.PoolManager:
        user = self._access.user
        if "exec" in user:
            user = _run_credential_plugin(self._access)
            self._headers = _static_headers(user)
        elif "auth-provider" in user:
            raise KubeconfigError("users of kind auth-provider are no more supported by Kubernetes: use exec")
        cluster = self._access.cluster
        settings: dict[str, Any] = {
            "num_pools": 2,
            "maxsize": 64,
            "retries": urllib3.Retry(
                total=5, connect=0, read=0, redirect=0, other=0, status_forcelist=[429], allowed_methods=None,
                raise_on_status=False,
            ),
        }  # fmt: skip
        if self.server.startswith("https:"):
            settings["ssl_context"] = _tls(cluster, user)
            if cluster.get("tls-server-name"):
                settings["server_hostname"] = settings["assert_hostname"] = cluster["tls-server-name"]
        if proxy := cluster.get("proxy-url"):
            return urllib3.ProxyManager(proxy, **settings)
        return urllib3.PoolManager(**settings)


def _static_headers(user: Mapping[str, Any]) -> dict[str, str]:
    headers = {"Accept": "application/json", "User-Agent": USER_AGENT}
    token = user.get("token") or (Path(user["tokenFile"]).read_text().strip() if user.get("tokenFile") else "")
    if token:
        headers["Authorization"] = f"Bearer {token}"
    elif user.get("username"):
        pair = f"{user['username']}:{user.get('password', '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    return headers


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if authority := _content(cluster, "certificate-authority"):
        context = ssl.create_default_context(cadata=authority.decode())
    if cluster.get("insecure-skip-tls-verify"):
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # the kubeconfig asks for it
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = _content(user, "client-certificate"), _content(user, "client-key")
    if certificate and key:
        with tempfile.NamedTemporaryFile() as both:  # ssl reads files only; this one is mode 0600 and gone at once
            both.write(certificate + b"\n" + key)
            both.flush()
            context.load_cert_chain(both.name)
    return context


def _content(entry: Mapping[str, Any], name: str) -> bytes:
    if data := entry.get(f"{name}-data"):
        return base64.b64decode(data)
    return Path(entry[name]).read_bytes() if entry.get(name) else b""


def _run_credential_plugin(access: Access) -> dict[str, Any]:
    """Ask the kubeconfig's credential plugin, such as gke-gcloud-auth-plugin, by the official client's code."""
    from kubernetes.config.exec_provider import ExecProvider  # costs a second, which most kubeconfigs need not pay
    from kubernetes.config.kube_config import ConfigNode

    settings = {key: value for key, value in access.user["exec"].items() if value is not None}
    plugin = ExecProvider(ConfigNode("exec", settings), "")  # type: ignore[no-untyped-call]  # it has no annotations
    status: dict[str, Any] = plugin.run()  # type: ignore[no-untyped-call]  # it has no annotations
    return {
        "token": status.get("token", ""),
        "client-certificate-data": base64.b64encode(status.get("clientCertificateData", "").encode()).decode(),
        "client-key-data": base64.b64encode(status.get("clientKeyData", "").encode()).decode(),
    }


def _status(data: bytes) -> dict[str, Any]:
    try:
        status = json.loads(data)
    except ValueError:
        return {"message": data.decode(errors="replace").strip()}
    return status if isinstance(status, dict) else {"message": str(status)}
