"""What --help prints: a manual page made from the comments in conf/, so it cannot go stale."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seqto.cli.config_dirs import choices, config_dir, without_config_dir
from seqto.config.paths import CONF
from seqto.errors import ConfigError, nearest

WIDTH = 80
_INDENT = 4

_LINE = re.compile(r"^(?P<indent> *)(?P<name>\w+):(?: +(?P<value>[^#]*?))?(?: +# (?P<words>.*))?$")
_DEFAULT = re.compile(r"^  - (?P<name>\w+): (?P<value>\w+) +# (?P<words>.*)$")

PAGE = """\
NAME
    seqto - finds which layers of an ONNX model to leave in higher precision

SYNOPSIS
    seqto my.onnx photos/ [key=value ...]      a study of your model and images
    seqto my.onnx                              what a model looks like and needs
    seqto study [group=choice ...] [key=value ...]
                                               candidates, a front; short: -m
    seqto candidate [group=choice ...] [key=value ...]
                                               one candidate: measured and saved
    seqto promote | report | compare --help    registered models, reports
    seqto --help [group=choice ...]            this page, or the keys of choices
    seqto --info | --version                   versions, providers, CPU, folders
    seqto --info device=mali model=...         ... and what a study there lacks
    seqto ... --config-dir mine                own choices: mine/model/my.yaml

DESCRIPTION
    Ranks the layers of a model by how much quantization hurts them, builds
    selectively quantized candidates, runs each on the target device, measures
    accuracy loss, size and latency, and gives the Pareto front with recommended
    choices. Every candidate is an MLflow run, the best are registered models.
    Commas multiply into studies: quantization=static,dynamic -m. The same
    command again goes on where it stopped. `seqto ... -m` is a study and
    `seqto ...` a candidate; `python -m seqto` and `seqto` are the same,
    `seqto promote` and `python -m seqto.promote` too.

GROUPS
    Choose with group=choice; change the keys of a choice with group.key=value.

{groups}

KEYS
{keys}

EXAMPLES
    seqto -m
        A study of the embedded digits model, offline.
    seqto my.onnx photos/ preprocess=efficientnet_lite
        A study of your own model and images, or of a .npz file of arrays. In
        full: seqto model=local model.path=my.onnx dataset=images \\
              dataset.path=photos preprocess=efficientnet_lite -m
    seqto model=resnet50 dataset.path=photos \\
          constraint.max_accuracy_loss=0.01 -m
        One of the paper's models: the smallest version that differs on at most
        1 % of the photos.
    seqto model=local model.path=my.onnx dataset=npz dataset.path=samples.npz \\
          gate.max_accuracy_loss=0.01 gate.min_size_reduction=0.6 -m
        A study in a pipeline: exit code 3 if the front does not meet the gate.
    seqto search=oneshot sensitivity=local search.float_share=0.05 -m
        QuantuneV2's way: one decision, with 5 % of the weights in float.
    seqto candidate.from_run=<run id>
        One candidate that a study found, built again and saved.

EXIT STATUS
    0    done: a study finished, its final step included
    1    bad input, or a study that cannot give an answer; one line says why
    3    a study finished, but nothing in it meets the constraint or the gate
    130  interrupted: the same command goes on where it stopped

ENVIRONMENT
    MLFLOW_TRACKING_URI   where results are recorded, unless tracking.uri is set
    MLFLOW_EXPERIMENT_NAME  the runs' experiment, unless tracking.experiment is
    SEQTO_CACHE           the folder of fetched models, ranges and the like
    SEQTO_DEBUG           1: full tracebacks instead of one line
    HF_ENDPOINT           where models are fetched from; HF_HUB_OFFLINE=1: never
    TVM_NDK_CC            Android's compiler, for device=mali

FILES
    mlflow.db             MLflow's store in this folder, unless set otherwise
    multirun/             pictures and reports of studies, by date and time
    outputs/              the models of single candidates, by date and time
    {conf}
                          the files behind groups and keys

