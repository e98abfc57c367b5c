"""Predicted against measured latency on EfficientNet-Lite0, and the front of loss and latency.

    python scripts/benchmark_latency.py [--data ../shared/data] [--precise] [--predictions-only]

Random mixes of int8 and float32 that nothing was fitted to are timed in turns with the float and
the int8 model, so that what else runs on the machine disturbs all of them alike, and compared with
what was predicted before they were built. Then a study trades off loss and latency, and its front
is compared with plain float, plain int8 and the random mixes: all are timed in turns once more.

A machine may be faster or slower by then. Predictions are shares of the float model's latency, so a
study compares them with what is measured in units of the float model's latency in the same turns,
and so does this.

`--precise` uses the integer kernels that x86 CPUs without VNNI need, which are slower. Where ONNX
Runtime has OpenVINO's provider, as in an environment with onnxruntime-openvino in place of
onnxruntime, all is done with it as well.
"""

import argparse
import resource
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from seqto.datasets.images import ImageFolder
from seqto.datasets.preprocess import ImagePreprocess
from seqto.devices.onnxruntime import OnnxRuntimeDevice
from seqto.measuring.evaluate import measure
from seqto.measuring.latency_model import find_latency_model
from seqto.measuring.parts import Parts
from seqto.measuring.pool import Pool
from seqto.measuring.subject import Subject, prepare_subject
from seqto.measuring.turns import time_in_turns
from seqto.models.local import LocalModel
from seqto.pareto.front import hypervolume
from seqto.quantizers.static import StaticQuantizer
from seqto.search.budget import BudgetSearch
from seqto.sensitivity.divergence import DivergenceSensitivity
from seqto.study.plan import Study
from seqto.study.run import run_study
from seqto.study.settings import StudySettings
from seqto.tasks.classification import Classification
from seqto.tracking.memory import MemoryTracker
from seqto.types import FLOAT32, INT8, Candidate, LatencyModel, Model
from seqto.workspace import Workspace

OPENVINO = "OpenVINOExecutionProvider"
SEED = 7
"""Of the random mixes; what predictions are fitted to is drawn from another one."""


