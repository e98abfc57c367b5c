"""What Hydra prints of configs (--cfg, --info), without the secrets in them."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator, Sequence

import yaml

from seqto.secrets import masked, remember_secrets

_OPTIONS = ("--cfg", "-c", "--info", "-i")


@contextlib.contextmanager
def masked_prints(words: Sequence[str]) -> Iterator[None]:
    """Print what Hydra prints within the block masked, if it only prints configs."""
    if not any(word.partition("=")[0] in _OPTIONS for word in words):
        yield
        return
    remember_secrets([list(words), dict(os.environ)])
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            yield
    finally:
        with contextlib.suppress(yaml.YAMLError):
            remember_secrets(yaml.safe_load(said.getvalue()))
        sys.stdout.write(masked(said.getvalue()))
