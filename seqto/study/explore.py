"""The exploration of a study: ask, measure, tell, until the search is over."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from seqto.errors import StudyError
from seqto.measuring.float_share import with_float_shares
from seqto.measuring.learned import as_document
from seqto.measuring.provenance import (
    MACHINE,
    PROVENANCE,
    check_provenance,
    check_timed_alike,
    provenance_of,
)
from seqto.measuring.record import Assignment
from seqto.measuring.screen import Screen
from seqto.pareto.front import non_dominated
from seqto.phases import say
from seqto.protocols import SeveralSchemes, TrialLog
from seqto.search.walk import Walk, complete
from seqto.study.analysis import analysed, ranking
from seqto.study.device_limits import DeviceLimits
from seqto.study.latencies import latencies_of, time_candidates
from seqto.study.plan import Study
from seqto.study.race import Race
from seqto.study.schemes import as_table, compare_schemes
from seqto.study.settings import StudySettings
from seqto.study.shortlist import (
    SCREENED,
    quantized,
    screened_objectives,
    shortlist,
    smoothed,
    spread,
)
from seqto.types import (
    FLOAT32,
    INT8,
    MACHINE_TAG,
    SCHEMES,
    SCREENING,
    Candidate,
    Goal,
    LayerScore,
    Trial,
    TrialState,
)

_PLAIN = len((INT8, FLOAT32))
"""How many precisions there are to choose from without any that is smaller than int8."""

_CHANCE = 0.5
"""Losses that differ by fewer samples are alike."""

RANGES = "ranges.json"
"""The study's document of calibrated ranges, so that jobs on other machines need not calibrate."""

LEARNED = "learned.json"
"""The study's document of what its quantizer learned: other machines would compute it otherwise."""

OPENING = "opening the study"
STEPS_TO_OPEN = 3
"""Hold it alone, begin or resume its run, record what all its candidates share."""

Launch = Callable[[str, Sequence[Assignment]], Iterable[str]]
"""Measures a study's assignments somewhere, and returns the ids of their trials."""

Watch = Callable[[Trial, int, int], None]
"""Called after each trial, with how many are done and the most there can be."""

Rankings = Mapping[str, Sequence[LayerScore]]
"""The layers' scores by base scheme; a quantizer without schemes has one base, named ""."""

_log = logging.getLogger(__name__)


def explore(study: Study, run: str, launch: Launch, watch: Watch) -> int:
    """Measure what the search asks for; return how many candidates this call measured.

    When the device turns out not to run a layer quantized, the search restarts without that layer.
    """
    _check_provenance(study, run)
    if study.tracker.read_document(run, RANGES) is None:
        study.tracker.log_document(run, RANGES, study.subject.ranges)
    learned = study.subject.model.learned
    if learned and study.tracker.read_document(run, LEARNED) is None:
        study.tracker.log_document(run, LEARNED, as_document(learned))
    say(OPENING, STEPS_TO_OPEN, STEPS_TO_OPEN)
    bases = _bases(study, run)
    record = analysed(study, run, bases[0])
    further = {base: ranking(study, base) for base in bases[1:]}
    rankings = {bases[0]: record.scores, **further}
    limits = DeviceLimits(study.parts, study.subject, study.tracker, run, record.scores)
    trials = _Trials(run, study.tracker, launch, record.trials)
    while _search_once(study, run, rankings, limits, trials, watch):
        pass
    if study.settings.goal.is_timed:
        time_candidates(study, run)
    return trials.measured


def _check_provenance(study: Study, run: str) -> None:
    """Record what is measured, and on what kind of machine; a resumed study keeps its record."""
    own = provenance_of(study.parts, study.subject)
    recorded = study.tracker.read_document(run, PROVENANCE)
    if recorded is None:
        study.tracker.log_document(run, PROVENANCE, own)
        study.tracker.tag_study(run, {MACHINE_TAG: own[MACHINE]})
        return
    check_provenance(recorded, own)
    check_timed_alike(recorded, study.parts.device, study.settings.times)
    if recorded[MACHINE] != own[MACHINE]:
        _log.warning(
            "The study's latencies are of %s: what is measured here, on %s, gets none.",
            *(recorded[MACHINE], own[MACHINE]),
        )


