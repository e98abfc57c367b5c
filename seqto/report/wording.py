"""What figures mean in words, and which of them can be told apart."""

import itertools

from seqto.figures import Metrics, in_bytes, in_ms, in_short_percent, is_known, size_ratio
from seqto.types import Front, Trial


def in_words(metrics: Metrics, baseline: Metrics, metric: str) -> str:
    """Say in one sentence what a candidate offers against the float model.

    `metric` is the name of the one that defines the accuracy loss.
    """
    parts = [
        _size_in_words(metrics, baseline),
        _loss_in_words(metrics, metric),
        _latency_in_words(metrics, baseline),
    ]
    return ", ".join(part for part in parts if part)


def losses_alike(front: Front) -> str:
    """Return which recommended trials may not differ in loss, as far as can be told."""
    trials = {each.trial.index: each.trial for each in front.recommended}.values()
    known = [each for each in trials if "accuracy_loss_high" in each.metrics]
    ordered = sorted(known, key=lambda trial: trial.metrics["accuracy_loss"])
    alike = {
        trial.index
        for better, worse in itertools.pairwise(ordered)
        if better.metrics["accuracy_loss_high"] >= worse.metrics["accuracy_loss_low"]
        for trial in (better, worse)
    }
    return " and ".join(f"#{index}" for index in sorted(alike))


def spread_members(front: Front, most: int) -> list[Trial]:
    """Return at most `most` members: all recommended ones, and others evenly in between."""
    members = front.members
    chosen = {at for at, member in enumerate(members) if front.aliases(member)}
    while len(chosen) < min(most, len(members)):
        chosen.add(max(range(len(members)), key=lambda at: _gap(at, chosen, len(members))))
    return [members[at] for at in sorted(chosen)]


def _gap(at: int, chosen: set[int], count: int) -> int:
    """Return how far a place is from the nearest chosen one; the ends of the front come first."""
    if at in chosen:
        return -1
    return count if at in (0, count - 1) else min((abs(at - each) for each in chosen), default=0)


def _size_in_words(metrics: Metrics, baseline: Metrics) -> str:
    ratio = size_ratio(metrics, baseline)
    if is_known(ratio):
        larger = ", larger than the original" if ratio > 1 else ""
        return f"{in_short_percent(ratio)} of the size{larger}"
    return in_bytes(metrics.get("size_bytes"))


def _loss_in_words(metrics: Metrics, metric: str) -> str:
    loss = metrics.get("accuracy_loss")
    if not is_known(loss):
        return ""
    if metric != "top1":
        return f"{metric} loss {in_short_percent(loss)}"
    if loss == 0:
        return "agrees with the float model on all samples"
    return f"differs from the float model on {in_short_percent(loss)} of samples"


def _latency_in_words(metrics: Metrics, baseline: Metrics) -> str:
    latency, own = metrics.get("latency_ms"), baseline.get("latency_ms")
    if not is_known(latency):
        return ""
    if not is_known(own) or own <= 0 or latency <= 0:
        return in_ms(latency)
    if not _apart(metrics, baseline):
        return "about as fast"
    return f"{own / latency:.1f}x faster" if latency < own else f"{latency / own:.1f}x slower"


def _apart(metrics: Metrics, baseline: Metrics) -> bool:
    """Return whether the latencies differ by more than noise: their own, 5 %, and 0.1 ms."""
    latency, own = metrics["latency_ms"], baseline["latency_ms"]
    slow, fast = (metrics, baseline) if latency > own else (baseline, metrics)
    low = slow.get("latency_p10_ms", slow["latency_ms"])
    high = fast.get("latency_p90_ms", fast["latency_ms"])
    # For seconds on end a neighbour on the same core can double what a moment takes.
    return low > high and abs(latency - own) >= max(0.05 * own, 0.1)
