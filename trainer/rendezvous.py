"""Opens a rendezvous in etcd again that was closed when a host gave up, for the hosts that are started anew."""

from __future__ import annotations

import json
from typing import Any


def reopen(endpoint: str, run_id: str, prefix: str = "/torchelastic/p2p") -> bool:
    """Forget that rendezvous `run_id` was closed; whether it was.

    torchrun closes it for good when the processes of a host have failed too often or are done, and the closed state
    outlives the hosts that Kubernetes starts anew: each would end at once with RendezvousClosedError. Called before a
    host first meets the others. Where all work is done it meets nobody, finds that nothing is left to do, and is done.

    `endpoint` is HOST:PORT; `prefix` is where torchrun keeps its rendezvous. Where etcd does not answer, what follows
    says so.
    """
    # Imported where it is needed: other rendezvous, and images of their own, do without.
    import etcd  # type: ignore[import-untyped]  # it has no types

    host, _, port = endpoint.partition(":")
    client: Any = etcd.Client(host, int(port or 2379))
    key = f"{prefix}/run_{run_id}/rdzv/active_version"
    try:
        found = client.get(key)
        if json.loads(found.value)["status"] != "closed":
            return False
        client.delete(key, prevIndex=found.modifiedIndex)
    except (etcd.EtcdKeyNotFound, etcd.EtcdCompareFailed, etcd.EtcdConnectionFailed):
        return False  # No host was here before, another one opened it, or etcd is not there yet.
    return True
