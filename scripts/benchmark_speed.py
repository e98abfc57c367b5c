"""What a study costs on EfficientNet-Lite0, beside the naive way and beside bare inference.

    python scripts/benchmark_speed.py [--data ../shared/data] [--growth]

All rows have the same candidates (rungs of the paper's ladder) and the same images:
naive    ORT's quantize_static for each candidate, which calibrates anew; images decoded anew;
         batch 1; a session with default threads
floor    bare inference of the candidates' models, loaded once, one thread, images in memory
seqto    the candidates as a study measures them, in one process; also without shared prefixes
study    the whole command, in a process of its own: imports, calibration, ranking, MLflow, pictures
CPU seconds count all threads and processes. Peak RSS is that of the largest process.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from benchmark_front import cpu_seconds, parts
from onnxruntime.quantization import CalibrationDataReader, quantize_static
from PIL import Image

from seqto import attempts as attempting
from seqto.attempts import attempts
from seqto.datasets.preprocess import ImagePreprocess
from seqto.evaluate import Subject
from seqto.subject import Parts, prepare_subject
from seqto.types import Candidate
from seqto.workspace import Workspace

SEED = 0


@dataclass(frozen=True)
class Usage:
    """What something took."""

    cpu: float
    wall: float
    rss_mb: float = 0.0


def main() -> None:
    """Measure all rows in one run and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--step", type=int, default=3, help="rungs from one candidate to the next")
    parser.add_argument("--naive", type=int, default=3, help="candidates to measure the naive way")
    parser.add_argument("--growth", action="store_true", help="also the table of growth")
    parser.add_argument("--part", nargs="+", help="what a process of its own is to do")
    options = parser.parse_args()
    if options.part:
        _part(options.part, options.data)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SEQTO_CACHE"] = str(Path(folder) / "cache")
        _speed(options, Path(folder))
        if options.growth:
            _growth(options.data)


def _speed(options: argparse.Namespace, folder: Path) -> None:
    shared, subject = _prepared(options.data)
    candidates = rungs(subject, options.step)
    count = len(candidates)
    naive = _in_process(options.data, "naive", str(options.naive))
    floor = _timed(lambda: run_bare(shared, subject, candidates))
    plain = _timed(lambda: run_seqto(shared, subject, candidates, share=False))
    ladder = _timed(lambda: run_seqto(shared, subject, candidates, share=True))
    study, measured = _study(options.data, folder)
    rows = [
        ("naive", options.naive, naive),
        ("floor: bare inference", count, floor),
        ("seqto, nothing shared", count, plain),
        ("seqto", count, ladder),
        ("whole study (`search=ladder -m`)", measured, study),
    ]
    unit = naive.cpu / options.naive
    print("\n| | candidates | CPU s each | wall s each | naive CPU | floor CPU | peak RSS |")
    print("|---|---|---|---|---|---|---|")
    for name, number, usage in rows:
        each = usage.cpu / number
        cells = [
            name,
            str(number),
            f"{each:.2f}",
            f"{usage.wall / number:.2f}",
            f"1/{unit / each:.1f}",
            f"{each / (floor.cpu / count):.2f}x",
            f"{usage.rss_mb:.0f} MB" if usage.rss_mb else "",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)


def _growth(data: Path) -> None:
    print("\n| candidates | images | CPU s | CPU s a candidate | wall s | peak RSS |")
    print("|---|---|---|---|---|---|")
    for images in (50, 300):
        for count in (10, 50, 200):
            usage = _in_process(data, "grow", str(count), str(images))
            cells = [count, images, f"{usage.cpu:.0f}", f"{usage.cpu / count:.2f}"]
            cells += [f"{usage.wall:.0f}", f"{usage.rss_mb:.0f} MB"]
            print(f"| {' | '.join(map(str, cells))} |", flush=True)


def rungs(subject: Subject, step: int) -> list[Candidate]:
    """Return candidates that exclude more and more layers, in a random order of the layers."""
    names = subject.layer_names
    order = [names[at] for at in np.random.RandomState(SEED).permutation(len(names))]
    return [Candidate.excluding(names, order[:at]) for at in range(0, len(names) + 1, step)]


def run_bare(shared: Parts, subject: Subject, candidates: Sequence[Candidate]) -> float:
    """Run the candidates' models and nothing else; return the CPU seconds that building took."""
    building = 0.0
    (name,) = subject.samples.inputs
    images = np.asarray(subject.samples.inputs[name])
    for candidate in candidates:
        start = cpu_seconds()
        model = shared.quantizer.quantize(subject.model, subject.ranges, candidate)
        program = shared.device.load(model)
        building += cpu_seconds() - start
        for at in range(0, len(images), subject.batch):
            program.run({name: images[at : at + subject.batch]})
    return building