def _search_once(
    study: Study,
    run: str,
    rankings: Rankings,
    limits: DeviceLimits,
    trials: "_Trials",
    watch: Watch,
) -> bool:
    """Search over the remaining layers; return whether some were excluded meanwhile."""
    index = limits.next_index
    screen = _screen(study) if limits.any_left else None
    full = _fully_quantized(study, rankings, limits)
    if screen is not None and full:
        # If the device cannot run full int8, every screened candidate would fail, one by one.
        (trial,) = trials.of([Assignment(index, full[0])])
        if limits.learn(trial, index + 1):
            return True
    search = _search(study, run, rankings, limits, screen)
    failed = 0
    while candidates := search.ask(study.settings.batch):
        say("measuring", index, index + len(candidates) + search.remaining())
        may_stop = isinstance(search, Race) and study.settings.only_loss_and_size
        batch = [
            Assignment(index + place, each, may_stop and each not in full)
            for place, each in enumerate(candidates)
        ]
        index += len(batch)
        learned = False
        for each, trial in zip(batch, trials.of(batch), strict=True):
            explained = limits.learn(trial, index)
            learned |= explained
            failed += trial.state is TrialState.FAILED and not explained
            search.tell(trial)
            total = index + search.remaining()
            watch(trial, each.index + 1, total)
            _check_failures(failed, total, study.settings, trial)
        if learned:
            return True
    if screen is not None and isinstance(search, Race):
        _log_evaluated(study, run, screen, search)
    return False


def _log_evaluated(study: Study, run: str, screen: Screen, race: Race) -> None:
    """Record what was evaluated, if it is not what was listed at first."""
    if race.dropped:
        _log.info(
            "%d shortlisted candidates were not evaluated: a smaller one loses nothing.",
            len(race.dropped),
        )
    if race.dropped or race.added:
        study.tracker.log_table(run, SCREENING, screen.table(race.evaluated))


def _screen(study: Study) -> Screen | None:
    """Return the screen for the search's candidates, or None if it does without."""
    if not study.parts.search.screens:
        return None
    folder = study.workspace.screens(study.key)
    return Screen(study.parts, study.subject, study.parts.search.screens, folder)


def _search(
    study: Study, run: str, rankings: Rankings, limits: DeviceLimits, screen: Screen | None
) -> Walk | Race:
    """Return the source of complete candidates: the search, or the best of its screening."""
    if not limits.any_left:
        _log.warning(
            "%s can run no layer of %s quantized: the float model is all there is to measure. "
            "Choose another quantization= or device=.",
            *(study.parts.device.name, study.parts.source.name),
        )
        return Race([_uniform(study, FLOAT32, limits, next(iter(rankings)))])
    goal, latencies = study.settings.goal, latencies_of(study, run, rankings, limits.layers)
    walk = Walk(study.parts.search, rankings, limits.layers, latencies, goal)
    if screen is None:
        return walk
    screen.latencies = latencies
    screen.measure_all(walk)
    listed = shortlist(
        list(screen.trials.values()),
        _fully_quantized(study, rankings, limits),
        study.parts.search.evaluations,
        lambda screened, count: _chosen(study, screened, count, bool(latencies)),
    )
    if not listed:
        # Nothing could be screened: its failure shows why.
        listed = [_uniform(study, INT8, limits, next(iter(rankings)))]
    study.tracker.log_table(run, SCREENING, screen.table(listed))
    if goal.latency:
        # It loses nothing, so that what is slower than it is not on the front.
        listed.append(_uniform(study, FLOAT32, limits, next(iter(rankings))))
    return _race(study, listed, screen)


