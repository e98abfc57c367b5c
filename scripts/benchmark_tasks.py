"""Compare seqto with plain ONNX Runtime quantization on models of many tasks.

    python scripts/benchmark_tasks.py [--only magika,nudenet]

The models are those of the tests: published ones, out of wheels on PyPI, and small exports. All
rows of a model are measured alike: the loss is that of its task, in relation to the float model, on
samples that neither ONNX Runtime nor seqto has seen; latency is the median of single inferences on
one thread. CPU seconds are what it took to get the models, seqto's ranking and search included.
The last column says which member of seqto's fronts has neither more loss nor more bytes.
"""

import argparse
import contextlib
import io
import logging
import re
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process
from rich import box
from rich.console import Console
from rich.table import Table

import seqto
from seqto.devices.onnxruntime import has_vnni, is_x86
from seqto.errors import SeqtoError
from seqto.graph.interface import interface_of
from seqto.metrics.intervals import can_be_told_apart
from seqto.protocols import Task
from seqto.tasks.binary import Binary
from seqto.tasks.classification import Classification
from seqto.tasks.decoded_text import DecodedText
from seqto.tasks.detection import Detection
from seqto.tasks.embedding import Embedding
from seqto.tasks.regression import Regression
from seqto.tasks.segmentation import Segmentation
from seqto.tasks.tokens import Tokens
from seqto.types import Entry, Outputs

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from pypi_models import Unavailable, path_of
from task_models import EXPORTED, PUBLISHED, Case

TASKS: Mapping[str, Task] = {
    "audio": Regression(name="audio", scale="sample"),
    "binary": Binary(),
    "classification": Classification(),
    "detection": Detection(),
    "embedding": Embedding(),
    "regression": Regression(),
    "segmentation": Segmentation(),
    "text": DecodedText(decoding="ctc"),
    "tokens": Tokens(),
}

QUANTIZATIONS = ("static", "weight_only")
CALIBRATED, EVALUATED, FRESH = 16, 32, 32
REPEATS = 20

Feeds = Sequence[Mapping[str, np.ndarray]]
Losses = np.ndarray


@dataclass(frozen=True, eq=False)
class Row:
    """A quantized model and what it scored; a model that does not run has a reason instead."""

    name: str
    size_ratio: float = np.nan
    losses: Losses | None = None
    latency_ms: float = np.nan
    cpu_seconds: float = np.nan
    failure: str = ""

    @property
    def loss(self) -> float:
        """The mean loss of the samples."""
        return np.nan if self.losses is None else float(self.losses.mean())


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with its samples and what its outputs mean."""

    case: Case
    path: Path
    task: Task
    feeds: Feeds
    axes: Mapping[str, int | None]
    reference: Sequence[Entry]

    def row(
        self, name: str, session: onnxruntime.InferenceSession, size: int, cpu: float = np.nan
    ) -> Row:
        """Return the figures of a model in a session."""
        outputs = entries(session, self.feeds, self.axes)
        losses = self.task.metric.losses(by_name(self.reference), by_name(outputs))
        ratio = size / self.path.stat().st_size
        return Row(name, ratio, np.asarray(losses), latency(session, self.feeds[0]), cpu)


def main() -> None:
    """Print a table for each model, and in how many baselines seqto is not dominated."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="names of models, with commas between them")
    options = parser.parse_args()
    chosen = [name for name in options.only.split(",") if name]
    console = Console(width=140)
    verdicts: list[str] = []
    for case in (*PUBLISHED, *EXPORTED):
        if not chosen or case.name in chosen:
            verdicts += shown(case, console)
    count = sum(each.startswith("no") for each in verdicts)
    console.print(f"{len(verdicts)} models of plain ONNX Runtime, {count} of them ahead of seqto.")


def shown(case: Case, console: Console) -> list[str]:
    """Print the table of one model, and return what is said of each of its baselines."""
    if case in PUBLISHED:
        try:
            path_of(case.name)
        except Unavailable as error:
            console.print(f"{case.name} is left out: it {error}")
            return []
    with tempfile.TemporaryDirectory() as folder, quiet():
        subject = subject_of(case, Path(folder))
        known = case.samples(CALIBRATED + EVALUATED).batches(1)
        calibration = [dict(each) for each, _ in zip(known, range(CALIBRATED), strict=False)]
        plain = [each(subject, calibration) for each in BASELINES]
        fronts = [row for name in QUANTIZATIONS for row in front(subject, name)]
        table, said = tabulated(subject, plain, fronts)
    console.print(table)
    return said


