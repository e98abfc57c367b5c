"""The description of a study's run, which seqto and people write together."""

import re

from seqto.types import content_key

NOTE = "mlflow.note.content"
"""MLflow's own tag for a run's description."""

# Ends with an invisible comment, a key that shows whether a person edited the text above.
_END = "---\n*Your own notes: what is written below this line is kept.*\n\n[//]: # (seqto {})"


def merged(text: str, held: str) -> str:
    """Return the text, followed by what people wrote below seqto's part or into it."""
    pattern = re.escape(_END).replace(r"\{\}", r"(\w*)")
    ours, written, theirs = [*re.split(pattern, held.replace("\r\n", "\n"), maxsplit=1), "", ""][:3]
    if content_key(ours.strip()) != written:
        theirs = f"{ours.strip()}\n\n{theirs.strip()}"
    return f"{text}\n\n{_END.format(content_key(text))}\n\n{theirs.strip()}".strip()
