"""How sure an answer is, what more samples would tell, and what other words might find."""

from collections.abc import Mapping

from seqto.figures import CONVERSIONS, LOSS, PREDICTED, WORKS, figure, in_short_percent, is_known
from seqto.metrics.speeds import apart, is_faster
from seqto.pareto.front import comparable
from seqto.pareto.lost import lost_in_words
from seqto.report.wording import in_words, interval, losses_alike
from seqto.types import CODED, INT4, INT8, SAMPLES, Front, StudyRecord, Trial, family

_WIDE = 0.01
"""More samples are worth a word if the interval of the loss is wider than this."""

_MOST_SLOW = 3
"""Of so many slow candidates it is said why they are slow."""

_FASTER = 0.9
"""What is told of as faster takes at most this share of the time."""


def remarks(record: StudyRecord, front: Front) -> dict[str, str]:
    """Return all that is to be said below the front, by its label."""
    missing = lost_in_words(record.trials)
    lost = {"lost": missing} if missing else {}
    sure = certainty(record, front)
    return {**lost, **sure, **speeds(record, front), **hints(record, front)}


def certainty(record: StudyRecord, front: Front) -> dict[str, str]:
    """Say how sure the first recommendation is, and what more samples would tell."""
    if not front.recommended:
        return {}
    trial = front.recommended[0].trial
    loss, count = figure(LOSS), record.tags.get(SAMPLES, "")
    within, alike = interval(loss, trial.metrics), losses_alike(front)
    sure = []
    if within:
        sure.append(f"#{trial.index} loses {within} (95 %{f', {count} samples' if count else ''})")
    if alike:
        sure.append(f"too few samples to tell the losses of {alike} apart (paired test)")
    found = {"how sure": "; ".join(sure)} if sure else {}
    wide = trial.metrics.get(f"{LOSS}_high", 0.0) - trial.metrics.get(f"{LOSS}_low", 0.0)
    if count.isdecimal() and (wide > _WIDE or alike):
        found["to know more"] = f"dataset.evaluation_size={4 * int(count)} would halve the interval"
    return found


def hints(record: StudyRecord, front: Front) -> dict[str, str]:
    """Say which words might find something better, where the study shows that."""
    found = {}
    trials = comparable(record.trials)
    fast = _fastest(trials, record.baseline) if "latency_ms" not in front.objectives else None
    if fast is not None and fast not in front.members:
        offer = in_words(fast.metrics, record.baseline, record.tags.get("seqto.metric", "top1"))
        found["faster"] = f"#{fast.index}, {offer}: {_wanted(front)} has it on the front"
    elif fast is None and record.tags.get("seqto.quantization") == "weight_only":
        found["faster"] = "quantization=static (or dynamic) runs layers in integers"
    used = {family(each) for trial in trials for _, each in trial.candidate.precisions}
    if trials and not used & {CODED, INT4}:
        found["smaller"] = "leave precisions= out: layers may then have fewer than 8 bits"
    return found


def speeds(record: StudyRecord, front: Front) -> dict[str, str]:
    """Say how well latency was predicted, and why candidates are slow.

    Where it was not asked for, only what is recommended is worth a word.
    """
    baseline, trials = record.baseline, comparable(record.trials)
    predicted = [each for each in trials if PREDICTED in each.metrics]
    found = {}
    if predicted:
        off = [_off(each.metrics) for each in predicted]
        found["latency"] = f"predicted within {in_short_percent(sum(off) / len(off))} on average"
    if "latency_ms" not in baseline:
        return found
    asked = "latency_ms" in front.objectives
    chosen = {each.trial.index for each in front.recommended}
    quantized = [each for each in trials if not each.candidate.is_float]
    if asked and quantized and not any(is_faster(each.metrics, baseline) for each in quantized):
        found["speed"] = "no candidate is surely faster than the float model"
    slow = [
        each
        for each in quantized
        if is_faster(baseline, each.metrics) and (asked or each.index in chosen)
    ]
    if slow:
        found["slow"] = "; ".join(_why_slow(each, baseline) for each in slow[:_MOST_SLOW])
        if not asked:
            found["slow"] += f" ({_wanted(front)} looks for fast ones)"
    return found


def _wanted(front: Front) -> str:
    """Return the words that ask for latency as well."""
    return f"'objectives=[{','.join((*front.objectives, 'latency_ms'))}]'"


def _why_slow(trial: Trial, baseline: Mapping[str, float]) -> str:
    """Say how long a candidate takes and what for: as predicted, or how much runs in integers."""
    write, metrics = figure("latency_ms").text, trial.metrics
    took, own = metrics["latency_ms"], baseline["latency_ms"]
    words = f"#{trial.index} takes {write(took)}, float {write(own)}"
    if PREDICTED not in metrics or CONVERSIONS not in metrics:
        integers = sum(each == INT8 for _, each in trial.candidate.precisions)
        return f"{words} ({integers} of {len(trial.candidate.precisions)} layers in int8)"
    layers = metrics[PREDICTED] - metrics[CONVERSIONS]
    return f"{words} (layers {write(layers)}, conversions {write(metrics[CONVERSIONS])})"


def _off(metrics: Mapping[str, float]) -> float:
    """Return by which share a prediction is off."""
    return abs(metrics[PREDICTED] / metrics["latency_ms"] - 1)


def _fastest(trials: list[Trial], baseline: Mapping[str, float]) -> Trial | None:
    """Return the fastest trial that works, if it is clearly faster than the float model."""
    own = baseline.get("latency_ms")
    known = [each for each in trials if is_known(each.metrics.get("latency_ms"))]
    working = [each for each in known if each.metrics.get(LOSS, 0.0) <= WORKS]
    if not is_known(own) or not working:
        return None
    best = min(working, key=lambda each: each.metrics["latency_ms"])
    faster = best.metrics["latency_ms"] <= _FASTER * own and apart(best.metrics, baseline)
    return best if faster else None
