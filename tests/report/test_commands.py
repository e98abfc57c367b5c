import json
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from onnx_models import gemm_model
from studies import study, trial

from seqto.graph.load import input_specs
from seqto.report.commands import (
    inputs_of,
    mlflow_lines,
    onnxruntime_lines,
    overrides,
    rebuild_command,
    study_command,
)
from seqto.types import INPUTS, OVERRIDES, REGISTERED, StudyRecord

ONE = trial(0, accuracy_loss=0.0, size_bytes=1.0)


def told(*words: str, **tags: str) -> StudyRecord:
    return study([ONE], tags={OVERRIDES: json.dumps(words), **tags})


def test_the_study_is_run_by_the_words_it_was_given() -> None:
    record = told("model=local", 'model.path="my model.onnx"')
    words = shlex.split(study_command(record))
    assert words == ["seqto", "study", "model=local", 'model.path="my model.onnx"']


def test_a_candidate_needs_no_options_of_the_search() -> None:
    given = ("search=ladder", "search.step=5", "+study.x=1", "~sensitivity", "objectives=[a,b]")
    kept = ("model=local", "model.path=a b.onnx", "++device.options.x=1", "precisions=[int8]")
    command = rebuild_command(told(*given, *kept), ONE)
    assert shlex.split(command)[2:] == [*kept, "candidate.from_run=run-0"]


def test_unknown_or_cut_words_are_left_out() -> None:
    cut = study([ONE], tags={OVERRIDES: '["model=loc'})
    for record in (cut, study([ONE], tags={})):
        assert overrides(record.tags) is None
        assert study_command(record) == ""
        assert rebuild_command(record, ONE) == "seqto candidate candidate.from_run=run-0"


def test_registered_models_are_loaded_by_alias_others_from_their_run() -> None:
    named = told(**{REGISTERED: "seqto-a-cpu-static"})
    lines = mlflow_lines(named, ONE, ["small", "accurate"])
    assert 'model = mlflow.pyfunc.load_model("models:/seqto-a-cpu-static@small")' in lines
    assert lines.endswith("print(model.predict(inputs))")
    assert 'pyfunc.load_model("runs:/run-0/model")' in mlflow_lines(told(), ONE, ["small"])


def test_session_options_are_python() -> None:
    assert "add_session_config_entry" not in onnxruntime_lines(told(), ONE, "small.onnx")
    options = replace(ONE, session={"session.x64quantprecision": "1"})
    found = onnxruntime_lines(told(), options, "small.onnx")
    assert 'options.add_session_config_entry("session.x64quantprecision", "1")' in found
    assert 'InferenceSession("small.onnx", options)' in found


def test_a_sample_has_the_shapes_of_the_study() -> None:
    one = told(**{INPUTS: json.dumps([["images", "float32", [1, 3, 8, 8]]])})
    text = 'inputs = {"images": numpy.zeros((1, 3, 8, 8), "float32")}'
    assert text in mlflow_lines(one, ONE, ["small"])
    assert text in onnxruntime_lines(one, ONE, "small.onnx")
    two = told(**{INPUTS: json.dumps([["ids", "int64", [1, 4]], ["mask", "int64", [1, 4]]])})
    assert '    "mask": numpy.zeros((1, 4), "int64"),' in mlflow_lines(two, ONE, ["small"])
    assert inputs_of({}) == inputs_of({INPUTS: "[1"}) == {}


def test_a_prediction_is_made_as_written(tmp_path: Path) -> None:
    model = gemm_model()
    (tmp_path / "small.onnx").write_bytes(model.proto.SerializeToString())
    shape = [1, *[dim or 1 for dim in input_specs(model)[0].shape[1:]]]
    name = input_specs(model)[0].name
    for record in (told(), told(**{INPUTS: json.dumps([[name, "float32", shape]])})):
        code = onnxruntime_lines(record, ONE, str(tmp_path / "small.onnx"))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "array" in done.stdout
