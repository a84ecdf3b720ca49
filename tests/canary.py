"""A secret's value that must be found nowhere in clear, and the search for it."""

from __future__ import annotations

import base64

CANARY = "canary-5f2b77e0"
FORMS = (CANARY, base64.b64encode(CANARY.encode()).decode().rstrip("="))


def leaks(*texts: str) -> list[str]:
    """The forms of the canary that are in a text."""
    return [form for text in texts for form in FORMS if form in text]
