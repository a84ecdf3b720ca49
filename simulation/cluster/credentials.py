"""Simulated credential plugin of kubectl. It prints the administrator's certificate of the rehearsal's cluster."""

from __future__ import annotations

import json
import os
from pathlib import Path


def main() -> None:
    """Print the credential."""
    keys = Path(os.environ["TRAINYARD_REHEARSAL"]) / "keys"
    request = json.loads(os.environ.get("KUBERNETES_EXEC_INFO") or "{}")
    status = {
        "clientCertificateData": (keys / "admin.crt").read_text(encoding="ascii"),
        "clientKeyData": (keys / "admin.key").read_text(encoding="ascii"),
    }
    version = request.get("apiVersion", "client.authentication.k8s.io/v1beta1")
    print(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))


if __name__ == "__main__":
    main()
