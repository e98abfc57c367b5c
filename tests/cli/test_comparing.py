"""`python -m seqto.compare`: studies that MLflow holds, side by side."""

from pathlib import Path

import pytest
from tiny_studies import Lab, chain

from seqto.cli.comparing import main
from seqto.quantizers.static import StaticQuantizer
from seqto.report.writing import write_files
from seqto.tracking.mlflow import MlflowTracker


@pytest.fixture(scope="module")
def studies(migrated_store: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Return the store of two studies that differ in their quantization, and their runs."""
    folder = tmp_path_factory.mktemp("studies")
    (folder / "mlflow.db").write_bytes(migrated_store.read_bytes())
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("MLFLOW_RUN_ID", raising=False)
        static = Lab.at(folder, chain(2))
        tensor = StaticQuantizer(name="per_tensor", per_channel=False)
        other = Lab.at(folder, chain(2), quantizer=tensor)
        runs = [
            each.run(
                MlflowTracker(uri=uri),
                publish=lambda record, front: write_files(folder, record, front, {}, None),
            ).record.id
            for each in (static, other)
        ]
    return uri, *runs


def test_studies_are_set_side_by_side(
    studies: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri, static, other = studies
    main([static, other, "--tracking-uri", uri, "--output", str(tmp_path)])
    out = capsys.readouterr().out
    for words in ("chain · cpu", "volume", "size at 1 %", "is the smallest"):
        assert words in out
    assert f"A  static  {static[:8]}\nB  per_tensor  {other[:8]}\n" in out
    assert f"compare: {tmp_path / 'comparison.html'}" in out.replace("\n", "")
    page = (tmp_path / "comparison.html").read_text()
    assert f'title="run {static}">static</td>' in page and other in page
    assert 'colspan="3">per_<wbr>tensor</th>' in page


@pytest.mark.parametrize("runs", [1, 2], ids=["one", "twice the same"])
def test_one_study_is_no_comparison(
    studies: tuple[str, ...], runs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([studies[1]] * runs + ["--tracking-uri", studies[0], "--output", str(tmp_path)])
    assert end.value.code == 1
    assert "two or more different studies" in capsys.readouterr().err


def test_a_run_that_is_no_study_is_named(
    studies: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main([studies[1], "nope", "--tracking-uri", studies[0], "--output", str(tmp_path)])
    assert end.value.code == 1
    assert "has no run 'nope'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
