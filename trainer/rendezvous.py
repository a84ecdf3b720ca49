"""Reopen a closed rendezvous in etcd for hosts that Kubernetes has restarted."""

from __future__ import annotations

import json
from typing import Any


def reopen(endpoint: str, run_id: str, prefix: str = "/torchelastic/p2p") -> bool:
    """Delete the closed state of rendezvous `run_id`. Return True if it was closed.

    torchrun closes a rendezvous for good when the processes of a host failed too often or are done. The closed state
    outlives the hosts, and a restarted host would end at once with RendezvousClosedError. Call this before a host joins
    the others. If all work is done, the host joins alone, finds no work and exits.

    `endpoint` is HOST:PORT, and `prefix` is torchrun's folder for rendezvous. If etcd does not answer, torchrun reports
    it later.
    """
    # Imported here because other rendezvous backends and custom images do not need it.
    import etcd  # type: ignore[import-untyped]  # without type hints

    host, _, port = endpoint.partition(":")
    client: Any = etcd.Client(host, int(port or 2379))
    key = f"{prefix}/run_{run_id}/rdzv/active_version"
    try:
        found = client.get(key)
        if json.loads(found.value)["status"] != "closed":
            return False
        client.delete(key, prevIndex=found.modifiedIndex)
    except (etcd.EtcdKeyNotFound, etcd.EtcdCompareFailed, etcd.EtcdConnectionFailed):
        return False  # no earlier host, already reopened by another host, or etcd not ready
    return True
