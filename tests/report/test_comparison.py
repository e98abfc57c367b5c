"""Studies of several devices, side by side."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from studies import TAGS, ladder_study, study, trial

from seqto.pareto import find_front
from seqto.report.comparison import PAGE, PICTURE, comparisons, page, write_comparison
from seqto.report.document import report
from seqto.types import StudyRecord, TrialState


def on(device: str, record: StudyRecord) -> dict[str, Any]:
    """Return the report of this study, run on that device."""
    moved = replace(record, tags={**record.tags, "seqto.device": device})
    front = find_front(record.trials, ["accuracy_loss", "size_bytes"], record.baseline, 3)
    return report(moved, front, {"device.runtime": f"runtime of {device}"})


def figures(loss: float, latency: float, size: float = 100.0) -> dict[str, float]:
    return {"accuracy_loss": loss, "latency_ms": latency, "size_bytes": size}


HERE = study([trial(0, **figures(0.2, 2)), trial(1, excluded=["a"], **figures(0, 3, 200))])
THERE = study(
    [
        trial(0, state=TrialState.FAILED, failure="DeviceRunError: <b>SIGSEGV</b>"),
        trial(1, excluded=["a"], **figures(0.1, 9, 200)),
        trial(2, excluded=["a", "b"], **figures(0, 9, 300)),
    ]
)


def test_the_same_candidates_are_side_by_side() -> None:
    (info,) = comparisons([on("cpu", HERE), on("phone", THERE)])
    assert info.devices == {"cpu": "runtime of cpu", "phone": "runtime of phone"}
    assert [row.excluded for row in info.rows] == [0, 1]
    first, second = info.rows
    assert first.cells["cpu"].loss == 0.2 and "SIGSEGV" in first.cells["phone"].failure
    assert (second.cells["cpu"].latency_ms, second.cells["phone"].latency_ms) == (3, 9)
    assert info.alone == {"cpu": 0, "phone": 1}


def test_each_devices_own_front_is_marked() -> None:
    (info,) = comparisons([on("cpu", HERE), on("phone", THERE)])
    assert info.rows[0].cells["cpu"].pareto and not info.rows[0].cells["phone"].pareto


def test_other_models_and_quantizations_are_not_compared() -> None:
    other = replace(HERE, tags={**TAGS, "seqto.quantization": "dynamic"})
    assert comparisons([on("cpu", HERE), on("phone", other)]) == []
    assert comparisons([on("cpu", HERE), on("cpu", HERE)]) == []
    assert len(comparisons([on(d, r) for d in ("cpu", "phone") for r in (HERE, other)])) == 2


def test_the_page_shows_numbers_and_runs_nothing() -> None:
    text = page(comparisons([on("cpu", HERE), on("phone", THERE)]))
    assert "20.00%" in text and "9.00 ms" in text and "1 on phone only" in text
    assert "<b>" not in text and "<script" not in text and "failed" in text


def test_page_and_picture_are_written(tmp_path: Path) -> None:
    for device, seed in (("cpu", 0), ("tvm", 1)):
        content = on(device, ladder_study(seed=seed))
        (tmp_path / f"{device}.json").write_text(json.dumps(content))
    found = write_comparison(tmp_path, sorted(tmp_path.glob("*.json")))
    assert found == tmp_path / PAGE and found.stat().st_size > 1000
    with Image.open(tmp_path / PICTURE) as picture:
        assert picture.width > 1000


def test_nothing_to_compare_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "cpu.json").write_text(json.dumps(on("cpu", HERE)))
    assert write_comparison(tmp_path, [tmp_path / "cpu.json"]) is None
    assert not (tmp_path / PAGE).exists()


@pytest.mark.parametrize("missing", ["latency_ms", "accuracy_loss"])
def test_what_was_not_measured_is_left_blank(missing: str) -> None:
    metrics = {k: v for k, v in figures(0.2, 2).items() if k != missing}
    content = on("cpu", HERE)
    content["candidates"][0]["metrics"] = metrics
    assert page(comparisons([content, on("phone", THERE)]))
