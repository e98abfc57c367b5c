"""What the documents say to type is understood, and what they link to is there.

Every command in a block of shell is checked here: words are composed and their parts built, light
commands are run, and those of other programs are looked up in what they run.
"""

import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from commands import Command
from hydra.errors import InstantiationException
from omegaconf.errors import MissingMandatoryValue
from onnx_models import conv_bn_relu
from PIL import Image

from seqto.cli.shorthand import expanded
from seqto.config.build import build_parts, build_settings
from seqto.config.complaints import known_choices, known_keys
from seqto.config.compose import composed
from seqto.graph.files import save_model
from seqto.graph.load import input_specs

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted(
    each
    for pattern in ("*.md", "conf/*.md", "scripts/*.md", ".github/*.md", "seqto/**/*.md")
    for each in ROOT.glob(pattern)
    if each.name != "CHANGELOG.md"
)
IDS = [str(each.relative_to(ROOT)) for each in DOCUMENTS]
MOST_WORDS = 1500

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FILES = (
    "my.onnx",
    "yolo.onnx",
    "minilm.onnx",
    "unet.onnx",
    "samples.npz",
    "lines.txt",
    "tokenizer.json",
)
RUN = "0" * 32
QUICK = ("device.repeats=2", "sensitivity.samples=4", "search=ladder", "search.maximum=1")


@dataclass(frozen=True)
class Typed:
    """A command in a document."""

    document: str
    line: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.line.replace("<run id>", RUN), comments=True)

    def __str__(self) -> str:
        return f"{self.document}: {self.line[:60]}"


def blocks(path: Path, language: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(path.read_text()) if kind == language]