def _race(study: Study, listed: Sequence[Candidate], screen: Screen) -> Race:
    """Return the shortlist; if loss and size are all that counts, others may take their places."""
    if not study.settings.only_loss_and_size:
        return Race(listed)
    measured = quantized(screen.trials.values())
    sizes = {each.candidate: each.metrics["size_bytes"] for each in measured}
    front = non_dominated(measured, SCREENED) if measured else []
    spare = [each.candidate for each in front if each.candidate not in listed]
    return Race(listed, sizes, spare, least=_CHANCE / len(study.subject.samples))


def _fully_quantized(study: Study, rankings: Rankings, limits: DeviceLimits) -> list[Candidate]:
    """Return the full int8 models, one of each base: what everybody would try first.

    None if int8 is not to be chosen, or only makes files smaller, as other precisions do better.
    """
    layers = study.subject.layers
    stored = all(layer.only_stored for layer in layers) and len(study.parts.choices) > _PLAIN
    if stored or INT8 not in study.parts.choices:
        return []
    return [_uniform(study, INT8, limits, base) for base in rankings]


def _uniform(study: Study, precision: str, limits: DeviceLimits, base: str) -> Candidate:
    """Return the candidate in this precision, except for layers that the device cannot run."""
    every = Candidate.of(dict.fromkeys(study.subject.layer_names, precision))
    return complete(every, limits.layers, base)


def _chosen(study: Study, screened: Sequence[Trial], count: int, timed: bool) -> list[Trial]:
    """Choose what is evaluated in full: along the front, or near the constraint.

    `timed` says whether the latency of what was screened is predicted.
    """
    constraint = study.settings.constraint
    objectives = screened_objectives(study.settings.goal if timed else Goal())
    if constraint.limits():
        known = with_float_shares(smoothed(screened), study.subject.layers)
        size = study.subject.baseline["size_bytes"]
        return constraint.shorten(known, count, size, objectives)
    return spread(screened, count, len(study.subject.samples), objectives)


def _bases(study: Study, run: str) -> list[str]:
    """Return the schemes that candidates start from; [""] for a quantizer without schemes.

    A resumed study keeps its schemes.
    """
    quantizer = study.parts.quantizer
    if not isinstance(quantizer, SeveralSchemes):
        return [""]
    table = study.tracker.read_study(run).tables.get(SCHEMES)
    if table is None:
        timed = study.settings.goal.is_timed
        results = compare_schemes(quantizer, study.subject, study.parts.device, timed)
        table = as_table(results)
        study.tracker.log_table(run, SCHEMES, table)
    return [str(row["scheme"]) for row in table if row["base"]]


class _Trials:
    """A study's finished trials: those of earlier runs, and those launched now."""

    def __init__(
        self, run: str, tracker: TrialLog, launch: Launch, trials: Sequence[Trial]
    ) -> None:
        self._run, self._tracker, self._launch = run, tracker, launch
        self._ended = {each.candidate.key: each for each in trials if each.state.is_settled}
        self.measured = 0

    def of(self, batch: Sequence[Assignment]) -> Iterator[Trial]:
        """Yield the trials of these candidates; measure those that are missing."""
        missing = [each for each in batch if each.candidate.key not in self._ended]
        launched = iter(self._launch(self._run, missing) if missing else ())
        self.measured += len(missing)
        for each in batch:
            # A launcher may return its trials one by one, as they end.
            while each.candidate.key not in self._ended:
                trial = self._tracker.trial(next(launched))
                self._ended[trial.candidate.key] = trial
            yield self._ended[each.candidate.key]
        # Exhaust the launcher: abandoning it after its last trial would count as an interruption.
        next(launched, None)


def _check_failures(failed: int, total: int, settings: StudySettings, last: Trial) -> None:
    if failed > settings.may_fail * total:
        raise StudyError(
            f"{failed} of {total} candidates failed, more than study.max_failed="
            f"{settings.may_fail:g} allows; the last one (candidate {last.index}): {last.failure}"
        )
