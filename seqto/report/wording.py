"""What figures mean in words, and which of them can be told apart."""

from collections.abc import Sequence

import numpy as np

from seqto.figures import (
    LOSS,
    Figure,
    Metrics,
    by_column,
    figure,
    in_short_percent,
    is_known,
    told,
    whole,
)
from seqto.metrics.intervals import can_be_told_apart
from seqto.metrics.speeds import apart
from seqto.types import Front, Trial

_LOSSES = {
    "top1": "differs from the float model on {share} of samples",
    "flips": "differs from the float model on {share} of samples",
    "tokens": "other tokens at {share} of positions",
    "cer": "{share} of the characters differ",
    "bleu": "1 - BLEU to the float model {share}",
    "cosine": "1 - cosine to the float model {share}",
    "neighbour": "another nearest neighbour for {share} of samples",
    "box_f1": "{share} of boxes lost or new (1 - F1)",
    "mask_iou": "masks differ by {share} (1 - IoU)",
    "noise": "noise {share} of the signal",
}
_NO_LOSS = {
    **dict.fromkeys(("top1", "flips"), "agrees with the float model on all samples"),
    "box_f1": "the float model's boxes in all samples",
    **dict.fromkeys(("tokens", "cer", "bleu"), "the float model's text in all samples"),
}
"""What a loss means in words, by the metric's name; others are called by their name."""


def in_words(metrics: Metrics, baseline: Metrics, metric: str) -> str:
    """Say in one sentence what a candidate offers against the float model.

    `metric` is the name of the one that defines the accuracy loss.
    """
    own_words = {
        "size_ratio": lambda: _size_in_words(metrics, baseline),
        LOSS: lambda: _loss_in_words(metrics, metric),
        "latency_ms": lambda: _latency_in_words(metrics, baseline),
    }
    parts = [
        own_words[each.name]() if each.name in own_words else _in_words(each, metrics, baseline)
        for each in by_column(told())
    ]
    return ", ".join(part for part in parts if part)


def task_in_words(task: str, metric: str, guess: str) -> str:
    """Say what the outputs are taken for; `guess` is why, if nobody said so."""
    taken = f"task={task}, loss by {metric}"
    return f"{taken}: {guess} (another one: task=...)" if guess else taken


def facts(figures: Sequence[Figure], metrics: Metrics, baseline: Metrics) -> dict[str, str]:
    """Return these figures as texts, by title; a share stands behind what it is a share of."""
    found = {}
    for each in figures:
        text = each.text(each.value(metrics, baseline))
        amount = whole(each)
        if amount is not each:
            total = amount.text(metrics.get(amount.name))
            text = f"{total} ({text} {each.title})" if total and text else total or text
        elif within := interval(each, metrics):
            text = f"{text} (95 %: {within})"
        found[amount.title] = text
    return {title: text for title, text in found.items() if text}


def interval(of: Figure, metrics: Metrics) -> str:
    """Return the 95 % interval of a figure; an empty text where it is not known."""
    low, high = metrics.get(f"{of.name}_low"), metrics.get(f"{of.name}_high")
    if not of.has_interval or not is_known(low) or not is_known(high):
        return ""
    return f"{of.text(low).removesuffix(of.unit).rstrip()} to {of.text(high)}"


def losses_alike(front: Front) -> str:
    """Name the recommended trials whose losses are too close to tell apart on these samples.

    That the first is like the second, and the second like the third, says nothing of the first and
    the third: each group that is named has only such that are all alike.
    """
    trials = {each.trial.index: each.trial for each in front.recommended}.values()
    known = [each for each in trials if f"{LOSS}_high" in each.metrics]
    ordered = sorted(known, key=lambda trial: trial.metrics[LOSS])
    groups: list[set[int]] = []
    for at in range(len(ordered)):
        group = [ordered[at]]
        for worse in ordered[at + 1 :]:
            if any(_differ(better, worse) for better in group):
                break
            group.append(worse)
        found = {each.index for each in group}
        if len(found) > 1 and not any(found <= each for each in groups):
            groups.append(found)
    named = sorted(" and ".join(f"#{index}" for index in sorted(each)) for each in groups)
    return ", or of ".join(named) + ("," if len(named) > 1 else "")


def _differ(better: Trial, worse: Trial) -> bool:
    """Return whether one loss is surely larger: by sample, or by intervals in older studies."""
    if better.losses and len(better.losses) == len(worse.losses):
        return can_be_told_apart(np.array(better.losses), np.array(worse.losses))
    return bool(better.metrics[f"{LOSS}_high"] < worse.metrics[f"{LOSS}_low"])


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


def _in_words(each: Figure, metrics: Metrics, baseline: Metrics) -> str:
    """Say a figure that has no words of its own."""
    value = each.value(metrics, baseline)
    return f"{each.spoken_title} {each.spoken_text(value)}" if is_known(value) else ""


def _size_in_words(metrics: Metrics, baseline: Metrics) -> str:
    share = figure("size_ratio")
    ratio = share.value(metrics, baseline)
    if is_known(ratio):
        larger = ", larger than the original" if ratio > 1 else ""
        return f"{in_short_percent(ratio)} of the size{larger}"
    return whole(share).text(metrics.get(whole(share).name))


def _loss_in_words(metrics: Metrics, metric: str) -> str:
    loss = metrics.get(LOSS)
    if not is_known(loss):
        return ""
    if loss == 0:
        return _NO_LOSS.get(metric, "loses nothing on these samples")
    share = in_short_percent(loss)
    return _LOSSES.get(metric, "{metric} loss {share}").format(metric=metric, share=share)


def _latency_in_words(metrics: Metrics, baseline: Metrics) -> str:
    latency, own = metrics.get("latency_ms"), baseline.get("latency_ms")
    if not is_known(latency):
        return ""
    if not is_known(own) or own <= 0 or latency <= 0:
        return figure("latency_ms").text(latency)
    if not apart(metrics, baseline):
        return "about as fast"
    return f"{own / latency:.1f}x faster" if latency < own else f"{latency / own:.1f}x slower"