def typed() -> list[Typed]:
    """Return every command in a block of shell."""
    found = []
    for path, name in zip(DOCUMENTS, IDS, strict=True):
        for block in blocks(path, "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                if line.strip() and not line.startswith("#"):
                    found.append(Typed(name, line.strip()))
    return found


TYPED = typed()
OF_SEQTO = [each for each in TYPED if Path(each.words[0]).name == "seqto"]
OTHERS = [each for each in TYPED if each not in OF_SEQTO]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files that the documents' commands name."""
    for name in FILES:
        (tmp_path / name).touch()
    (tmp_path / "photos").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", OF_SEQTO, ids=str)
def test_words_are_understood(command: Typed, files: Path) -> None:
    words = command.words[1:]
    if words[:1] in (["report"], ["compare"]):
        assert set(words[1:]) <= {RUN, "..."}
        return
    if words == ["my.onnx"] or {"--help", "--info", "-sc"} & set(words):
        return
    commands = ("study", "candidate", "promote", "rollback", "-m", "--dry-run")
    full = expanded([word for word in words if word not in commands])
    chosen = [_first(_full(word)) for word in full if word != "-m"]
    config = composed(_fitting(chosen))
    build_settings(config, 1)
    if any("my" in word and ("_target_" in word or "target" in word) for word in words):
        # tests/test_task_readme.py has those files.
        return
    try:
        build_parts(config)
    except MissingMandatoryValue as error:
        # What was registered is rolled back without its samples.
        assert "rollback" in words, error
    except InstantiationException as error:
        # Providers and compilers that are not here are told with what to install.
        assert "nstall" in str(error), error


def _full(word: str) -> str:
    """Return a word of `seqto promote` as a config's."""
    return f"constraint.{word}" if word.startswith("max_") else word


def _first(word: str) -> str:
    """Return the first choice of several."""
    return word if "[" in word or "{" in word else word.partition(",")[0]


def _fitting(words: list[str]) -> list[str]:
    """Leave out what sweepers read: ranges, and `++key=value` for the choices that have the key."""
    return [word for word in words if not word.startswith("++") and "range(" not in word]


@pytest.mark.parametrize("command", OTHERS, ids=str)
def test_other_programs_have_what_is_named(command: Typed) -> None:
    program, *words = command.words
    name = Path(program).name
    if name == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        wanted = re.findall(r"\[([\w,]+)\]", " ".join(words))
        known = extras["optional-dependencies"]
        assert all(each in known for group in wanted for each in group.split(","))
    elif name == "mlflow":
        _check_mlflow(words)
    elif name in ("python", "pytest"):
        _check_python(words)
    elif program.startswith(("./scripts/", "scripts/")):
        _check_script(ROOT / program, words)
    else:
        assert name in ELSEWHERE, f"{program}: say here which test runs it"


ELSEWHERE = {
    "source": "a shell's own",
    "curl": "tests/cli/test_serve.py asks the same of a server",
    "eval": "tests/cli/test_subcommands.py completes words",
    **dict.fromkeys(
        ("adb", "apt-get", "git", "cmake", "make", "export", "cd", "ssh", "ray"),
        "needs a phone, a cluster or a compiler",
    ),
}
"""Programs that are not seqto's, and what is known of them."""


def _check_mlflow(words: list[str]) -> None:
    if words[0] != "run":
        assert words[0] in ("ui", "server", "models", "db")
        return
    entries = (ROOT / "MLproject").read_text()
    chosen = words[words.index("-e") + 1] if "-e" in words else "main"
    assert re.search(rf"^  {chosen}:", entries, re.MULTILINE)


def _check_python(words: list[str]) -> None:
    if words[0] == "-m":
        assert all((ROOT / word).exists() for word in words if word.startswith("tests/"))
        return
    _check_script(ROOT / words[0], words[1:])


def _check_script(path: Path, words: list[str]) -> None:
    """Raise if the script is not there, or does not know an option."""
    assert path.is_file(), f"{path} is gone"
    source = path.read_text()
    for called in re.findall(r"scripts/([\w/]+\.py)", source):
        source += (ROOT / "scripts" / called).read_text()
    for word in words:
        if word.startswith("--"):
            assert f'"{word.partition("=")[0]}"' in source, f"{path.name} has no {word}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_links_lead_somewhere(path: Path) -> None:
    for link in LINK.findall(path.read_text()):
        if link.startswith(("http:", "https:", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        assert target.exists(), f"{link} is gone"
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
            anchors = [re.sub(r"[^\w\- ]", "", each).lower().replace(" ", "-") for each in titles]
            assert anchor in anchors, f"{link}: no such title"


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_words_in_the_text_exist(path: Path) -> None:
    """Check `group=choice` and `group.key=value` wherever they stand between backticks."""
    text = BLOCK.sub("", path.read_text())
    keys = set(known_keys())
    for snippet in re.findall(r"`([^`\n]+)`", text):
        for word in re.findall(r"(?:^|[\s'])\+*([a-z_]+(?:\.[a-z_0-9]+)*)=([^\s'`]*)", snippet):
            name, value = word
            root = name.partition(".")[0]
            if root not in GROUPS:
                continue
            assert name in keys or name == f"{root}._target_", f"{name} is no key: {snippet}"
            if name == root and (ROOT / "conf" / root).is_dir() and re.fullmatch(r"[\w,]+", value):
                unknown = set(value.split(",")) - {*known_choices(root), *NO_CHOICES}
                assert not unknown, f"{root} has no {unknown}: {snippet}"


NO_CHOICES = {"lambda", "None", "my", ""}
"""Python, and a choice in a folder of one's own."""

GROUPS = {
    *(path.name for path in (ROOT / "conf").iterdir() if path.is_dir() and path.name != "hydra"),
    *("constraint", "gate", "candidate", "study", "objectives", "recommend"),
}


def test_the_readme_is_read_to_its_end() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= MOST_WORDS


@pytest.mark.parametrize("path", DOCUMENTS, ids=IDS)
def test_python_compiles(path: Path) -> None:
    for block in blocks(path, "python"):
        compile(block, str(path), "exec")


@pytest.mark.slow
def test_ones_own_model_as_the_readme_says(seqto: Command, tmp_path: Path) -> None:
    """Type what is under "Your own model", one line after the other."""
    model = conv_bn_relu()
    save_model(model, tmp_path / "my.onnx")
    (spec,) = input_specs(model)
    photos = tmp_path / "photos"
    photos.mkdir()
    draw = np.random.RandomState(0)
    for number in range(24):
        pixels = draw.randint(0, 256, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(photos / f"{number}.png")
    lines = [
        each.words[1:]
        for each in OF_SEQTO
        if each.document == "README.md" and each.words[1:2] == ["my.onnx"]
    ]
    alone, study, limited = lines
    looks = seqto(*alone)
    assert looks.code == 0 and "samples:" in looks.out, looks.err
    shape = [each or 32 for each in spec.shape]
    crop = f"preprocess.crop={shape[-1]}"
    for words in (study, limited):
        done = seqto(*words, crop, "task=regression", *QUICK)
        # A limit that noise does not meet is told by its own code.
        assert done.code in (0, 3), done.err
        assert (tmp_path / re.findall(r"file: +(\S+)", done.out)[-1]).is_file()