SEE ALSO
    seqto --cfg job       the composed config of a command
    seqto --hydra-help    Hydra's own features, such as other launchers
    eval "$(seqto -sc install=bash)"
                          turns on tab completion in this shell (or zsh, fish)\
"""


@dataclass(frozen=True)
class Key:
    """A key of a config, with its value and its comment."""

    name: str
    value: str
    words: str


def page(words: Sequence[str] = ()) -> str:
    """Return the manual page, or the keys of the given choices.

    With --config-dir among the words, the choices of that folder are there, too.
    """
    own = config_dir(words)
    if own is not None and not own.is_dir():
        raise ConfigError(f"--config-dir {own} is no folder: give the one with your configs.")
    chosen = [word for word in without_config_dir(words) if not word.startswith("-")]
    if chosen:
        return "\n\n".join(_choice(word, own) for word in chosen)
    return PAGE.format(groups=_groups(own), keys=_keys(CONF / "config.yaml", ""), conf=CONF)


def described_keys(path: Path) -> Iterator[Key]:
    """Yield the keys of a config file that have a value, with their full names."""
    inside: list[tuple[int, str]] = []
    for line in path.read_text().splitlines():
        found = _LINE.match(line)
        if not found:
            continue
        depth = len(found["indent"])
        inside = [each for each in inside if each[0] < depth]
        name = ".".join([*(each for _, each in inside), found["name"]])
        if found["value"]:
            yield Key(name, found["value"], found["words"] or "")
        else:
            inside.append((depth, found["name"]))


def summary(path: Path) -> str:
    """Return the comment at the beginning of a config, which says what it is for."""
    lines = path.read_text().splitlines()
    first = next((at for at, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return " ".join(line.removeprefix("#").strip() for line in lines[:first])


def _choice(word: str, own: Path | None) -> str:
    """Return what a choice is for, and its keys."""
    group = word.partition("=")[0]
    groups = {path.parent.name for root in (CONF, own) if root for path in root.glob("*/*.yaml")}
    known = {f"{name}={path.stem}": path for name in sorted(groups) for path in choices(name, own)}
    if word not in known:
        raise ConfigError(
            f"{word!r}{nearest(word, known)} is no choice of a group. Use --help alone for all, or "
            "with a choice, such as --help device=cpu."
        )
    path = known[word]
    title = "\n".join(textwrap.wrap(f"{word}: {summary(path)}", WIDTH))
    return f"{title}\n\n{_keys(path, f'{group}.')}"


def _groups(own: Path | None) -> str:
    lines = (CONF / "config.yaml").read_text().splitlines()
    found = [match for match in map(_DEFAULT.match, lines) if match]
    parts = []
    # The model is last in the file, but readers look for it first.
    for match in sorted(found, key=lambda match: match["name"] != "model"):
        group, default = match["name"], match["value"]
        title = f"{group}=  {match['words']}; by default {default}"
        indent, further = " " * _INDENT, " " * (_INDENT + len(group) + 3)
        parts += textwrap.wrap(title, WIDTH, initial_indent=indent, subsequent_indent=further)
        for path in choices(group, own):
            parts.append(_entry(path.stem, summary(path), indent=6, column=26))
    return "\n".join(parts)


def _keys(path: Path, prefix: str) -> str:
    entries = [
        _entry(f"{prefix}{key.name}={key.value}", key.words, _INDENT, column=36)
        for key in described_keys(path)
        if not key.name.startswith(("hydra.", "_target_"))
    ]
    return "\n".join(entries)


def _entry(name: str, words: str, indent: int, column: int) -> str:
    """Return a name and its description in two columns."""
    label = " " * indent + name
    lines = textwrap.wrap(words, WIDTH - column) or [""]
    if len(label) + 2 > column:
        lines = [label, *(" " * column + line for line in lines)]
    else:
        lines = [label.ljust(column) + lines[0], *(" " * column + line for line in lines[1:])]
    return "\n".join(line.rstrip() for line in lines)
