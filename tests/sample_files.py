"""Files of many types for magika, made in code with seeds: no two have the same content."""

import io
import zipfile
from collections.abc import Callable

import numpy as np
from PIL import Image

from seqto.types import Arrays

_WORDS = """
time year people way day man thing woman life child world school state family student group country
problem hand part place case week company system program question work government number night point
home water room mother area money story fact month lot right study book
"""

_TEXTS = {
    "json": ('{"rows": [\n', '  {"name": "@", "count": #, "tags": ["@", "@"]},\n', "  {}\n]}\n"),
    "python": ("import os\n\n\n", "def @(self, x):\n    return os.@(x, #)\n\n\n", ""),
    "c": (
        "#include <stdio.h>\n#include <string.h>\n\n",
        "static int @(const char *p, size_t n)\n{\n\treturn n > # ? *p : 0;\n}\n\n",
        "int main(void) { return 0; }\n",
    ),
    "java": (
        "package com.a;\n\nimport java.util.List;\n\npublic class A {\n",
        "    public static String @(List<String> items) {\n        return items.get(#);\n    }\n",
        "}\n",
    ),
    "rust": (
        "use std::collections::HashMap;\n\n",
        "pub fn @(x: &str) -> Result<usize, Error> {\n    let y = x.len() + #;\n    Ok(y)\n}\n",
        "",
    ),
    "javascript": (
        "'use strict';\nconst http = require('http');\n",
        "const @ = async (req, res) => { await res.json({ ok: # }); };\n",
        "module.exports = {};\n",
    ),
    "html": (
        "<!DOCTYPE html>\n<html><head><title>a</title></head><body><ul>\n",
        "<li><a href='/@'>@ #</a></li>\n",
        "</ul></body></html>\n",
    ),
    "xml": ("<?xml version='1.0'?>\n<root>\n", "  <item id='#'>@</item>\n", "</root>\n"),
    "css": ("", ".@ { margin: #px; color: #fff; }\n", ""),
    "csv": ("name,count,share,place\n", "@,#,0.#,@\n", ""),
    "sql": (
        "CREATE TABLE a (id INTEGER PRIMARY KEY, name TEXT);\n",
        "INSERT INTO a (id, name) VALUES (#, '@');\n",
        "",
    ),
    "shell": ("#!/bin/bash\nset -e\n", 'if [ -f "$@" ]; then\n  echo @ && exit #\nfi\n', ""),
    "yaml": ("", "@:\n  - name: @\n    value: #\n", ""),
    "ini": ("", "[@]\nkey = #\npath = /usr/@\n\n", ""),
    "markdown": ("# a\n\n", "## @\n\n- **@**: [link](https://@.org/#)\n\n```\n@\n```\n\n", ""),
    "txt": ("", "The @ of the @ was a @ for # years.\n", ""),
}
"""How files of a type begin, go on and end: @ stands for a word, # for a number."""

_PICTURES = ("png", "jpeg", "gif", "bmp", "tiff", "webp")
_BLOCK, _END, _PADDING = 4096, 1024, 256


def some_words(draw: np.random.Generator, count: int) -> list[str]:
    """Return so many common words."""
    return [str(each) for each in draw.choice(_WORDS.split(), count)]


def files(count: int, seed: int = 0) -> list[tuple[str, bytes]]:
    """Return so many files with their types, as magika calls them."""
    draw = np.random.default_rng(seed)
    makers = list(_makers().items())
    chosen = (makers[index % len(makers)] for index in range(count))
    return [(kind, make(draw)) for kind, make in chosen]


def file_inputs(count: int = 96, seed: int = 0) -> Arrays:
    """Return the beginnings and ends of files as magika's inputs."""
    return {"bytes": np.stack([_features(content) for _, content in files(count, seed)])}


def _features(content: bytes) -> np.ndarray:
    first, last = content[:_BLOCK].lstrip()[:_END], content[-_BLOCK:].rstrip()[-_END:]
    row = np.full(2 * _END, _PADDING, np.int32)
    row[: len(first)] = np.frombuffer(first, np.uint8)
    row[len(row) - len(last) :] = np.frombuffer(last, np.uint8)
    return row


def _makers() -> dict[str, Callable[[np.random.Generator], bytes]]:
    texts = {kind: _maker(*parts) for kind, parts in _TEXTS.items()}
    pictures = {kind: _picture(kind) for kind in _PICTURES}
    return {**texts, **pictures, "zip": _zip, "npy": _npy}


def _maker(start: str, line: str, end: str) -> Callable[[np.random.Generator], bytes]:
    def made(draw: np.random.Generator) -> bytes:
        rows = (_filled(line, draw) for _ in range(draw.integers(5, 25)))
        return "".join([start, *rows, end]).encode()

    return made


def _filled(line: str, draw: np.random.Generator) -> str:
    for word in some_words(draw, line.count("@")):
        line = line.replace("@", word, 1)
    return line.replace("#", str(draw.integers(100, 999)), 1)


def _picture(kind: str) -> Callable[[np.random.Generator], bytes]:
    def made(draw: np.random.Generator) -> bytes:
        buffer = io.BytesIO()
        pixels = draw.integers(0, 255, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(buffer, kind)
        return buffer.getvalue()

    return made


def _zip(draw: np.random.Generator) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in some_words(draw, 3):
            # ZipInfo has a fixed date, so that the file is the same each time.
            archive.writestr(zipfile.ZipInfo(f"{name}.txt"), " ".join(some_words(draw, 200)))
    return buffer.getvalue()


def _npy(draw: np.random.Generator) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, draw.random(300))
    return buffer.getvalue()
