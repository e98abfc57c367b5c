import json
import shlex
from dataclasses import replace

from studies import study, trial

from seqto.report.commands import (
    load_command,
    overrides,
    rebuild_command,
    session_lines,
    study_command,
)
from seqto.types import OVERRIDES, REGISTERED, StudyRecord

ONE = trial(0, accuracy_loss=0.0, size_bytes=1.0)


def told(*words: str, **tags: str) -> StudyRecord:
    return study([ONE], tags={OVERRIDES: json.dumps(words), **tags})


def test_the_study_is_run_by_the_words_it_was_given() -> None:
    record = told("model=local", 'model.path="my model.onnx"')
    words = shlex.split(study_command(record))
    assert words == ["python", "-m", "seqto", "model=local", 'model.path="my model.onnx"', "-m"]


def test_a_candidate_needs_no_options_of_the_search() -> None:
    given = ("search=ladder", "search.step=5", "+study.x=1", "~sensitivity", "objectives=[a,b]")
    kept = ("model=local", "model.path=a b.onnx", "++device.options.x=1", "precisions=[int8]")
    command = rebuild_command(told(*given, *kept), ONE)
    assert shlex.split(command)[3:] == [*kept, "candidate.from_run=run-0"]


def test_unknown_or_cut_words_are_left_out() -> None:
    cut = study([ONE], tags={OVERRIDES: '["model=loc'})
    for record in (cut, study([ONE], tags={})):
        assert overrides(record.tags) is None
        assert study_command(record) == ""
        assert rebuild_command(record, ONE) == "python -m seqto candidate.from_run=run-0"


def test_registered_models_are_loaded_by_alias_others_from_their_run() -> None:
    named = told(**{REGISTERED: "seqto-a-cpu-static"})
    first, _, last = load_command(named, ONE, ["small", "accurate"]).splitlines()
    assert first == "import mlflow"
    assert last == 'model = mlflow.onnx.load_model("models:/seqto-a-cpu-static@small")'
    assert 'onnx.load_model("runs:/run-0/model")' in load_command(told(), ONE, ["small"])


def test_session_options_are_python() -> None:
    assert session_lines(ONE) == []
    found = session_lines(replace(ONE, session={"session.x64quantprecision": "1"}))
    assert found[0] == "import onnxruntime"
    assert found[-1] == 'options.add_session_config_entry("session.x64quantprecision", "1")'
