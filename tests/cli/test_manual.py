"""--help reads like a manual page, and says what the files of conf/ say."""

import subprocess
import sys
from pathlib import Path

import pytest
from commands import Command, Result

from seqto import __version__
from seqto.cli.manual import described_keys, page, summary
from seqto.config.complaints import known_keys
from seqto.config.paths import CONF

SECTIONS = ["NAME", "SYNOPSIS", "DESCRIPTION", "GROUPS", "KEYS", "EXAMPLES"]
CHOICES = sorted(path for path in CONF.glob("*/*.yaml") if path.parent.name != "hydra")


def test_version(seqto: Command) -> None:
    assert seqto("--version") == Result(0, f"seqto {__version__}\n", "")


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_is_a_manual_page(seqto: Command, flag: str) -> None:
    result = seqto(flag)
    assert (result.code, result.err) == (0, "")
    lines = result.out.splitlines()
    assert [line for line in lines if line.isupper() and not line.startswith(" ")] == [
        *SECTIONS,
        *("EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"),
    ]
    # The folder of the configs is as long as it is.
    assert not [line for line in lines if len(line) > 80 and str(CONF) not in line]
    examples = result.out.partition("\nEXAMPLES\n")[2].partition("\nEXIT STATUS\n")[0]
    assert examples.count("\n    seqto ") + examples.startswith("    seqto ") == 6
    assert "search=oneshot sensitivity=local" in examples and "QuantuneV2" in examples
    assert all(name in result.out for name in ("SEQTO_CACHE", "MLFLOW_TRACKING_URI", "HF_ENDPOINT"))


@pytest.mark.parametrize("path", CHOICES, ids=lambda path: f"{path.parent.name}={path.stem}")
def test_every_choice_is_there_with_what_it_is_for(path: Path) -> None:
    words = " ".join(page().split())
    assert f" {path.parent.name}= " in words
    assert " ".join(f"{path.stem} {summary(path)}".split()) in words


def test_every_key_is_there_with_what_it_is_for() -> None:
    groups = {path.parent.name for path in CHOICES}
    own = {key for key in known_keys() if key.partition(".")[0] not in groups}
    described = {key.name: key.words for key in described_keys(CONF / "config.yaml")}
    parents = {name.rpartition(".")[0] for name in described}
    assert own - parents <= set(described)
    text = page()
    assert all(f"    {name}=" in text for name in own - parents)
    assert all(described[name] for name in own - parents)


@pytest.mark.parametrize("path", CHOICES, ids=lambda path: f"{path.parent.name}={path.stem}")
def test_help_of_a_choice_has_its_keys(path: Path) -> None:
    group, choice = path.parent.name, path.stem
    text = page(["--help", f"{group}={choice}"])
    assert text.startswith(f"{group}={choice}: ")
    keys = [key for key in described_keys(path) if key.name != "_target_"]
    assert all(f"    {group}.{key.name}={key.value}" in text for key in keys)


def test_nested_keys_have_the_names_of_what_they_are_in() -> None:
    keys = {key.name: key for key in described_keys(CONF / "device" / "mali.yaml")}
    assert keys["target.kind"].value == "opencl" and keys["host.kind"].value == "llvm"
    assert keys["linker"].words.startswith("the compiler")


def test_help_of_an_unknown_choice_gets_one_line(seqto: Command) -> None:
    result = seqto("--help", "device=tmv")
    assert result.code == 1
    assert "'device=tmv' (did you mean 'device=tvm'" in result.err


def test_words_behind_the_flag_count_too(seqto: Command, tmp_path: Path) -> None:
    result = seqto("-m", "model=local", "model.path=none.onnx")
    assert result.code == 1 and "none.onnx does not exist" in result.err


def test_who_has_seen_enough_may_stop_reading() -> None:
    help_page = f"{sys.executable} -m seqto --help"
    done = subprocess.run(
        ["bash", "-c", f"{help_page} | head -1"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "NAME\n" and done.stderr == ""


@pytest.mark.parametrize("command", ["promote", "report", "compare"])
def test_other_pages_fit_eighty_columns(seqto: Command, command: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        shown = seqto(command, "--help")
    assert shown.code == 0
    assert not [line for line in shown.out.splitlines() if len(line) > 80]