def subject_of(case: Case, folder: Path) -> Subject:
    """Return the model in a file, and its float outputs for samples that nobody else sees."""
    model = case.model()
    path = folder / f"{case.name}.onnx"
    path.write_bytes(model.to_bytes())
    task = TASKS[case.words[0].removeprefix("task=")]
    axes = interface_of(model).outputs
    feeds = case.feeds(CALIBRATED + EVALUATED + FRESH)[-FRESH:]
    return Subject(case, path, task, feeds, axes, entries(opened(path), feeds, axes))


def opened(path: Path) -> onnxruntime.InferenceSession:
    """Return a session on one thread, with exact integer kernels as seqto has them if it loads."""
    exact = is_x86() and not has_vnni()
    try:
        return _opened(path, exact=exact)
    except Exception:
        if not exact:
            raise
        # ONNX Runtime cannot make the weights of some models unsigned, which exact kernels need.
        return _opened(path, exact=False)


def _opened(path: Path, *, exact: bool) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if exact:
        options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def entries(
    session: onnxruntime.InferenceSession, feeds: Feeds, axes: Mapping[str, int | None]
) -> list[Entry]:
    """Return the compared outputs of each sample, without their batch axes."""
    found = []
    for feed in feeds:
        made = dict(zip(axes, session.run(list(axes), taken(session, feed)), strict=True))
        found.append(
            {
                name: np.asarray(each) if axes[name] is None else np.take(each, 0, axes[name])
                for name, each in made.items()
            }
        )
    return found


def by_name(samples: Sequence[Entry]) -> Outputs:
    """Return the outputs of all samples, as one array where their shapes are the same."""
    found = {name: [each[name] for each in samples] for name in samples[0]}
    return {
        name: np.stack(each) if len({one.shape for one in each}) == 1 else tuple(each)
        for name, each in found.items()
    }


