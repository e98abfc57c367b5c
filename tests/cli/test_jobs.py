"""A study's job, run where other files lie under the same names, measures nothing."""

from pathlib import Path

import pytest
from commands import Command
from mlflow.tracking import MlflowClient
from tiny_studies import chain

from seqto.cli.candidate_command import run_study_job
from seqto.config import build
from seqto.config.compose import composed
from seqto.config.words import word
from seqto.errors import StudyError

STUDY = (
    *("model=local", "model.path=chain.onnx", "search=ladder", "search.step=6"),
    *("sensitivity=paper", "sensitivity.samples=4", "device.warmup=0", "device.repeats=1"),
)
SIZE = "dataset.evaluation_size=100"


@pytest.fixture
def job(seqto: Command, tmp_path: Path) -> list[str]:
    """Return the words of a job of a finished study, which may run in any folder."""
    (tmp_path / "chain.onnx").write_bytes(chain(5).to_bytes())
    result = seqto(*STUDY, SIZE, "-m")
    assert result.code == 0, result.err
    store = f"sqlite:///{tmp_path}/mlflow.db"
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("seqto").experiment_id
    (study,) = client.search_runs([experiment], "tags.`seqto.kind` = 'study'")
    children = client.search_runs([experiment], "tags.`seqto.kind` = 'candidate'")
    assert {each.data.tags["seqto.machine"] for each in children} == {
        study.data.tags["seqto.machine"]
    }
    assignment = {"index": 9, "scheme": "", "precisions": {"float32": ["conv1", "conv3"]}}
    run = [f"study.run={study.info.run_id}", word("study.assignments", [assignment])]
    return [*run, word("tracking.uri", store)]


@pytest.mark.parametrize(
    ("convolutions", "size", "words"),
    [(5, SIZE, ""), (6, SIZE, "the model's sha256"), (5, "dataset.seed=7", "the data's")],
)
def test_job_measures_what_its_study_does_or_refuses(
    job: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    convolutions: int,
    size: str,
    words: str,
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("SEQTO_CACHE", str(tmp_path / "another cache"))
    monkeypatch.setattr(build, "_last", None)
    Path("chain.onnx").write_bytes(chain(convolutions).to_bytes())
    config = composed([*STUDY, SIZE, size, *job])
    if not words:
        assert len(run_study_job(config)) == 1
        return
    with pytest.raises(StudyError, match=f"something else than the study: .*{words}"):
        run_study_job(config)
