"""What a study says to take."""

from seqto.pareto.limits import ANSWER, constraint_of
from seqto.report.certainty import certainty
from seqto.report.wording import in_words
from seqto.types import SAMPLES, Front, StudyRecord


def answer(record: StudyRecord, front: Front) -> str:
    """Say in one sentence which candidate to take, and what it offers."""
    metric = record.tags.get("seqto.metric", "top1")
    constraint = constraint_of(record)
    if constraint.limits():
        named = [each.trial for each in front.recommended if each.alias == ANSWER]
        best = next(iter(named), None) or constraint.best(record.trials, front.objectives)
        if best is not None:
            offer = in_words(best.metrics, record.baseline, metric)
            return f"Take #{best.index}, the best with {constraint}: {offer}."
        near = constraint.nearest(record.trials)
        offer = in_words(near.metrics, record.baseline, metric)
        return f"No candidate has {constraint}; the nearest is #{near.index}: {offer}."
    if not front.recommended:
        return ""
    first = front.recommended[0]
    offer = in_words(first.trial.metrics, record.baseline, metric)
    return f"Take #{first.trial.index} ({first.alias}): {offer}."


def with_basis(record: StudyRecord, front: Front) -> str:
    """Return the answer, and how sure it is as far as the study recorded that."""
    count = record.tags.get(SAMPLES)
    sure = certainty(record, front).get("how sure", "")
    words = f"How sure: {sure}." if sure else f"Evaluated on {count} samples." if count else ""
    return f"{answer(record, front)} {words}".rstrip()
