"""Small documents of a run as tags: hundreds of runs are read in one page, without a download each.

MLflow's pages do not list tags that begin with `mlflow.`.
"""

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

_LONGEST = 5000
"""How long a packed document may be: servers of some versions accept no more."""

_LARGEST = 2**24
"""More bytes than any document has: what unpacks to more is not believed."""


def packed(name: str, document: Mapping[str, Any]) -> dict[str, str]:
    """Return the document as a tag; nothing if it is too long for one."""
    content = zlib.compress(json.dumps(document).encode(), 9)
    text = base64.urlsafe_b64encode(content).decode()
    return {_tag(name): text} if len(text) <= _LONGEST else {}


def unpacked(name: str, tags: Mapping[str, str]) -> Any | None:
    """Return the document of this name; None if no tag has it, or has it whole."""
    try:
        content = base64.urlsafe_b64decode(tags[_tag(name)])
        return json.loads(zlib.decompressobj().decompress(content, _LARGEST))
    except (KeyError, ValueError, zlib.error):
        return None


def _tag(name: str) -> str:
    return f"mlflow.seqto.{name}"
