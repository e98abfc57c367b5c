"""What a person types to build a candidate again, and to load it."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence

from seqto.types import OVERRIDES, REGISTERED, StudyRecord, Trial

_OF_STUDIES = {"constraint", "gate", "objectives", "search", "sensitivity", "study"}
"""Groups and keys that make no difference to one candidate."""


def root(override: str) -> str:
    """Return the group or key at the top of what an override sets."""
    key = override.lstrip("+~").partition("=")[0]
    return re.split(r"[.@/]", key, maxsplit=1)[0]


def overrides(tags: Mapping[str, str]) -> list[str] | None:
    """Return the words of the study's command line; None where they are not known."""
    try:
        found = json.loads(tags[OVERRIDES])
    except (KeyError, ValueError):
        return None
    return [str(each) for each in found]


def study_command(record: StudyRecord) -> str:
    """Return the command that runs the study, or nothing where it is not known."""
    given = overrides(record.tags)
    return "" if given is None else shlex.join(["python", "-m", "seqto", *given, "-m"])


def rebuild_command(record: StudyRecord, trial: Trial) -> str:
    """Return the command that builds and measures this candidate again."""
    given = [each for each in overrides(record.tags) or () if root(each) not in _OF_STUDIES]
    return shlex.join(["python", "-m", "seqto", *given, f"candidate.from_run={trial.id}"])


def load_command(record: StudyRecord, trial: Trial, aliases: Sequence[str]) -> str:
    """Return the Python that loads this candidate's ONNX model from MLflow."""
    name = record.tags.get(REGISTERED)
    uri = f"models:/{name}@{aliases[0]}" if name and aliases else f"runs:/{trial.id}/model"
    return f"import mlflow\n\nmodel = mlflow.onnx.load_model({_literal(uri)})"


def session_lines(trial: Trial) -> list[str]:
    """Return the Python that sets the session options which this candidate was measured with."""
    if not trial.session:
        return []
    entries = [
        f"options.add_session_config_entry({_literal(name)}, {_literal(value)})"
        for name, value in sorted(trial.session.items())
    ]
    return ["import onnxruntime", "", "options = onnxruntime.SessionOptions()", *entries]


def _literal(text: str) -> str:
    """Return a Python string with the quotes that people use."""
    return json.dumps(text, ensure_ascii=False)