def run_seqto(
    shared: Parts, subject: Subject, candidates: Sequence[Candidate], share: bool
) -> float:
    """Measure the candidates as a study does."""
    kept = attempting.SHARED_BYTES
    attempting.SHARED_BYTES = kept if share else 0
    for each in attempts(shared, subject, candidates):
        assert each.measurement is not None, each.failure
    attempting.SHARED_BYTES = kept
    return 0.0


def run_naive(shared: Parts, subject: Subject, data: Path, count: int) -> None:
    """Measure so many candidates as a script would that keeps nothing."""
    preprocess: ImagePreprocess = shared.dataset.preprocess  # type: ignore[attr-defined]
    path = data / "models" / "efficientnet-lite0.onnx"
    spec = next(iter(subject.samples.inputs))
    folder = data / "imagenet-sample"

    def decoded(names: Sequence[str]) -> list[dict[str, np.ndarray]]:
        found = []
        for name in names:
            file = folder / name if (folder / name).is_file() else folder / "images" / name
            with Image.open(file) as image:
                array = preprocess.apply(image, preprocess.target(_spec(shared)))
            found.append({spec: array[None]})
        return found

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter(decoded(subject.calibration.ids))

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self._left, None)

    for candidate in rungs(subject, 1)[10 : 10 + count]:
        with tempfile.TemporaryDirectory() as temporary:
            target = Path(temporary) / "quantized.onnx"
            quantize_static(
                path, target, Reader(), per_channel=True, nodes_to_exclude=list(candidate.excluded)
            )
            session = onnxruntime.InferenceSession(target, providers=["CPUExecutionProvider"])
            for inputs in decoded(subject.samples.ids):
                session.run(None, inputs)


def _part(words: Sequence[str], data: Path) -> None:
    kind, *numbers = words
    if kind == "naive":
        shared, subject = _prepared(data)
        start = Usage(cpu_seconds(), time.perf_counter())
        run_naive(shared, subject, data, int(numbers[0]))
        print(json.dumps([cpu_seconds() - start.cpu, time.perf_counter() - start.wall]))
        return
    count, images = map(int, numbers)
    shared, subject = _prepared(data, images)
    start = Usage(cpu_seconds(), time.perf_counter())
    names, draw = subject.layer_names, np.random.RandomState(SEED)
    candidates: list[Candidate] = []
    while len(candidates) < count:
        order = [names[at] for at in draw.permutation(len(names))]
        candidates += [Candidate.excluding(names, order[:at]) for at in range(len(names))]
    run_seqto(shared, subject, candidates[:count], share=True)
    print(json.dumps([cpu_seconds() - start.cpu, time.perf_counter() - start.wall]))


def _prepared(data: Path, images: int = 300) -> tuple[Parts, Subject]:
    workspace = Workspace.default()
    shared = parts(data, workspace)
    shared.dataset.evaluation_size = images  # type: ignore[attr-defined]
    return shared, prepare_subject(shared, workspace)


def _spec(shared: Parts):  # type: ignore[no-untyped-def]
    from seqto.graph.load import input_specs

    return input_specs(shared.source.load())[0]


def _timed(run: Callable[[], float]) -> Usage:
    cpu, wall = cpu_seconds(), time.perf_counter()
    not_counted = run()
    return Usage(cpu_seconds() - cpu - not_counted, time.perf_counter() - wall)


def _in_process(data: Path, *words: str) -> Usage:
    """Return what a part takes in a process of its own, as it says itself, and its memory."""
    command = [sys.executable, __file__, "--data", str(data), "--part", *words]
    usage, output = _run(command, Path.cwd())
    cpu, wall = json.loads(output.splitlines()[-1])
    return Usage(cpu, wall, usage.rss_mb)


def _study(data: Path, folder: Path) -> tuple[Usage, int]:
    """Return what the whole command takes, and how many candidates it measures."""
    command = [sys.executable, "-m", "seqto", "-m", "model=local", "search=ladder"]
    command += [f"model.path={(data / 'models' / 'efficientnet-lite0.onnx').resolve()}"]
    command += ["dataset=images", f"dataset.path={(data / 'imagenet-sample').resolve()}"]
    command += ["preprocess=efficientnet_lite"]
    # A cache of its own: all is computed.
    os.environ["SEQTO_CACHE"] = str(folder / "fresh")
    usage, _ = _run(command, folder)
    return usage, 51


def _run(command: Sequence[str], folder: Path) -> tuple[Usage, str]:
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{output}")
    wall = time.perf_counter() - start
    return Usage(used.ru_utime + used.ru_stime, wall, used.ru_maxrss / 1024), output


if __name__ == "__main__":
    main()
