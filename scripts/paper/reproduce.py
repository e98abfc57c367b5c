"""Reproduce the paper's Tables 1 and 2, next to the paper's own figures.

    scripts/reproduce_paper photos                       # four models, static and dynamic, CPU
    scripts/reproduce_paper photos --device mali         # and the GPU columns
    scripts/reproduce_paper photos -- search.step=4      # every fourth candidate only
    scripts/reproduce_paper --published-data             # only choose, from the papers' candidates

The folder has ImageNet validation images: 50 to calibrate on, the first 30 of them to analyse the
layers with, as the paper's tool does, and 300 others to evaluate on. Each study climbs the paper's
whole ladder, with one more layer in float at a time, in two orders: the most hurt layer first, as
the paper's text says (`here`), and as its published tool does it (`published order`), which takes a
high signal-to-noise ratio for a high error and so begins with the layer that is hurt least. The
paper's figures are those of its tool. All sixteen studies take hours, and some GB for the models
of their fronts; `--orders text` leaves out one half. If it is stopped, the same command continues.
The tables are printed, and written to tables.md and tables.csv.

As in the paper, the selected model is the Pareto-optimal one nearest the ideal, by the paper's
dissimilarity and the rule of its published tool (`recommend=paper`). Dissimilarity is not the share
of changed predictions, so the tables also give the top-1 disagreement of the same models. Compare
only trends: the paper drew 300 new images for each candidate; here all candidates are measured on
the same images, with BatchNormalization folded, and with the Softmax at the end of
EfficientNet-Lite4 in float.
"""

import argparse
import csv
import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

PAPER = Path(__file__).with_name("paper_tables.csv")
PUBLISHED = Path(__file__).parents[3] / "shared" / "reference"
"""The papers' published candidates, which are not part of seqto: see published.py."""
TITLES = {
    "mobilenetv2": "MobileNetV2",
    "shufflenetv2": "ShuffleNetV2",
    "efficientnet_lite4": "EfficientNet-Lite4",
    "resnet50": "ResNet50",
}
QUANTIZATIONS = ("static", "dynamic")
AS_THE_PAPER = (
    "search=ladder",
    "sensitivity=paper",
    "metric=paper",
    "recommend=paper",
    "study.register_models=false",
    "dataset.calibration_size=50",
    "sensitivity.samples=30",
)
# The options of the paper's tool for ONNX Runtime: one scale per tensor, otherwise defaults. What
# seqto does better than ONNX Runtime by itself is turned off.
OPTIONS = {
    "static": (
        "quantization.per_channel=false",
        "quantization.activation_type=int8",
        "quantization.quantize_bias=true",
        "quantization.feedback=false",
        "quantization.keep_float=false",
        "quantization.unweighted=int8",
    ),
    "dynamic": ("quantization.feedback=false",),
}
ORDERS = {"text": "here", "published": "published order"}
"""What the figures of each order are called: as the paper's text says, as its tool does it."""
IN_PAPER = "paper"
MEBIBYTE = 2**20


@dataclass(frozen=True)
class Figures:
    """A row of the paper's tables: sizes in MB (of 2**20 bytes), dissimilarities in %."""

    source: str
    model: str
    device: str
    quantization: str
    original_mb: float
    full_mb: float
    full_dissimilarity_pct: float
    selected_mb: float
    selected_dissimilarity_pct: float

    @property
    def dissimilarity_reduction_pct(self) -> float:
        """How much of the fully quantized model's dissimilarity the selected one avoids."""
        full = self.full_dissimilarity_pct
        return 100 * (full - self.selected_dissimilarity_pct) / full if full else 0.0

    @property
    def size_reduction_preserved_pct(self) -> float:
        """How much of full quantization's savings the selected model keeps."""
        saved = self.original_mb - self.full_mb
        return 100 * (self.original_mb - self.selected_mb) / saved if saved else 0.0


