"""How sure an answer is, what more samples would tell, and what other words might find."""

from collections.abc import Mapping

from seqto.figures import LOSS, figure, is_known
from seqto.metrics.speeds import apart
from seqto.pareto.front import comparable
from seqto.pareto.recommend import WORKS
from seqto.report.wording import in_words, interval, losses_alike
from seqto.types import CODED, INT4, SAMPLES, Front, StudyRecord, Trial, family

_WIDE = 0.01
"""More samples are worth a word if the interval of the loss is wider than this."""

_FASTER = 0.9
"""What is told of as faster takes at most this share of the time."""


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
        wanted = ",".join((*front.objectives, "latency_ms"))
        found["faster"] = f"#{fast.index}, {offer}: 'objectives=[{wanted}]' has it on the front"
    elif fast is None and record.tags.get("seqto.quantization") == "weight_only":
        found["faster"] = "quantization=static (or dynamic) runs layers in integers"
    used = {family(each) for trial in trials for _, each in trial.candidate.precisions}
    if trials and not used & {CODED, INT4}:
        found["smaller"] = "leave precisions= out: layers may then have fewer than 8 bits"
    return found


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
