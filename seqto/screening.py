"""Candidates measured on a few samples of the search's own, before any is evaluated in full.

A search may try hundreds of candidates. Each is first measured on a few calibration samples,
never on those of the evaluation, and only what can still be on the front is evaluated.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from seqto.evaluate import Subject, outputs_of
from seqto.metrics.agreement import top1
from seqto.metrics.divergence import OutputHarm, harm_to
from seqto.pareto import comparable, non_dominated
from seqto.protocols import Search
from seqto.search.planned import Planned
from seqto.subject import Parts
from seqto.types import (
    FLOAT32,
    INT8,
    NEGLIGIBLE,
    RUINED,
    Candidate,
    LayerScore,
    Model,
    Samples,
    Table,
    Trial,
    TrialState,
)
from seqto.workspace import written_whole

SCREENED = ("divergence", "size_bytes")
"""What a screened search trades off."""

Shorten = Callable[[Sequence[Trial], int], list[Trial]]
"""Chooses so many of the screened trials for the full evaluation."""


class Screen:
    """Measures candidates on a few samples, each once, and keeps the results in a folder."""

    def __init__(self, parts: Parts, subject: Subject, samples: int, folder: Path) -> None:
        self._parts = parts
        self._subject = subject
        self._samples = first(subject.calibration, samples)
        self._folder = folder
        self._reference = self._outputs(subject.model)
        self._harm: OutputHarm = harm_to(list(self._reference))
        self.trials: dict[Candidate, Trial] = {}

    def measure(self, candidate: Candidate) -> Trial:
        """Return the candidate's divergence from the float model, disagreement and size.

        A candidate that cannot be measured is a FAILED trial, as it would be in a study.
        """
        if candidate not in self.trials:
            trial = Trial("", len(self.trials), candidate, TrialState.COMPLETE)
            try:
                self.trials[candidate] = replace(trial, metrics=self._kept(candidate))
            except Exception as error:
                failure = f"{type(error).__name__}: {error}"
                self.trials[candidate] = replace(trial, state=TrialState.FAILED, failure=failure)
        return self.trials[candidate]

    def _kept(self, candidate: Candidate) -> dict[str, float]:
        """Return the candidate's metrics from the folder, measured first if they are not there."""
        path = self._folder / f"{candidate.key}.json"
        if not path.exists():
            metrics = self._measured(candidate)
            with written_whole(path) as temporary:
                temporary.write_text(json.dumps(metrics))
        kept: dict[str, float] = json.loads(path.read_text())
        return kept

    def _measured(self, candidate: Candidate) -> dict[str, float]:
        model = self._parts.quantizer.quantize(self._subject.model, self._subject.ranges, candidate)
        outputs = self._outputs(model)
        return {
            "divergence": float(self._harm.per_sample(list(outputs)).mean()),
            "disagreement": float(np.mean(top1(self._reference) != top1(outputs))),
            "size_bytes": float(model.size),
        }

    def _outputs(self, model: Model) -> np.ndarray:
        return outputs_of(model, self._samples, self._subject.batch, self._parts.device)


@dataclass
class ScreenedSearch(Planned):
    """A search whose candidates are screened; it asks only for those worth a full evaluation."""

    inner: Search
    screen: Screen
    shorten: Shorten
    bases: Sequence[str] = ("",)
    """The schemes of the fully quantized models."""

    def __post_init__(self) -> None:
        """Take the inner search's name."""
        self.name = self.inner.name

    @property
    def screens(self) -> int:
        """What it asks for has been screened."""
        return 0

    @property
    def evaluations(self) -> int:
        """As many as the inner search wants."""
        return self.inner.evaluations

    def start(self, ranking: Sequence[LayerScore]) -> None:
        """Run the whole inner search on the screen, then draw up the list."""
        self.inner.start(ranking)
        while candidates := self.inner.ask(1):
            self.inner.tell(self.screen.measure(candidates[0]))
        self.plan(self._listed([score.layer.name for score in ranking]))

    def table(self) -> Table:
        """Return what was screened as plain rows, by size, and what of it is evaluated in full."""
        listed = set(self._pending)
        rows: list[dict[str, str | float | bool | None]] = [
            {
                "key": trial.candidate.key,
                "scheme": trial.candidate.scheme,
                "evaluated": trial.candidate in listed,
                **trial.metrics,
                "failure": trial.failure or None,
            }
            for trial in self.screen.trials.values()
        ]
        return sorted(rows, key=lambda row: float(row.get("size_bytes") or 0))

    def _listed(self, layers: Sequence[str]) -> list[Candidate]:
        """Return what is evaluated in full, the baselines first and last."""
        # They are always evaluated, also where they are not on the front or failed on the screen,
        # which does not see that a base is faster than another.
        full = [Candidate.of(dict.fromkeys(layers, INT8), base) for base in self.bases]
        unchanged = Candidate.of(dict.fromkeys(layers, FLOAT32), self.bases[0])
        known = {*full, *(replace(unchanged, scheme=base) for base in self.bases)}
        screened = comparable(self.screen.trials.values())
        listed = [*full, unchanged]
        # Often they are on the front as well: then there is room for one or two more.
        least = max(self.evaluations - len(listed), 0)
        for count in range(least, self.evaluations + 1 if screened else 0):
            chosen = self.shorten(screened, count)
            ordered = sorted(chosen, key=lambda trial: trial.metrics["size_bytes"])
            candidates = [trial.candidate for trial in ordered]
            between = [each for each in candidates if each not in known]
            if len(between) + len(full) + 1 <= max(self.evaluations, len(full) + 1):
                listed = [*full, *between, unchanged]
        return listed


def spread(trials: Sequence[Trial], count: int) -> list[Trial]:
    """Return so many of the front's trials, in even steps of the harm's logarithm.

    Harm spans orders of magnitude. Steps of size would be spent on large models, whose loss is too
    small to be told apart, and steps of the harm itself on ruined ones.
    """
    front = non_dominated(trials, SCREENED)
    harms = np.log([max(trial.metrics["divergence"], 1e-9) for trial in front])
    high = min(harms.max(), np.log(RUINED))
    # Where all harm is negligible, it still tells the better from the worse.
    low = max(harms.min(), min(np.log(NEGLIGIBLE), high - np.log(10)))
    chosen: set[int] = set()
    for target in np.linspace(max(low, high), low, count):
        left = [at for at in range(len(front)) if at not in chosen]
        if left:
            distances = np.abs(harms[left] - target)
            chosen.add(left[int(distances.argmin())])
    return [front[at] for at in sorted(chosen)]


def first(samples: Samples, count: int) -> Samples:
    """Return the first so many samples."""
    return replace(
        samples,
        inputs={name: array[:count] for name, array in samples.inputs.items()},
        ids=samples.ids[:count],
        labels=None if samples.labels is None else samples.labels[:count],
    )