@dataclass(frozen=True)
class Plan:
    """What to reproduce, and where."""

    images: Path
    folder: Path
    models: tuple[str, ...]
    quantizations: tuple[str, ...]
    devices: Mapping[str, str]
    """The config's name of each device, by the paper's name."""
    orders: tuple[str, ...]
    overrides: tuple[str, ...]

    @property
    def columns(self) -> Iterable[tuple[str, str, str]]:
        """The device, quantization and order of each group of studies."""
        return itertools.product(self.devices, self.quantizations, self.orders)

    def study(self, device: str, quantization: str, order: str) -> list[str]:
        """Return the overrides of these studies, without the model."""
        published = ["sensitivity.published=true"] if order == "published" else []
        return [
            f"device={self.devices[device]}",
            f"quantization={quantization}",
            f"dataset.path={json.dumps(str(self.images))}",
            *AS_THE_PAPER,
            *OPTIONS[quantization],
            *published,
            *self.overrides,
        ]

    def studies_folder(self, device: str, quantization: str, order: str) -> Path:
        """Return the folder of these studies' reports."""
        return self.folder / "studies" / f"{self.devices[device]}-{quantization}-{order}"


def main() -> None:
    """Run or resume the studies, then write the tables; exit with 1 if figures are missing."""
    plan = parse(sys.argv[1:])
    if isinstance(plan, Path):
        sys.exit(not _same_choices(plan))
    plan.folder.mkdir(parents=True, exist_ok=True)
    found = list(read_paper(PAPER))
    missing = []
    for column in plan.columns:
        run_studies(plan, *column)
        reports = read_reports(plan.studies_folder(*column))
        for model in plan.models:
            if model in reports:
                found += measured(plan, *column, model, reports[model])
            else:
                missing.append(f"{model} {' '.join(column)}")
        write_tables(plan, found)
    print(f"\n{(plan.folder / 'tables.md').read_text()}")
    print(f"tables: {plan.folder / 'tables.md'}, {plan.folder / 'tables.csv'}")
    if missing:
        sys.exit(f"reproduce_paper: no figures of {', '.join(missing)}; see above.")


def _same_choices(folder: Path) -> bool:
    """Print what is chosen of the published candidates; return whether the papers chose so."""
    from published import Point, compare

    printed = {
        (each.model, each.device, each.quantization): Point(
            0, each.selected_dissimilarity_pct, each.selected_mb
        )
        for each in read_paper(PAPER)
    }
    return compare(folder, printed)