def taken(
    session: onnxruntime.InferenceSession, feed: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the inputs that this model has: constants are none in seqto's models."""
    return {each.name: feed[each.name] for each in session.get_inputs()}


def latency(session: onnxruntime.InferenceSession, feed: Mapping[str, np.ndarray]) -> float:
    """Return the median time of an inference in milliseconds."""
    inputs, times = taken(session, feed), []
    for _ in range(REPEATS + 2):
        start = time.perf_counter()
        session.run(None, inputs)
        times.append(time.perf_counter() - start)
    return 1000 * float(np.median(times[2:]))


def dynamic(*, per_channel: bool) -> Callable[[Subject, Feeds], Row]:
    """Return what makes the row of `quantize_dynamic`."""

    def quantize(source: Path, target: Path, calibration: Feeds) -> None:
        # ONNX Runtime's default, int8, has no kernel for Conv on a CPU.
        convolves = any(node.op_type == "Conv" for node in onnx.load(source).graph.node)
        kind = QuantType.QUInt8 if convolves else QuantType.QInt8
        quantize_dynamic(source, target, per_channel=per_channel, weight_type=kind)

    return baseline("quantize_dynamic", quantize, per_channel)


def static(*, per_channel: bool) -> Callable[[Subject, Feeds], Row]:
    """Return what makes the row of `quantize_static`."""

    def quantize(source: Path, target: Path, calibration: Feeds) -> None:
        quantize_static(source, target, _Reader(calibration), per_channel=per_channel)

    return baseline("quantize_static", quantize, per_channel)


def baseline(
    name: str, quantize: Callable[[Path, Path, Feeds], None], per_channel: bool
) -> Callable[[Subject, Feeds], Row]:
    """Return what makes a row of plain ONNX Runtime."""
    called = f"{name}, per channel" if per_channel else name

    def made(subject: Subject, calibration: Feeds) -> Row:
        target = subject.path.with_name(f"{called}.onnx".replace(", ", "-").replace(" ", "-"))
        start = cpu_seconds()
        try:
            quantize(preprocessed(subject.path), target, calibration)
            spent = cpu_seconds() - start
            return subject.row(called, opened(target), target.stat().st_size, spent)
        except Exception as error:  # ONNX Runtime's errors have no common base.
            return Row(called, failure=cause(error))

    return made


def preprocessed(path: Path) -> Path:
    """Return the model as ONNX Runtime advises to prepare it, or as it is if that fails."""
    prepared = path.with_name("prepared.onnx")
    try:
        quant_pre_process(path, prepared, skip_symbolic_shape=True)
    except Exception:  # ONNX Runtime's errors have no common base.
        return path
    return prepared


def cause(error: Exception) -> str:
    """Return the first line of a message, without codes and temporary paths."""
    first = (str(error).splitlines() or [type(error).__name__])[0]
    return re.sub(r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from \S+ failed: ?", "", first)


class _Reader(CalibrationDataReader):
    """Samples, as `quantize_static` takes them."""

    def __init__(self, feeds: Feeds) -> None:
        self._left = iter(feeds)

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        """Return the next sample."""
        return next(self._left, None)


BASELINES = (
    *(dynamic(per_channel=each) for each in (False, True)),
    *(static(per_channel=each) for each in (False, True)),
)


def front(subject: Subject, quantization: str) -> list[Row]:
    """Return the rows of a study's front; what it took is written at the first one."""
    case, start = subject.case, cpu_seconds()
    count = CALIBRATED + EVALUATED
    try:
        result = seqto.tune(
            str(subject.path),
            {name: each[:count] for name, each in case.inputs(count).items()},
            quantization=quantization,
            evaluations=8,
            calibration_size=CALIBRATED,
            evaluation_size=EVALUATED,
            overrides=[*case.words, "sensitivity.samples=8"],
            tracking=None,
            progress=False,
        )
    except SeqtoError as error:
        return [Row(f"seqto {quantization}", failure=str(error))]
    spent = cpu_seconds() - start
    rows = []
    for each in sorted(result.front, key=lambda each: each.size_bytes or 0):
        name = f"seqto {quantization} #{each.index}"
        rows.append(subject.row(name, each.session(), int(each.size_bytes or 0), spent))
        spent = np.nan
    return rows


def tabulated(
    subject: Subject, plain: Sequence[Row], fronts: Sequence[Row]
) -> tuple[Table, list[str]]:
    """Return the table of a model, and what it says of each baseline that runs."""
    floating = subject.row("float", opened(subject.path), subject.path.stat().st_size)
    size = subject.path.stat().st_size / 1e6
    task = subject.case.words[0].removeprefix("task=")
    title = f"{subject.case.name}: {task}, {subject.task.metric.name}, {size:.2f} MB"
    table = Table(title=title, box=box.MARKDOWN, title_justify="left")
    for column in ("model", "size", "loss", "latency", "CPU s", "seqto's front has"):
        table.add_column(
            column, justify="left" if column in ("model", "seqto's front has") else "right"
        )
    said = []
    for row in (floating, *plain, *fronts):
        verdict = verdict_on(row, fronts) if row in plain and not row.failure else row.failure
        table.add_row(*cells(row), verdict[:60])
        said += [verdict] if row in plain and not row.failure else []
    return table, said


def cells(row: Row) -> list[str]:
    """Return the figures of a row as text."""
    figures = (
        f"{100 * row.size_ratio:.1f} %",
        f"{100 * row.loss:.2f} %",
        f"{row.latency_ms:.2f} ms",
        f"{row.cpu_seconds:.1f}",
    )
    return [row.name, *("" if each.startswith("nan") else each for each in figures)]


def verdict_on(row: Row, fronts: Sequence[Row]) -> str:
    """Return which member of the fronts is at least as good as this baseline."""
    smaller = [each for each in fronts if each.size_ratio <= row.size_ratio]
    best = min(smaller, key=lambda each: each.loss, default=None)
    if best is None or best.losses is None or row.losses is None:
        return "no"
    if best.loss <= row.loss:
        return best.name.removeprefix("seqto ")
    apart = can_be_told_apart(best.losses, row.losses)
    return "no" if apart else f"{best.name.removeprefix('seqto ')}, losses cannot be told apart"


def cpu_seconds() -> float:
    """Return the CPU time of this process and of those that it started and that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep off the screen what ONNX Runtime's quantizers print."""
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)


if __name__ == "__main__":
    main()
