"""Studies made up for tests: by hand, or like those that a ladder or a random search records."""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from seqto.types import Candidate, Layer, LayerScore, StudyRecord, Table, Trial, TrialState

TAGS = {
    "seqto.kind": "study",
    "seqto.model": "efficientnet-lite0",
    "seqto.device": "cpu",
    "seqto.quantization": "static",
}
FLOAT_BYTES = 18_600_000.0


def trial(
    index: int,
    *,
    excluded: Iterable[str] = (),
    layers: Iterable[str] = ("a", "b", "c"),
    state: TrialState = TrialState.COMPLETE,
    duplicate_of: int | None = None,
    failure: str = "",
    scheme: str = "",
    **metrics: float,
) -> Trial:
    """Return a trial with these metrics."""
    candidate = replace(Candidate.excluding(layers, excluded), scheme=scheme)
    return Trial(
        id=f"run-{index}",
        index=index,
        candidate=candidate,
        state=state,
        metrics=metrics,
        model_sha256="ab" * 32,
        duplicate_of=duplicate_of,
        failure=failure,
    )


def study(
    trials: Sequence[Trial],
    *,
    baseline: Mapping[str, float] | None = None,
    scores: Sequence[LayerScore] = (),
    tags: Mapping[str, str] = TAGS,
    tables: Mapping[str, Table] | None = None,
) -> StudyRecord:
    """Return the record of a study with these trials."""
    return StudyRecord(
        id="study-1",
        key="0123456789abcdef",
        tags=tags,
        baseline={"size_bytes": 1000.0} if baseline is None else baseline,
        scores=tuple(scores),
        trials=tuple(trials),
        tables=tables or {},
    )


def layer_names(count: int) -> list[str]:
    """Return names as exporters give them, some long."""
    parts = ["depthwise/Conv", "project/Conv", "expand/pointwise/Conv_quant_input"]
    inner = [f"/model/features/blocks.{at // 3}/{parts[at % 3]}" for at in range(count - 2)]
    return ["/conv_stem/Conv", *inner, "/_fc/Gemm"][:count]


def layer_scores(count: int, seed: int = 0) -> list[LayerScore]:
    """Return scores as the paper's sensitivity gives them, the most hurt first."""
    draw = random.Random(seed)
    rows = []
    for depth, name in enumerate(layer_names(count)):
        qdq = min(1.0, draw.expovariate(4.0))
        xmodel = min(1.0, depth / count * 0.8 + draw.random() * 0.2)
        details = {
            "qdq_err": qdq,
            "xmodel_err": xmodel,
            "qdq_sqnr_db": 60 - 40 * qdq,
            "xmodel_sqnr_db": 40 - 30 * xmodel,
        }
        layer = Layer(name, "Gemm" if "Gemm" in name else "Conv", 1000 * (depth + 1))
        rows.append(LayerScore(layer, qdq + xmodel, details))
    return sorted(rows, key=lambda row: -row.score)


def ladder_study(layers: int = 27, seed: int = 0, latency: bool = True) -> StudyRecord:
    """Return a study that excludes one more layer at each step, the most hurt first."""
    scores = layer_scores(layers, seed)
    order = [row.layer.name for row in scores]
    excluded = [order[:count] for count in range(layers + 1)]
    return _measured(scores, excluded, seed, latency)


def random_study(layers: int = 60, candidates: int = 120, seed: int = 0) -> StudyRecord:
    """Return a study of random candidates, many with the same number of excluded layers."""
    scores = layer_scores(layers, seed)
    names = [row.layer.name for row in scores]
    draw = random.Random(seed + 1)
    excluded = [
        [name for name in names if draw.random() < share]
        for share in (draw.random() ** 2 for _ in range(candidates))
    ]
    return _measured(scores, [[], *excluded], seed, latency=True)


def _measured(
    scores: Sequence[LayerScore], excluded: Sequence[Sequence[str]], seed: int, latency: bool
) -> StudyRecord:
    draw = random.Random(seed + 2)
    names = [row.layer.name for row in scores]
    harm = {row.layer.name: row.score**2 for row in scores}
    weight = {row.layer.name: row.layer.weight_bytes for row in scores}
    trials = []
    for index, left in enumerate(excluded):
        kept = sum(weight[name] for name in left) / sum(weight.values())
        hurt = 1 - sum(harm[name] for name in left) / sum(harm.values())
        loss = round(500 * (0.08 * hurt**1.5 + 0.004 * draw.random() * math.sqrt(hurt))) / 500
        metrics = {
            "accuracy_loss": loss,
            "size_bytes": float(round(FLOAT_BYTES * (0.27 + 0.73 * kept))),
            "size_ratio": 0.27 + 0.73 * kept,
            "accuracy": 0.868 - 0.8 * loss,
        }
        if latency:
            metrics["latency_ms"] = 7.1 + 4.9 * len(left) / len(names) + draw.gauss(0, 0.15)
        trials.append(trial(index, layers=names, excluded=left, **metrics))
    baseline = {"size_bytes": FLOAT_BYTES, "accuracy": 0.868}
    return study(
        trials, baseline=baseline | ({"latency_ms": 12.0} if latency else {}), scores=scores
    )


def hand_study() -> StudyRecord:
    """Return a small study whose front has three members, and one candidate that is not on it."""
    trials = [
        trial(0, accuracy_loss=0.10, size_bytes=300_000.0, size_ratio=0.3),
        trial(7, excluded=["a"], accuracy_loss=0.011, size_bytes=400_000.0, size_ratio=0.4),
        trial(8, excluded=["b"], accuracy_loss=0.5, size_bytes=900_000.0, size_ratio=0.9),
        trial(9, excluded=["a", "b"], accuracy_loss=0.0, size_bytes=800_000.0, size_ratio=0.8),
    ]
    return study(trials, baseline={"size_bytes": 1_000_000.0})
