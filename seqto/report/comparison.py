"""Studies side by side: other devices, quantizations or models give other fronts.

Made from the studies' report.json, so that studies of several days or machines can be compared.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from seqto.figures import (
    LOSS,
    Figure,
    Metrics,
    by_column,
    figure,
    in_bytes,
    in_percent,
    is_known,
    told,
    whole,
)
from seqto.pareto.front import hypervolume
from seqto.report.commands import overrides
from seqto.types import Candidate

Report = Mapping[str, Any]
"""The content of a report.json."""

LIMITS = (0.02, 0.01)
"""The losses for which the smallest candidate is looked up."""

DEFAULT = "default"
SIZE = "size_bytes"

_SAME = 1.01
"""Sizes that differ by less are told as the same."""

_TWO, _CLEARLY = 2, 0.9
"""What is called faster than the next takes at most this share of its time."""

_NAMED = 2
"""How many layers name a candidate."""

_ASPECTS = ("model", "device", "quantization", "search", "dataset", "metric")


@dataclass(frozen=True)
class Smallest:
    """The smallest candidate up to a loss."""

    index: int
    size_bytes: float | None
    size_ratio: float
    latency_ms: float | None = None


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
    model: str = ""
    float_ms: float | None = None
    """The float model's latency."""


@dataclass(frozen=True)
class Cell:
    """A candidate in one study; `failure` says why it has no figures there."""

    metrics: Metrics
    pareto: bool
    failure: str = ""
    number: int | None = None
    """Its number there."""


@dataclass(frozen=True)
class SharedCandidate:
    """A candidate in all studies that tried it, by their labels."""

    key: str
    candidate: Candidate
    cells: Mapping[str, Cell]

    @property
    def name(self) -> str:
        """What it is called: by its layers, or by its numbers where layers say little in a word."""
        groups = self.candidate.by_precision()
        scheme = f", {self.candidate.scheme}" if self.candidate.scheme else ""
        if len(groups) == 1:
            return f"all {next(iter(groups))}{scheme}"
        if self.candidate.is_mixed:
            return f"{self._numbers}{scheme}"
        left = self.candidate.excluded
        more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
        return f"int8 but {', '.join(left[:_NAMED])}{more}{scheme}"

    @property
    def _numbers(self) -> str:
        """Its numbers in the studies: one, or one for each of them in their order."""
        found = [f"#{each.number}" for each in self.cells.values()]
        return found[0] if len(set(found)) == 1 else " / ".join(found)

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

    `title` has what the studies have in common; `verdict` says which did best; `alone` counts, by
    label, the candidates that no other study tried; `caveats` say where figures are not of the
    same kind.
    """

    title: str
    verdict: str
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
    studies = tuple(_summary(label, report) for label, report in by_label.items())
    return ComparisonInfo(
        title=_title(reports),
        verdict=verdict(studies),
        studies=studies,
        rows=tuple(sorted(shared, key=_by_size)),
        alone={label: sum(list(each) == [label] for each in found.values()) for label in by_label},
        caveats=tuple(_caveats(reports)),
    )


def verdict(studies: Sequence[Summary]) -> str:
    """Say in a sentence or two which study has the smallest model, and which the fastest."""
    for limit in LIMITS:
        found = [(each, held) for each in studies if (held := each.smallest[limit])]
        if found:
            return " ".join(filter(None, (_smaller(found, studies, limit), _faster(found))))
    best = max(studies, key=lambda each: each.hypervolume)
    least = in_percent(max(LIMITS), 0)
    return (
        f"No study has a candidate that loses at most {least}; {best.label} has the best front "
        f"(hypervolume {best.hypervolume:.3f})."
    )


def _smaller(
    found: Sequence[tuple[Summary, Smallest]], studies: Sequence[Summary], limit: float
) -> str:
    # Of different models, shares say nothing.
    alike = len({each.model for each, _ in found}) == 1
    known = all(held.size_bytes is not None for _, held in found)

    def size(held: Smallest) -> float:
        return held.size_ratio if alike or not known else float(held.size_bytes or 0.0)

    def told(each: Summary, held: Smallest) -> str:
        share = in_percent(held.size_ratio, 1)
        text = f"{share} of the size" if alike or not known else in_bytes(held.size_bytes)
        return f"{each.label} (#{held.index}, {text})"

    ordered = sorted(found, key=lambda each: size(each[1]))
    first, *others = ordered
    text = f"With at most {in_percent(limit, 0)} loss, {told(*first)}"
    alone = [each.label for each in studies if each.smallest[limit] is None]
    if not others:
        text = f"{text} is the smallest"
    elif size(others[0][1]) <= _SAME * size(first[1]):
        text = f"{text} and {told(*others[0])} are equally small"
    else:
        text = f"{text} is the smallest, before {told(*others[0])}"
    return f"{text}; {', '.join(alone)} {_has(alone)} none." if alone else f"{text}."


def _has(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _faster(found: Sequence[tuple[Summary, Smallest]]) -> str:
    """Say which of these is clearly the fastest, if all have a latency."""
    times = [(held.latency_ms, each.label) for each, held in found if is_known(held.latency_ms)]
    if len(times) < len(found) or len(times) < _TWO:
        return ""
    (best, name), (second, _), *_ = sorted(times)
    if best > _CLEARLY * second:
        return ""
    return f"{name}'s is the fastest: {figure('latency_ms').text(best)}."


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
        model=_aspect(report, "model"),
        float_ms=report["baseline"].get("latency_ms"),
    )


def _smallest(
    placed: Sequence[tuple[Mapping[str, Any], float, float]], limit: float
) -> Smallest | None:
    meeting = [(ratio, loss, each) for each, loss, ratio in placed if loss <= limit]
    if not meeting:
        return None
    ratio, _, found = min(meeting, key=lambda each: each[:2])
    metrics = found["metrics"]
    return Smallest(found["index"], metrics.get(SIZE), ratio, metrics.get("latency_ms"))


def _shared(key: str, candidates: Mapping[str, Mapping[str, Any]]) -> SharedCandidate:
    first = next(iter(candidates.values()))
    return SharedCandidate(
        key=key,
        candidate=Candidate.of(first["precisions"], first["scheme"] or ""),
        cells={label: _cell(each) for label, each in candidates.items()},
    )


def _cell(candidate: Mapping[str, Any]) -> Cell:
    failure = candidate["failure"] or ""
    return Cell(candidate["metrics"], bool(candidate["pareto"]), failure, candidate["index"])


def _by_size(row: SharedCandidate) -> tuple[float, str]:
    return (min(row.sizes, default=0.0), row.key)
