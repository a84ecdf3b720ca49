"""Secret value that must not appear in any output, log or file, and a function that searches for it."""

from __future__ import annotations

import base64

CANARY = "canary-5f2b77e0"
FORMS = (CANARY, base64.b64encode(CANARY.encode()).decode().rstrip("="))
"""The value in plain text and in base64, the encoding in Kubernetes Secrets."""


def leaks(*texts: str) -> list[str]:
    """Return the forms of the secret value that the texts contain."""
    return [form for text in texts for form in FORMS if form in text]
