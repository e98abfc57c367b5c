"""Content keys: the same content has the same key."""

import hashlib
import json


def content_key(content: object) -> str:
    """Return a short key of JSON-like content: the same content has the same key."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sha256(data: bytes) -> str:
    """Return the hex digest of these bytes."""
    return hashlib.sha256(data).hexdigest()