def main() -> None:
    """Print both tables for each device that there is."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--mixes", type=int, default=10, help="random mixes")
    parser.add_argument("--images", type=int, default=300, help="photos to evaluate on")
    parser.add_argument("--precise", action="store_true", help="kernels for CPUs without VNNI")
    parser.add_argument("--predictions-only", action="store_true", help="without the study")
    options = parser.parse_args()
    kernels = "on" if options.precise else "auto"
    devices = [OnnxRuntimeDevice(precise_kernels=kernels)]
    if OPENVINO in onnxruntime.get_available_providers():
        given = {"device_type": "CPU", "num_of_threads": "1"}
        devices.append(OnnxRuntimeDevice(name="openvino", provider=OPENVINO, options=given))
    else:
        print(f"{OPENVINO} is not in this onnxruntime: only the CPU's own is measured.")
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        for device in devices:
            shared = parts(options.data, workspace, options.images, device)
            subject = prepare_subject(shared, workspace)
            mixes = random_mixes(subject, options.mixes)
            compare(shared, subject, mixes)
            if not options.predictions_only:
                front(shared, subject, workspace, mixes)


def compare(shared: Parts, subject: Subject, mixes: Sequence[Candidate]) -> None:
    """Print what is predicted and measured on one device."""
    facts = shared.device.describe()
    print(f"\n## {shared.device.name}: {facts['runtime']}, {facts['cpu']}, {facts['kernels']}\n")
    start = cpu_seconds()
    latency = find_latency_model(shared, subject)
    print(f"profile, eight mixes and fit: {cpu_seconds() - start:.1f} CPU s")
    if latency is None:
        print("latency cannot be predicted here")
    else:
        print(f"left out one by one, the eight mixes are off by {latency.error:.1%}\n")
        predicted(shared, subject, latency, mixes)


def predicted(
    shared: Parts, subject: Subject, latency: LatencyModel, mixes: Sequence[Candidate]
) -> None:
    """Print what was predicted of each mix beside what it takes."""
    uniform = [Candidate.of(dict.fromkeys(subject.layer_names, each)) for each in (FLOAT32, INT8)]
    candidates = [*uniform, *mixes]
    measured = timed(shared, subject, [model_of(shared, subject, each) for each in candidates])
    # As a study does with what it measures.
    now = latency.anchored(measured[0])
    print("| candidate | int8 layers | measured ms | predicted | layers | conversions | off by |")
    print("|---|---|---|---|---|---|---|")
    off, plain, absolute = [], [], []
    for at, (candidate, ms) in enumerate(zip(candidates, measured, strict=True)):
        spent = now.spent(dict(candidate.precisions))
        name = ("float", "int8")[at] if at < 2 else f"mix {at - 1}"
        share = spent.total_ms / ms - 1
        if at >= 2:
            off.append(abs(share))
            plain.append(abs(spent.layers_ms / ms - 1))
            absolute.append(abs(latency.predict(candidate) / ms - 1))
        integers = len(candidate.precisions) - len(candidate.excluded)
        print(
            f"| {name} | {integers} | {ms:.2f} | {spent.total_ms:.2f} | {spent.layers_ms:.2f} | "
            f"{spent.conversions_ms:.2f} | {share:+.1%} |"
        )
    print(
        f"\n{len(mixes)} unseen mixes: mean error {np.mean(off):.1%}, the worst {max(off):.1%}; "
        f"by the layers alone {np.mean(plain):.1%}\n"
        f"in the milliseconds of the time of the fit: mean error {np.mean(absolute):.1%}, "
        f"the worst {max(absolute):.1%}"
    )


def front(
    shared: Parts, subject: Subject, workspace: Workspace, mixes: Sequence[Candidate]
) -> None:
    """Print the front of a study of loss and latency, beside what nobody searched for."""
    start = cpu_seconds()
    settings = StudySettings(
        objectives=["accuracy_loss", "latency_ms"], batch=1, register_models=False
    )
    study = Study(shared, subject, settings, MemoryTracker(), workspace)
    pool = Pool(shared, subject, study.tracker)
    outcome = run_study(study, pool.launch, lambda *_: None, lambda *_: [], "")
    spent = cpu_seconds() - start
    found = [each for each in outcome.front.members if not each.candidate.is_float]
    aliases = {each.index: ", ".join(outcome.front.aliases(each)) for each in found}
    rows = {f"front #{each.index} {aliases[each.index]}".rstrip(): each.candidate for each in found}
    rows["plain float"] = Candidate.of(dict.fromkeys(subject.layer_names, FLOAT32))
    rows["plain int8"] = Candidate.of(dict.fromkeys(subject.layer_names, INT8))
    rows |= {f"mix {at + 1}": each for at, each in enumerate(mixes)}
    models = [model_of(shared, subject, each) for each in rows.values()]
    losses = [measure(each, subject, shared.device).metrics["accuracy_loss"] for each in models]
    times = timed(shared, subject, models)
    floating = times[list(rows).index("plain float")]
    print(f"\nloss x latency, {len(outcome.record.trials)} evaluated, {spent:.0f} CPU s\n")
    print("| candidate | int8 layers | loss | ms | of float |")
    print("|---|---|---|---|---|")
    for (name, candidate), loss, ms in zip(rows.items(), losses, times, strict=True):
        integers = len(candidate.precisions) - len(candidate.excluded)
        print(f"| {name} | {integers} | {loss:.2%} | {ms:.2f} | {ms / floating:.2f} |")
    points = [(loss, ms / floating) for loss, ms in zip(losses, times, strict=True)]
    searched = [each for name, each in zip(rows, points, strict=True) if name.startswith("front")]
    drawn = [each for name, each in zip(rows, points, strict=True) if name.startswith("mix")]
    plain = [each for name, each in zip(rows, points, strict=True) if name == "plain int8"]
    print(
        f"\nhypervolume: front {hypervolume(searched):.3f}, plain int8 {hypervolume(plain):.3f}, "
        f"random mixes {hypervolume(drawn):.3f}"
    )


def random_mixes(subject: Subject, count: int) -> list[Candidate]:
    """Return mixes with random shares of int8, in shorter and longer runs of layers."""
    draw = np.random.RandomState(SEED)
    found = []
    for _ in range(count):
        share, run, now = draw.rand(), draw.choice([1, 2, 4, 8]), INT8
        chosen: dict[str, str] = {}
        for layer in subject.layers:
            if draw.rand() < 1 / run:
                now = INT8 if draw.rand() < share else FLOAT32
            # Layers that run as one have the precision of the first.
            chosen.setdefault(layer.unit, now)
        found.append(Candidate.of({each.name: chosen[each.unit] for each in subject.layers}))
    return found


def model_of(shared: Parts, subject: Subject, candidate: Candidate) -> Model:
    """Return a candidate's model."""
    return shared.quantizer.quantize(subject.model, subject.ranges, candidate)


def timed(shared: Parts, subject: Subject, models: Sequence[Model]) -> list[float]:
    """Return the milliseconds of each model, timed in turns."""
    latencies, _ = time_in_turns(models, subject.model, subject.example, shared.device)
    return [each.median_ms for each in latencies]


def parts(data: Path, workspace: Workspace, images: int, device: OnnxRuntimeDevice) -> Parts:
    """Return the parts of the study."""
    preprocess = ImagePreprocess(
        resize=256, crop=224, interpolation="bicubic", scale=1.0, mean=[127] * 3, std=[128] * 3
    )
    return Parts(
        source=LocalModel(path=str(data / "models" / "efficientnet-lite0.onnx")),
        dataset=ImageFolder(
            path=str(data / "imagenet-sample"),
            preprocess=preprocess,
            workspace=workspace,
            evaluation_size=images,
        ),
        quantizer=StaticQuantizer(),
        sensitivity=DivergenceSensitivity(precisions=[INT8, FLOAT32]),
        search=BudgetSearch(),
        device=device,
        task=Classification(),
    )


def cpu_seconds() -> float:
    """Return the CPU time of this process and its children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


if __name__ == "__main__":
    main()
