import dataclasses
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies import ladder_study, layer_scores, study, trial

from seqto.pareto.front import find_front
from seqto.report.document import report, write_report
from seqto.study.schemes import SchemeResult
from seqto.types import StudyRecord, TrialState

LOSS_SIZE = ("accuracy_loss", "size_bytes")


@pytest.fixture
def record() -> StudyRecord:
    return study(
        [
            trial(2, excluded=["b"], state=TrialState.FAILED, failure="DeviceError: no room"),
            trial(0, accuracy_loss=0.1, size_bytes=300.0, kl=math.nan),
            trial(1, excluded=["a", "c"], accuracy_loss=0.0, size_bytes=700.0, kl=math.inf),
            trial(3, duplicate_of=0, accuracy_loss=0.1, size_bytes=300.0),
        ],
        scores=layer_scores(3),
    )


def made(record: StudyRecord) -> dict[str, Any]:
    front = find_front(record.trials, LOSS_SIZE, record.baseline)
    return report(record, front, {"python": "3.11"})


def test_top_level_is_the_documented_schema(record: StudyRecord) -> None:
    found = made(record)
    assert found["schema"] == 1
    assert found["study"] == {"id": "study-1", "key": record.key, "tags": dict(record.tags)}
    assert found["objectives"] == ["accuracy_loss", "size_bytes"]
    assert found["baseline"] == {"size_bytes": 1000.0}
    assert found["recommended"] == {"balanced": 0, "accurate": 1, "small": 0}
    assert found["environment"] == {"python": "3.11"}
    assert found["hypervolume"] == pytest.approx(0.3 + 0.4 * 0.9)
    documented = [f"`{key}`" for key in found]
    assert all(key in (report.__doc__ or "") for key in documented)


def test_every_trial_is_a_candidate_by_index(record: StudyRecord) -> None:
    candidates = made(record)["candidates"]
    assert [each["index"] for each in candidates] == [0, 1, 2, 3]
    assert [each["state"] for each in candidates] == ["COMPLETE", "COMPLETE", "FAILED", "COMPLETE"]
    assert [each["pareto"] for each in candidates] == [True, True, False, False]
    assert [each["duplicate_of"] for each in candidates] == [None, None, None, 0]
    assert [each["failure"] for each in candidates] == [None, None, "DeviceError: no room", None]
    assert [each["aliases"] for each in candidates] == [["balanced", "small"], ["accurate"], [], []]
    assert candidates[1]["excluded_layers"] == ["a", "c"]
    assert candidates[1]["excluded_count"] == 2
    assert candidates[1]["run_id"] == "run-1"
    assert candidates[1]["key"] == record.trials[2].candidate.key


def test_candidate_keys_are_documented(record: StudyRecord) -> None:
    found = made(record)
    for key in [*found["candidates"][0], *found["sensitivity"][0]]:
        assert f"`{key}`" in (report.__doc__ or "")


SCHEME = {
    **{"scheme": "int8 per channel, fast", "divergence": 0.5, "exact_divergence": 0.01},
    **{"size_bytes": 250, "size_ratio": 0.25, "latency_ms": 2.0, "latency_p10_ms": 1.5},
    "base": False,
}
SCREENED = {
    **{"key": "0123", "scheme": "7 bits per tensor, safe", "evaluated": True},
    **{"divergence": 0.02, "disagreement": 0.0, "size_bytes": 300.0, "failure": None},
}


def test_tables_are_in_the_report_and_documented(record: StudyRecord) -> None:
    assert made(record)["schemes"] == made(record)["screening"] == []
    found = made(replace(record, tables={"schemes": [SCHEME], "screening": [SCREENED]}))
    assert found["schemes"] == [SCHEME]
    assert found["screening"] == [SCREENED]
    for key in [*SCHEME, *SCREENED]:
        assert f"`{key}`" in (report.__doc__ or "")


def test_rows_of_the_tables_are_those_that_seqto_makes() -> None:
    fields = {each.name for each in dataclasses.fields(SchemeResult)}
    assert set(SCHEME) == fields


def test_scheme_of_a_candidate_is_null_without_one() -> None:
    plain = trial(0, accuracy_loss=0.1, size_bytes=300.0)
    other = trial(1, accuracy_loss=0.0, size_bytes=400.0, scheme="7 bits per tensor, safe")
    schemes = [each["scheme"] for each in made(study([plain, other]))["candidates"]]
    assert schemes == [None, "7 bits per tensor, safe"]


def test_nan_and_infinity_become_null(record: StudyRecord) -> None:
    candidates = made(record)["candidates"]
    assert candidates[0]["metrics"] == {"accuracy_loss": 0.1, "size_bytes": 300.0, "kl": None}
    assert candidates[1]["metrics"]["kl"] is None


def test_sensitivity_is_listed_in_order_with_its_details(record: StudyRecord) -> None:
    rows = made(record)["sensitivity"]
    assert [row["layer"] for row in rows] == [each.layer.name for each in record.scores]
    assert rows[0]["score"] == record.scores[0].score
    assert rows[0]["details"] == dict(record.scores[0].details)


def test_written_report_reads_back_the_same(tmp_path: Path) -> None:
    record = ladder_study(12)
    front = find_front(record.trials, LOSS_SIZE, record.baseline)
    path = tmp_path / "new" / "report.json"
    write_report(path, record, front, {"device": "cpü"})
    assert json.loads(path.read_text(encoding="utf-8")) == report(record, front, {"device": "cpü"})
    assert [each.name for each in path.parent.iterdir()] == ["report.json"]


def test_numpy_numbers_are_written_as_numbers(tmp_path: Path) -> None:
    metrics = {"accuracy_loss": np.float32(0.5), "size_bytes": np.int64(300)}
    record = study([trial(0, **metrics)])
    front = find_front(record.trials, LOSS_SIZE, record.baseline)
    write_report(tmp_path / "report.json", record, front, {})
    read = json.loads((tmp_path / "report.json").read_text())
    assert read["candidates"][0]["metrics"] == {"accuracy_loss": 0.5, "size_bytes": 300}
