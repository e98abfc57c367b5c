"""The cost and the front of the default study, as users type it, of one or of two versions.

    python scripts/benchmark_study.py [--before CHECKOUT] [--rounds 3] [--model FILE --pixels 260]

Each round runs the float model once for each evaluation photo (bare inference: loaded once, one
thread, a photo of noise), then the whole command of each version with an empty cache and a new
store. Sizes, what was evaluated and what loading takes are the last round's, memory is the most. A
checkout of another version brings its own .venv (`scripts/environment` makes it). CPU seconds are
those of all processes and threads, memory the peak of all processes together, with what they share
counted once. Without --model it is EfficientNet-Lite0 out of --data, as the photos are. Words
behind -- are added to the command line.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
from benchmark_front import size_at
from memory_peak import Peak

from seqto.types import Candidate, Trial, TrialState

OWN = Path(__file__).parents[1]
PHOTOS = 300
SHORT_SIDE = 8 / 7
"""By how much photos are resized before they are cropped."""


@dataclass(frozen=True)
class Run:
    """What one study took, and what it found."""

    cpu: float
    wall: float
    peak: int
    report: Mapping[str, object]

    @property
    def trials(self) -> list[Trial]:
        """The candidates that were measured on all photos."""
        return [
            Trial("", each["index"], Candidate(()), TrialState.COMPLETE, each["metrics"])
            for each in self.report["candidates"]  # type: ignore[attr-defined]
            if each["state"] == "COMPLETE"
        ]

    def most(self, figure: str) -> float:
        """Return the most that a candidate has of a figure, 0 if none has it."""
        return max((each.metrics.get(figure, 0.0) for each in self.trials), default=0.0)


def main() -> None:
    """Print a line for each version."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--before", type=Path, help="a checkout of another version")
    parser.add_argument("--before-words", default="", help="words for that version only")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--pixels", type=int, default=224, help="of the model's input")
    parser.add_argument("words", nargs="*", help="more words for the command line")
    options = parser.parse_args()
    data = options.data.resolve()
    model = (options.model or data / "models" / "efficientnet-lite0.onnx").resolve()
    words = [
        *(
            "-m",
            "model=local",
            f"model.path={model}",
            "dataset=images",
            "preprocess=efficientnet_lite",
        ),
        f"dataset.path={data / 'imagenet-sample'}",
        f"preprocess.crop={options.pixels}",
        f"preprocess.resize={round(options.pixels * SHORT_SIDE)}",
        *options.words,
    ]
    versions = {"before": options.before.resolve()} if options.before else {}
    versions["now"] = OWN
    bare: list[float] = []
    runs: dict[str, list[Run]] = {name: [] for name in versions}
    for _ in range(options.rounds):
        bare.append(float_seconds(model, options.pixels))
        for name, checkout in versions.items():
            more = options.before_words.split() if name == "before" else []
            runs[name].append(study(checkout, [*words, *more]))
    print(
        f"the float model's {PHOTOS} photos: {written(bare, '.2f')} CPU s; medians, then all\n\n"
        "| | CPU s | times the float model's | wall s | peak memory | hypervolume | size at 2 % "
        "| size at 1 % | evaluated | load, the most |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    for name, each in runs.items():
        print(line(name, each, statistics.median(bare)))


def float_seconds(model: Path, pixels: int) -> float:
    """Return the CPU seconds of running the float model, and nothing else."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    photo = np.random.RandomState(0).randn(1, 3, pixels, pixels).astype(np.float32)
    session.run(None, {name: photo})
    start = time.process_time()
    for _ in range(PHOTOS):
        session.run(None, {name: photo})
    return time.process_time() - start


def study(checkout: Path, words: Sequence[str]) -> Run:
    """Run the command in an empty folder with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(checkout / ".venv" / "bin" / "python"), "-m", "seqto", *words]
        environment = {**os.environ, "SEQTO_CACHE": str(Path(folder) / "cache")}
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        peak = Peak(process.pid)
        output, _ = process.communicate()
        _, together = peak.stop()
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if process.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{output}")
        (report,) = Path(folder).glob("multirun/*/*/report.json")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Run(cpu, wall, together, json.loads(report.read_text()))


def line(name: str, runs: Sequence[Run], bare: float) -> str:
    """Return a version's line of the table."""
    last = runs[-1]
    load = f"{last.most('load_ms'):.0f} ms, {last.most('load_peak_bytes') / 1e6:.0f} MB"
    cells = [
        name,
        written([each.cpu for each in runs], ".1f"),
        f"{statistics.median(each.cpu for each in runs) / bare:.1f}",
        written([each.wall for each in runs], ".0f"),
        f"{1024 * max(each.peak for each in runs) / 1e9:.2f} GB",
        written([float(str(each.report["hypervolume"])) for each in runs], ".3f"),
        size_at(last.trials, 0.02),
        size_at(last.trials, 0.01),
        str(len(last.trials)),
        load,
    ]
    return f"| {' | '.join(cells)} |"


def written(values: Sequence[float], form: str) -> str:
    """Write the median of the values, and all of them."""
    every = ", ".join(format(each, form) for each in values)
    return f"{statistics.median(values):{form}} ({every})"


if __name__ == "__main__":
    main()
