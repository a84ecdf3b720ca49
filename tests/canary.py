"""Secret value that must not appear in plain text anywhere, and the search for it."""

from __future__ import annotations

import base64

CANARY = "canary-5f2b77e0"
FORMS = (CANARY, base64.b64encode(CANARY.encode()).decode().rstrip("="))


def leaks(*texts: str) -> list[str]:
    """Return the forms of the canary that a text contains."""
    return [form for text in texts for form in FORMS if form in text]
