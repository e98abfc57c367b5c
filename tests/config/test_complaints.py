"""What is wrong with a config is said in one line, with the valid choices and the remedy."""

from pathlib import Path

import pytest

from seqto.config.build import build_context, build_settings
from seqto.config.complaints import complain, exit_code
from seqto.config.compose import composed
from seqto.errors import ConstraintError, StudyError
from seqto.tracking.memory import MemoryTracker


def complaint_about(*overrides: str) -> str:
    """Return the line for overrides with which nothing can begin, in any command."""
    with pytest.raises(Exception) as caught:
        config = composed(overrides)
        build_settings(config, 1)
        build_context(config, {"tracking": MemoryTracker()})
    assert exit_code(caught.value) == 1
    line = complain(caught.value)
    assert "\n" not in line and "unexpected" not in line
    return line


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ("modl=digits", ["'modl'", "did you mean 'model'"]),
        ("model=digit", ["model=digit is no choice", "did you mean 'digits'", "local"]),
        ("quantization.per_chanel=true", ["did you mean 'quantization.per_channel'"]),
        ("search=ladder search.step=abc", ["search.step='abc' has to be a valid integer"]),
        ("constraint.max_accuracy_loss=2%", ["constraint.max_accuracy_loss='2%'", "write 0.02"]),
        ("device._target_=no_module.Device", ["module 'no_module' is needed", "install it"]),
        ("study.top_k=0", ["study.top_k=0 has to be greater than"]),
        ("++device.repeat=3", ["device does not take repeat=3", "mean 'device.repeats'"]),
        (
            "search=ladder search.order=backwards",
            ["order='backwards'", "'ranked', 'reversed' or 'random'"],
        ),
        ("quantization.calibration=max", ["calibration='max'", "'percentile'"]),
        ("dataset.evaluation_size=0", ["evaluation_size=0", "greater than 0"]),
        ("dataset.evaluation_size=5000", ["5000", "800"]),
        ("model=local", ["model.path is not given", "model.path="]),
        ("model=local model.path=none.onnx", ["none.onnx does not exist"]),
        ("model=local model.path=.", ["folder"]),
        ("device.provider=CUDAExecutionProvider", ["CUDAExecutionProvider", "It has"]),
        ("precisions=int4", ["precisions=int4", "a list", "precisions=[int8,float32]"]),
        ("precisions=[4,float32]", ["list of names", "precisions=[int8,float32]"]),
        ("objectives=accuracy_loss", ["a list", "objectives=[accuracy_loss,size_bytes]"]),
        ("constraint=0.01", ["constraint has keys", "constraint.max_accuracy_loss=..."]),
        ("gate=0.01", ["gate.min_size_reduction=..."]),
        ("study=3", ["study.resume=..."]),
        ("candidate=3", ["candidate.excluded=..."]),
        ("promote=null", ["promote.tolerance=..."]),
        ("tracking=1_000", ["these words make no config", "Got int"]),
        ("my.onnx", ["'my.onnx'", "model=local model.path=my.onnx"]),
        ("notes.txt", ["model=local model.path=notes.txt"]),
        ("model=my.onnx", ["no choice", "model=local model.path=my.onnx"]),
        ("model=/some/my.onnx", ["model=local model.path=/some/my.onnx"]),
        ("candidate.excluded=[a", ["candidate.excluded=[a"]),
        ("dataset=images dataset.path=none", ["none", "dataset.path"]),
        ("quantization.exclude=[dense]", ["quantization.exclude", "'dense'", "did you mean"]),
        ("gate.max_accuracy_loss=-0.1", ["gate.max_accuracy_loss=-0.1"]),
        ("gate.min_size_reduction=1.5", ["gate.min_size_reduction=1.5"]),
        ("gate.max_size_ratio=0.3", ["no config key 'gate.max_size_ratio'"]),
        ("gate.max_latency_ms=fast", ["gate.max_latency_ms='fast'"]),
        (
            "quantization=auto quantization.only=['int8_per_chanel']",
            ["did you mean 'int8 per channel'"],
        ),
        ("quantization=auto quantization.only=[]", ["quantization.only leaves no scheme"]),
        ("quantization=auto quantization.kernels=[slow]", ["kernels"]),
        ("quantization=auto +quantization.options.calibratoin=entropy", ["calibratoin"]),
    ],
)
def test_bad_overrides(
    overrides: str,
    words: list[str],
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEQTO_CACHE", str(cache))
    (tmp_path / "notes.txt").touch()
    line = complaint_about(*overrides.split())
    assert all(word in line for word in words), line


def test_limits_that_are_not_met_have_an_exit_code_of_their_own() -> None:
    wrapped = RuntimeError("of a library")
    wrapped.__cause__ = ConstraintError("no candidate has it")
    assert exit_code(wrapped) == ConstraintError.exit_code != StudyError.exit_code
    assert complain(wrapped) == "no candidate has it"


def test_error_of_nobody_is_one_line_that_says_how_to_see_more() -> None:
    line = complain(KeyError("a\nb"))
    assert line.startswith("unexpected KeyError") and "SEQTO_DEBUG=1" in line
    assert "\n" not in line
