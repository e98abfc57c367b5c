"""What a person types to build a candidate again, to load it and to predict with it."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence

from seqto.types import INPUTS, OVERRIDES, REGISTERED, StudyRecord, Trial

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
    return "" if given is None else shlex.join(["seqto", "study", *given])


def rebuild_command(record: StudyRecord, trial: Trial) -> str:
    """Return the command that builds and measures this candidate again."""
    given = [each for each in overrides(record.tags) or () if root(each) not in _OF_STUDIES]
    return shlex.join(["seqto", "candidate", *given, f"candidate.from_run={trial.id}"])


def mlflow_lines(record: StudyRecord, trial: Trial, aliases: Sequence[str]) -> str:
    """Return the Python that loads this candidate from MLflow and predicts with it."""
    name = record.tags.get(REGISTERED)
    uri = f"models:/{name}@{aliases[0]}" if name and aliases else f"runs:/{trial.id}/model"
    lines = [
        "import mlflow",
        "import numpy",
        "",
        "# In the folder of mlflow.db, or with MLFLOW_TRACKING_URI set.",
        f"model = mlflow.pyfunc.load_model({_literal(uri)})",
        *_input_lines(record, "model.metadata.get_input_schema().inputs"),
        "print(model.predict(inputs))",
    ]
    return "\n".join(lines)


def onnxruntime_lines(record: StudyRecord, trial: Trial, file: str) -> str:
    """Return the Python that predicts with this candidate's file by ONNX Runtime alone.

    With the session options that it was measured with, and needs wherever it is loaded.
    """
    entries = [
        f"options.add_session_config_entry({_literal(name)}, {_literal(value)})"
        for name, value in sorted(trial.session.items())
    ]
    lines = [
        "import numpy",
        "import onnxruntime",
        "",
        "options = onnxruntime.SessionOptions()",
        *entries,
        f"session = onnxruntime.InferenceSession({_literal(file)}, options)",
        *_input_lines(record, "session.get_inputs()"),
        "print(session.run(None, inputs))",
    ]
    return "\n".join(lines)


def _input_lines(record: StudyRecord, specs: str) -> list[str]:
    """Return the Python that makes a sample: of the study's shapes, or else of the model's."""
    known = inputs_of(record.tags)
    if not known:
        return [
            "one = lambda shape: [dim if isinstance(dim, int) and dim > 0 else 1 for dim in shape]",
            'sample = lambda each: numpy.zeros(one(each.shape), "float32")',
            f"inputs = {{each.name: sample(each) for each in {specs}}}  # a sample of yours",
        ]
    if len(known) == 1:
        (name, (dtype, dims)), *_ = known.items()
        array = f"numpy.zeros({tuple(dims)}, {_literal(dtype)})"
        return [f"inputs = {{{_literal(name)}: {array}}}  # a sample of yours"]
    rows = [
        f"    {_literal(name)}: numpy.zeros({tuple(dims)}, {_literal(dtype)}),"
        for name, (dtype, dims) in known.items()
    ]
    return ["inputs = {  # a sample of yours", *rows, "}"]


def inputs_of(tags: Mapping[str, str]) -> dict[str, tuple[str, list[int]]]:
    """Return the type and shape of one sample, by input; nothing where the study does not tell."""
    try:
        found = json.loads(tags[INPUTS])
        return {str(name): (str(kind), [int(dim) for dim in dims]) for name, kind, dims in found}
    except (KeyError, ValueError, TypeError):
        return {}


def _literal(text: str) -> str:
    """Return a Python string with the quotes that people use."""
    return json.dumps(text, ensure_ascii=False)
