"""The ranking of a study's layers, in the precisions that its search may choose."""

import logging
from dataclasses import replace

from seqto.figures import as_measured
from seqto.measuring.evaluate import float_latency
from seqto.measuring.parts import Parts
from seqto.measuring.provenance import FLOAT_TIMES
from seqto.measuring.subject import rank_layers
from seqto.phases import say
from seqto.protocols import PredictsPrecisions, SeveralSchemes
from seqto.sensitivity.stability import stability
from seqto.study.plan import Study
from seqto.types import CODED, INT8, LayerScore, StudyRecord, family

LOW_STABILITY = 0.7
"""Below this rank correlation between two halves of the samples, a ranking is a guess."""

_log = logging.getLogger(__name__)


def analysed(study: Study, run: str, base: str) -> StudyRecord:
    """Return the study with its layers ranked; a resumed study keeps its ranking.

    With several schemes the ranking of `base` counts, which does the least harm.
    """
    if not study.tracker.read_study(run).scores:
        say("timing the float model", 0, 1)
        times = float_latency(study.subject, study.parts.device)
        scores = ranking(study, base)
        own = {**study.subject.baseline, **times}
        rounded = {name: as_measured(name, value) for name, value in own.items()}
        study.tracker.log_document(run, FLOAT_TIMES, {name: rounded[name] for name in times})
        study.tracker.log_analysis(run, rounded, scores)
        _log_stability(study, run, stability(scores))
    return study.tracker.read_study(run)


def ranking(study: Study, base: str) -> tuple[LayerScore, ...]:
    """Return the layers, those that quantization in this scheme hurts most first."""
    parts, quantizer = _searched(study), study.parts.quantizer
    if isinstance(quantizer, SeveralSchemes):
        parts = replace(parts, quantizer=quantizer.schemes[base])
    return rank_layers(parts, study.subject, study.workspace)


def _searched(study: Study) -> Parts:
    """Return the parts with the precisions that are worth measuring layer by layer.

    Coded weights are smaller than int8 and do less harm, because activations stay in float. All
    that int8 has is its speed: where nobody asks for it, no layer would ever be given int8, and
    leaving it out halves the time that ranking takes.
    """
    parts, goal = study.parts, study.settings.goal
    predicts = parts.sensitivity
    coded = all(CODED in map(family, layer.steps) for layer in study.subject.layers)
    small = CODED in map(family, parts.choices) and coded and goal.size and not goal.is_timed
    if not (small and parts.search.screens and isinstance(predicts, PredictsPrecisions)):
        return parts
    left = tuple(each for each in parts.precisions if each != INT8)
    return replace(parts, precisions=left, sensitivity=predicts.predicting(left))


def _log_stability(study: Study, run: str, correlation: float | None) -> None:
    """Record how well two halves of the samples agree on the ranking; warn if they do not."""
    if correlation is None:
        return
    study.tracker.log_figures(run, {"sensitivity_stability": correlation})
    if correlation < LOW_STABILITY:
        _log.warning(
            "The layers' ranking is unsure: two halves of the samples correlate by %.2f only. "
            "Raise sensitivity.samples.",
            correlation,
        )