def parse(arguments: Sequence[str]) -> Plan | Path:
    """Return what the command line asks for; a path is the folder of the published data."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("images", type=Path, nargs="?", help="folder of ImageNet validation images")
    parser.add_argument(
        "--published-data",
        type=Path,
        nargs="?",
        const=PUBLISHED,
        metavar="FOLDER",
        help="choose from the papers' published candidates, without images and models; by default "
        "those in ../shared/reference beside the checkout",
    )
    parser.add_argument("--device", help="device=... for the GPU columns")
    parser.add_argument("--models", default=",".join(TITLES), help="default: %(default)s")
    parser.add_argument(
        "--quantizations", default=",".join(QUANTIZATIONS), help="default: %(default)s"
    )
    parser.add_argument("--orders", default=",".join(ORDERS), help="default: %(default)s")
    parser.add_argument("--out", type=Path, default=Path("paper"), help="default: %(default)s")
    parser.usage = f"{parser.format_usage().strip()[7:]} [-- overrides of seqto]"
    # Not left to argparse, which cannot take positional arguments on both sides of options.
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:end])
    if options.published_data is not None:
        return Path(options.published_data)
    models = _choices(parser, "--models", options.models, tuple(TITLES))
    quantizations = _choices(parser, "--quantizations", options.quantizations, QUANTIZATIONS)
    orders = _choices(parser, "--orders", options.orders, tuple(ORDERS))
    if options.images is None:
        parser.error("give a folder of images, or --published-data")
    if not options.images.is_dir():
        parser.error(f"{options.images} is no folder of images")
    devices = {"CPU": "cpu"} | ({"GPU": options.device} if options.device else {})
    return Plan(
        images=options.images.resolve(),
        folder=options.out.resolve(),
        models=models,
        quantizations=quantizations,
        devices=devices,
        orders=orders,
        overrides=tuple(arguments[end + 1 :]),
    )


def _choices(
    parser: argparse.ArgumentParser, option: str, given: str, known: Sequence[str]
) -> tuple[str, ...]:
    chosen = tuple(given.split(","))
    for each in chosen:
        if each not in known:
            parser.error(f"{option} {each} is none of the paper's: {', '.join(known)}")
    return chosen


def run_studies(plan: Plan, device: str, quantization: str, order: str) -> None:
    """Run or resume the studies of all models; a failed study leaves no report."""
    folder = plan.studies_folder(device, quantization, order)
    # Studies are resumed from MLflow, so a report found here later is from this run.
    for report in folder.rglob("report.json"):
        report.unlink()
    command = [sys.executable, "-m", "seqto", f"model={','.join(plan.models)}"]
    words = plan.study(device, quantization, order)
    settings = [*words, f"hydra.sweep.dir={json.dumps(str(folder))}"]
    subprocess.run([*command, *settings, "-m"], cwd=plan.folder, check=False)


def read_reports(folder: Path) -> dict[str, Any]:
    """Return the reports of finished studies by model."""
    reports = [json.loads(path.read_text()) for path in folder.rglob("report.json")]
    return {report["study"]["tags"]["seqto.model"]: report for report in reports}


def measured(
    plan: Plan,
    device: str,
    quantization: str,
    order: str,
    model: str,
    report: Mapping[str, Any],
) -> list[Figures]:
    """Return a study's figures: by the paper's dissimilarity, and by top-1 disagreement."""
    full = report["candidates"][0]
    chosen = report["recommended"]["balanced"]
    selected = next(each for each in report["candidates"] if each["index"] == chosen)
    figures = Figures(
        source=ORDERS[order],
        model=TITLES[model],
        device=device,
        quantization=quantization,
        original_mb=report["baseline"]["size_bytes"] / MEBIBYTE,
        full_mb=full["metrics"]["size_bytes"] / MEBIBYTE,
        full_dissimilarity_pct=100 * full["metrics"]["accuracy_loss"],
        selected_mb=selected["metrics"]["size_bytes"] / MEBIBYTE,
        selected_dissimilarity_pct=100 * selected["metrics"]["accuracy_loss"],
    )
    config = [f"model={model}", *plan.study(device, quantization, order)]
    one, two = top1_losses(plan.folder, report["study"]["key"], config, [full, selected])
    return [
        figures,
        replace(
            figures,
            source=_top1(ORDERS[order]),
            full_dissimilarity_pct=100 * one,
            selected_dissimilarity_pct=100 * two,
        ),
    ]


def top1_losses(
    folder: Path, study: str, overrides: Sequence[str], candidates: Sequence[Mapping[str, Any]]
) -> list[float]:
    """Return how often these candidates' top prediction differs from the float model's."""
    store = folder / "top1.json"
    known = json.loads(store.read_text()) if store.exists() else {}
    keys = [f"{study} {candidate['key']}" for candidate in candidates]
    if not set(keys) <= set(known):
        losses = _evaluated(overrides, [candidate["precisions"] for candidate in candidates])
        known |= dict(zip(keys, losses, strict=True))
        store.write_text(json.dumps(known, indent=2))
    return [known[key] for key in keys]


def _evaluated(overrides: Sequence[str], candidates: Iterable[Mapping[str, str]]) -> list[float]:
    """Return the top-1 disagreement of each candidate on the study's images."""
    from hydra import compose, initialize_config_dir

    from seqto.config.build import build_context
    from seqto.config.compose import register_sweeper
    from seqto.config.paths import CONF
    from seqto.measuring.outputs import outputs_of
    from seqto.metrics.agreement import Top1Agreement
    from seqto.types import Candidate

    register_sweeper()
    with initialize_config_dir(str(CONF), version_base="1.3"):
        context = build_context(compose("config", list(overrides)))
    parts, subject = context.parts, context.subject
    losses = []
    for precisions in candidates:
        candidate = Candidate.of(precisions)
        model = parts.quantizer.quantize(subject.model, subject.ranges, candidate)
        outputs = outputs_of(model, subject.samples, subject.batch, parts.device, subject.observed)
        losses.append(float(Top1Agreement().losses(subject.reference, outputs).mean()))
    return losses


