"""Pages of one file each: no network, no navigation, and nothing of a model's names is run."""

import base64
import functools
import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

FOLDER = Path(__file__).parent / "page"

# What would end a script element, or a line of JavaScript before 2019.
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def render(template: str, data: Mapping[str, Any], **values: Any) -> str:
    """Return the page of this template; `data` is what its script draws from."""
    script = (FOLDER / "page.js").read_text(encoding="utf-8")
    return (
        _templates()
        .get_template(template)
        .render(
            data=embedded(data),
            script=Markup(script),
            style=Markup((FOLDER / "page.css").read_text(encoding="utf-8")),
            # With it no other script is run, wherever it may come from, and nothing is fetched.
            policy=f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
            f"script-src '{_fingerprint(script)}'",
            **values,
        )
    )


def embedded(data: Mapping[str, Any]) -> Markup:
    """Return JSON that can stand inside a script element, whatever its texts are."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_ESCAPES))


MANY = 60
"""Longer tables scroll in a window of their own, so that a page can still be read to its end."""

_LONGEST_PIECE = 24


def breakable(text: str) -> Markup:
    """Return a long name that lines may break behind its separators, rather than in its words."""
    # Not behind the point of a number.
    pieces = re.split(r"(?<=[/_\-=,:@+])|(?<=\.)(?!\d)", text)
    parts = [
        piece[at : at + _LONGEST_PIECE]
        for piece in pieces
        for at in range(0, len(piece), _LONGEST_PIECE)
    ]
    return Markup("<wbr>").join(parts)


def picture(path: Path) -> str:
    """Return a PNG file as a URI that holds it."""
    return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"


def _fingerprint(script: str) -> str:
    """Return the script's hash as a content security policy names it."""
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


@functools.cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["breakable"] = breakable
    environment.globals["many"] = MANY
    return environment
