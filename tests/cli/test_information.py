"""--info says what there is to work with."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import onnxruntime
import pytest
from commands import Command

from seqto import __version__
from seqto.cli import information


def lines(text: str) -> dict[str, str]:
    parts = (line.partition(":") for line in text.splitlines())
    return {name: fact.strip() for name, _, fact in parts}


def test_info_names_versions_providers_and_places(seqto: Command, cache: Path) -> None:
    (cache / "something").write_bytes(bytes(2_000_000))
    result = seqto("--info")
    assert (result.code, result.err) == (0, "")
    facts = lines(result.out)
    assert facts["seqto"].startswith(__version__)
    assert (facts["onnx"], facts["mlflow"]) == (version("onnx"), version("mlflow"))
    assert facts["providers"] == ", ".join(onnxruntime.get_available_providers())
    assert facts["cache"].startswith(f"{cache} (") and facts["cache"].endswith(" MB)")
    assert float(facts["cache"].rpartition("(")[2].removesuffix(" MB)")) >= 2
    assert facts["tracking"].startswith(f"sqlite:///{Path.cwd()}/mlflow.db")
    assert facts["VNNI"].partition(":")[0].partition(",")[0] in ("yes", "no", "none")


def test_tvm_targets_tell_what_runs_here(seqto: Command) -> None:
    pytest.importorskip("tvm")
    targets = lines(seqto("--info").out)["TVM targets"]
    assert targets.startswith("llvm") and "opencl" in targets


def test_what_is_missing_says_how_to_get_it(
    seqto: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(information, "installed_version", absent)
    monkeypatch.setattr("seqto.devices.tvm_compile.find_spec", lambda name: None)
    facts = lines(seqto("--info").out)
    assert facts["apache-tvm"] == "not installed: pip install 'seqto[tvm]'"
    assert facts["TVM targets"] == "none, TVM is not installed"


def test_the_tracking_uri_of_the_environment_counts(
    seqto: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow.example:5000")
    assert lines(seqto("--info").out)["tracking"].startswith("http://mlflow.example:5000 (")


def test_hydras_own_info_is_still_there(seqto: Command) -> None:
    result = seqto("--info", "defaults")
    assert result.code == 0 and "Defaults List" in result.out