def read_paper(path: Path) -> list[Figures]:
    """Return the paper's figures."""
    with path.open(newline="") as file:
        return [
            Figures(
                source=IN_PAPER,
                model=row["model"],
                device=row["device"],
                quantization=row["quantization"],
                original_mb=float(row["original_mb"]),
                full_mb=float(row["full_mb"]),
                full_dissimilarity_pct=float(row["full_dissimilarity_pct"]),
                selected_mb=float(row["selected_mb"]),
                selected_dissimilarity_pct=float(row["selected_dissimilarity_pct"]),
            )
            for row in csv.DictReader(file)
        ]


def _top1(source: str) -> str:
    """Return what the figures by top-1 disagreement are called."""
    return f"{source}, top-1"


def write_tables(plan: Plan, found: Sequence[Figures]) -> None:
    """Write the figures so far as Markdown and as CSV."""
    ours = [ORDERS[order] for order in plan.orders]
    accuracies = [name for source in ours for name in (source, _top1(source))]
    text = "\n".join(
        [
            "# Table 1: dissimilarity from the float model, %\n",
            *table(plan, found, (IN_PAPER, *accuracies), ACCURACY),
            "\n`here` excludes the most hurt layer first, as the paper's text says, and",
            "`published order` the least hurt first, as its tool does it. Both are the paper's",
            "measure; `top-1` is how often the top prediction of the same models differs from the",
            "float model's. `selected` is the Pareto-optimal candidate nearest the ideal,",
            "`reduction` what it avoids of the full dissimilarity.\n",
            "# Table 2: size, MB\n",
            *table(plan, found, (IN_PAPER, *ours), SIZE),
            "\n`preserved` is the share of what full quantization saves. 1 MB is 2^20 bytes.\n",
        ]
    )
    (plan.folder / "tables.md").write_text(text)
    columns = ["source", "model", "device", "quantization", "original_mb", *ACCURACY, *SIZE]
    with (plan.folder / "tables.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for each in found:
            values = (getattr(each, name) for name in columns)
            writer.writerow([f"{each:.2f}" if isinstance(each, float) else each for each in values])


ACCURACY = {
    "full_dissimilarity_pct": "full",
    "selected_dissimilarity_pct": "selected",
    "dissimilarity_reduction_pct": "reduction",
}
SIZE = {"full_mb": "full", "selected_mb": "selected", "size_reduction_preserved_pct": "preserved"}


def table(
    plan: Plan, found: Sequence[Figures], sources: Sequence[str], columns: Mapping[str, str]
) -> list[str]:
    """Return the lines of a table: models and quantizations down, devices across."""
    known = {(each.source, each.model, each.device, each.quantization): each for each in found}
    sized = "full_mb" in columns
    heads = [f"{device} {name}" for device in plan.devices for name in columns.values()]
    first = ["model", "quantization", "figures", *(["original"] if sized else [])]
    lines = [_line([*first, *heads]), _line(["---"] * len([*first, *heads]))]
    for model in plan.models:
        for quantization in plan.quantizations:
            for source in sources:
                cells = [TITLES[model], quantization, source]
                keys = [(source, TITLES[model], each, quantization) for each in plan.devices]
                if sized:
                    cells.append(_shown(known.get(keys[0]), "original_mb"))
                cells += [_shown(known.get(key), name) for key in keys for name in columns]
                lines.append(_line(cells))
    return lines


def _shown(figures: Figures | None, name: str) -> str:
    return "-" if figures is None else f"{getattr(figures, name):.2f}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
