"""What every choice of a group may say is taken out before its class is made."""

from pathlib import Path

import numpy as np
import pytest

from seqto.config.build import build_context, build_parts, build_reading
from seqto.config.compose import composed
from seqto.config.words import word
from seqto.errors import ConfigError
from seqto.measuring.learned import as_document
from seqto.study.explore import LEARNED, RANGES
from seqto.tracking.memory import MemoryTracker
from seqto.types import INT4, INT8, Candidate, Reading, StudyPlan


def test_by_default_the_graph_tells_how_a_model_is_fed_and_read() -> None:
    assert build_parts(composed([])).reading == Reading()


@pytest.mark.parametrize("model", ["digits", "resnet50", "local model.path=my.onnx"])
@pytest.mark.parametrize("dataset", ["digits", "random", "npz dataset.path=a.npz"])
def test_every_choice_takes_the_keys(model: str, dataset: str) -> None:
    words = f"model={model} dataset={dataset} model.outputs=[a] dataset.constants={{sr:16000}}"
    parts = build_parts(composed(words.split()))
    assert parts.reading == Reading(outputs=["a"], constants={"sr": 16000})
    assert parts.settings["model"]["outputs"] == ["a"]
    assert parts.settings["dataset"]["constants"] == {"sr": 16000}


def test_another_reading_is_another_study() -> None:
    words = [[], ["model.outputs=[a]"], ["model.batch_axes={a: 1}"], ["dataset.constants={a: 1}"]]
    identities = [repr(build_parts(composed(each)).identity) for each in words]
    assert len(set(identities)) == 4


@pytest.mark.parametrize(
    "values",
    [
        {"a/b:0": 1, "past.0 (x)=[y],{z}\\": None},
        {"sr": [[1.5, 2]], "b": True, "c": "text"},
        {"x": np.float32(0.5), "y": np.arange(3)},
    ],
)
def test_values_by_name_can_be_written_as_words(values: dict[str, object]) -> None:
    reading = build_reading(composed([word("dataset.constants", values)]))
    assert list(reading.constants) == list(values)
    for name, value in values.items():
        assert np.array_equal(np.asarray(reading.constants[name]), np.asarray(value))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("model.outputs=boxes", "a list of names, such as 'model.outputs="),
        ("model.outputs=[1]", "a list of names"),
        ("model.batch_axes=1", "'model.batch_axes={state: 1}'"),
        ("dataset.constants=[sr]", "'dataset.constants={sr: 16000}'"),
    ],
)
def test_values_of_another_kind_are_refused(words: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_reading(composed([words]))


def test_a_job_on_another_machine_makes_the_models_of_its_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQTO_CACHE", str(tmp_path / "here"))
    tracker = MemoryTracker()
    here = build_context(composed(["model=digits"]), {"tracking": tracker}).subject
    # As another processor would round: elsewhere, something else would be learned.
    learned = {name: np.roll(each, 1) for name, each in here.model.learned.items()}
    run = tracker.open_study(StudyPlan("key", "name", {}, {}, ""), False)
    tracker.log_document(run, RANGES, here.ranges)
    tracker.log_document(run, LEARNED, as_document(learned))
    monkeypatch.setenv("SEQTO_CACHE", str(tmp_path / "there"))
    job = build_context(composed(["model=digits", f"study.run={run}"]), {"tracking": tracker})
    assert job.subject.model.learned.keys() == learned.keys() != set()
    for name, array in learned.items():
        np.testing.assert_array_equal(job.subject.model.learned[name], array)
    for precision in (INT4, INT8):
        candidate = Candidate.of(dict.fromkeys(here.layer_names, precision))
        quantize = job.parts.quantizer.quantize
        made, own = (
            quantize(each.model, each.ranges, candidate).to_bytes() for each in (job.subject, here)
        )
        assert made != own
