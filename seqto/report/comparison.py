"""Studies side by side: other devices, quantizations or models give other fronts.

Made from the studies' report.json, so that studies of several days or machines can be compared.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqto.figures import LOSS, Figure, Metrics, by_column, figure, is_known, told, whole
from seqto.pareto.front import hypervolume
from seqto.report.commands import overrides
from seqto.types import Candidate

Report = Mapping[str, Any]
"""The content of a report.json."""

LIMITS = (0.02, 0.01)
"""The losses for which the smallest candidate is looked up."""

DEFAULT = "default"
SIZE = "size_bytes"

_ASPECTS = ("model", "device", "quantization", "search", "dataset", "metric")


@dataclass(frozen=True)
class Smallest:
    """The smallest candidate up to a loss."""

    index: int
    size_bytes: float | None
    size_ratio: float


@dataclass(frozen=True)
class Summary:
    """A study among others, called by what tells it from them.

    `hypervolume` is of loss and size in units of its own float model. Its reference, the same for
    all studies, is a model that saves no size and changes every prediction.
    """

    label: str
    run: str
    runtime: str
    candidates: int
    failed: int
    front: int
    hypervolume: float
    smallest: Mapping[float, Smallest | None]
    """By the loss that it may have at most."""


@dataclass(frozen=True)
class Cell:
    """A candidate in one study; `failure` says why it has no figures there."""

    metrics: Metrics
    pareto: bool
    failure: str = ""


@dataclass(frozen=True)
class SharedCandidate:
    """A candidate in all studies that tried it, by their labels."""

    key: str
    candidate: Candidate
    cells: Mapping[str, Cell]

    @property
    def sizes(self) -> set[float]:
        """Its sizes in bytes, wherever they are known."""
        found = (cell.metrics.get(SIZE) for cell in self.cells.values())
        return {size for size in found if size is not None}


def compared() -> list[Figure]:
    """Return the figures by which candidates are compared, sizes as amounts, not as shares."""
    return by_column([whole(each) for each in told()])


@dataclass(frozen=True)
class ComparisonInfo:
    """Studies, and the candidates that at least two of them tried, the smallest first.

    `title` has what the studies have in common; `alone` counts, by label, the candidates that no
    other study tried; `caveats` say where figures are not of the same kind.
    """

    title: str
    studies: tuple[Summary, ...]
    rows: tuple[SharedCandidate, ...]
    alone: Mapping[str, int]
    caveats: tuple[str, ...]

    @property
    def mixed(self) -> bool:
        """Whether shared candidates have more precisions than int8 and float32."""
        return any(row.candidate.is_mixed for row in self.rows)


def compare(reports: Sequence[Report]) -> ComparisonInfo:
    """Return these studies side by side."""
    by_label = dict(zip(labels(reports), reports, strict=True))
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for label, report in by_label.items():
        for candidate in report["candidates"]:
            if candidate["state"] in ("COMPLETE", "FAILED"):
                found.setdefault(candidate["key"], {})[label] = candidate
    shared = [_shared(key, each) for key, each in found.items() if len(each) > 1]
    return ComparisonInfo(
        title=_title(reports),
        studies=tuple(_summary(label, report) for label, report in by_label.items()),
        rows=tuple(sorted(shared, key=_by_size)),
        alone={label: sum(list(each) == [label] for each in found.values()) for label in by_label},
        caveats=tuple(_caveats(reports)),
    )


def labels(reports: Sequence[Report]) -> list[str]:
    """Return a name for each study: what differs among them, and its run if that is not enough.

    A study that has none of the options by which the others differ is called the default.
    """
    found = [
        " · ".join(_aspect(report, name) for name in _differing(reports)) for report in reports
    ]
    words = _own_overrides(reports)
    if not all(words) and any(words):
        words = [each or DEFAULT for each in words]
    for further in (words, [report["study"]["id"][:8] for report in reports]):
        count = Counter(found)
        found = [
            " · ".join(filter(None, (label, more))) if count[label] > 1 or not label else label
            for label, more in zip(found, further, strict=True)
        ]
    return found


def _aspect(report: Report, name: str) -> str:
    return str(report["study"]["tags"].get(f"seqto.{name}", ""))


def _differing(reports: Sequence[Report]) -> list[str]:
    return [name for name in _ASPECTS if len({_aspect(each, name) for each in reports}) > 1]


def _own_overrides(reports: Sequence[Report]) -> list[str]:
    """Return the words of each study's command line that not all studies have.

    Without those that only choose what the labels name already.
    """
    given = [overrides(report["study"]["tags"]) or [] for report in reports]
    common = set.intersection(*map(set, given))
    return [
        " ".join(
            word for word in words if word not in common and word.partition("=")[0] not in _ASPECTS
        )
        for words in given
    ]


def _title(reports: Sequence[Report]) -> str:
    differing = _differing(reports)
    same = [_aspect(reports[0], name) for name in _ASPECTS[:3] if name not in differing]
    return " · ".join(filter(None, same))


def _caveats(reports: Sequence[Report]) -> list[str]:
    differing = _differing(reports)
    found = []
    if "metric" in differing:
        found.append("The losses are not of one kind: the studies differ in their metric.")
    if "dataset" in differing:
        found.append("The losses are not of the same samples: the studies differ in their dataset.")
    return found


def _summary(label: str, report: Report) -> Summary:
    complete = [each for each in report["candidates"] if each["state"] == "COMPLETE"]
    share = figure("size_ratio")
    placed = [
        (each, loss, ratio)
        for each in complete
        if is_known(loss := each["metrics"].get(LOSS))
        and is_known(ratio := share.value(each["metrics"], report["baseline"]))
    ]
    return Summary(
        label=label,
        run=report["study"]["id"],
        runtime=str(report["environment"].get("device.runtime", "")),
        candidates=len(report["candidates"]),
        failed=sum(each["state"] == "FAILED" for each in report["candidates"]),
        front=sum(bool(each["pareto"]) for each in report["candidates"]),
        hypervolume=hypervolume([(loss, ratio) for _, loss, ratio in placed]),
        smallest={limit: _smallest(placed, limit) for limit in LIMITS},
    )


def _smallest(
    placed: Sequence[tuple[Mapping[str, Any], float, float]], limit: float
) -> Smallest | None:
    meeting = [(ratio, loss, each) for each, loss, ratio in placed if loss <= limit]
    if not meeting:
        return None
    ratio, _, found = min(meeting, key=lambda each: each[:2])
    return Smallest(found["index"], found["metrics"].get(SIZE), ratio)


def _shared(key: str, candidates: Mapping[str, Mapping[str, Any]]) -> SharedCandidate:
    first = next(iter(candidates.values()))
    return SharedCandidate(
        key=key,
        candidate=Candidate.of(first["precisions"], first["scheme"] or ""),
        cells={label: _cell(each) for label, each in candidates.items()},
    )


def _cell(candidate: Mapping[str, Any]) -> Cell:
    return Cell(candidate["metrics"], bool(candidate["pareto"]), candidate["failure"] or "")


def _by_size(row: SharedCandidate) -> tuple[float, str]:
    return (min(row.sizes, default=0.0), row.key)
