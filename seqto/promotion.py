"""Which registered version becomes the champion, by measuring it again."""

import enum
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pydantic
from pydantic import ConfigDict, NonNegativeFloat

from seqto.figures import figure, told
from seqto.measuring.evaluate import float_latency, measure
from seqto.measuring.parts import Parts
from seqto.measuring.subject import Subject, prepare_subject
from seqto.pareto.front import check_objectives, comparable, in_float_units
from seqto.pareto.limits import Constraint
from seqto.pareto.recommend import BALANCED
from seqto.phases import say
from seqto.types import Model, Trial, Version
from seqto.workspace import Workspace

CHAMPION, PREVIOUS = "champion", "previous"
"""The aliases of the version in use, and of the one before it."""


@pydantic.dataclasses.dataclass(kw_only=True, frozen=True, config=ConfigDict(extra="forbid"))
class Rules:
    """What a version needs to become the champion.

    It meets the limits, is better in one objective, and in the others worse by no more than the
    tolerance. That is in units of the float model: 0.01 is a point of loss, or 1 % of its size.
    """

    limits: Constraint = field(default_factory=Constraint)
    objectives: list[str]
    tolerance: NonNegativeFloat = 0.0


class Verdict(enum.Enum):
    """How a challenge ends."""

    PROMOTED = "promoted"
    ALREADY = "already champion"
    UNMET = "limits not met"
    NOT_BETTER = "not better"


@dataclass(frozen=True)
class Decision:
    """A verdict with its reason, and the measured figures by version number."""

    verdict: Verdict
    why: str
    challenger: Version | None = None
    champion: Version | None = None
    measured: Mapping[str, Trial] = field(default_factory=dict)


class Bench:
    """Measures versions on the same samples and device, which are prepared on first use."""

    def __init__(
        self, parts: Parts, workspace: Workspace, load: Callable[[Version], Model]
    ) -> None:
        self.parts = parts
        self._workspace, self._load = workspace, load
        self.measured: dict[str, Trial] = {}
        self._float_ms: float | None = None

    @functools.cached_property
    def subject(self) -> Subject:
        """The float model and the samples."""
        return prepare_subject(self.parts, self._workspace)

    def baseline(self, objectives: Sequence[str]) -> dict[str, float]:
        """Return the float model's figures; its latency is measured only if needed."""
        known = self.subject.baseline
        amounts = [name for name in objectives if figure(name).of_float is None]
        if all(name in known for name in amounts):
            return dict(known)
        return {**known, **float_latency(self.subject, self.parts.device)}

    def measure(self, version: Version) -> Trial:
        """Return the version's trial with figures measured now."""
        if version.number not in self.measured:
            # With the session options under which it is served.
            model = replace(self._load(version), session=version.trial.session)
            known = version.trial.candidate
            _ = self.subject  # Says what it does by itself.
            say(f"measuring {version} again")
            found = measure(model, self.subject, self.parts.device, candidate=known)
            # The machine was faster or slower when another version had its turns.
            self._float_ms = self._float_ms or found.float_ms
            found = found.timed_as(self._float_ms)
            self.measured[version.number] = replace(version.trial, metrics=found.metrics)
        return self.measured[version.number]


def decide(versions: Sequence[Version], rules: Rules, bench: Bench) -> Decision:
    """Decide which version becomes the champion, or why none does."""
    champion = next((each for each in versions if CHAMPION in each.aliases), None)
    candidates, why = _candidates(versions, rules)
    for version in candidates:
        trial = bench.measure(version)
        if rules.limits.excess(trial.metrics) > 0:
            continue
        if champion is None:
            why = f"it is the first, and has {_limits(rules)}"
            return Decision(Verdict.PROMOTED, why, version, None, bench.measured)
        if _same(version, champion):
            why = f"{champion} is the best that has {_limits(rules)}"
            return Decision(Verdict.ALREADY, why, version, champion, bench.measured)
        verdict, why = _compare(trial, bench.measure(champion), rules, bench)
        return Decision(verdict, why, version, champion, bench.measured)
    if candidates:
        nearest = rules.limits.nearest(list(bench.measured.values()))
        (at,) = [each for each in candidates if bench.measured[each.number] is nearest]
        why = (
            f"no version has {_limits(rules)} when measured again, whatever their studies said; "
            f"the nearest is {at}: {_figures(nearest)}"
        )
    return Decision(Verdict.UNMET, why, None, champion, bench.measured)


def _candidates(versions: Sequence[Version], rules: Rules) -> tuple[list[Version], str]:
    """Return the versions that met the limits in their studies, the best first, or why none did.

    Without a limit, only the study's own recommendation counts.
    """
    known = [each for each in versions if comparable([each.trial]) and each.trial.metrics]
    left = [each for each in known if not each.rolled_back]
    if not left:
        back = f" ({len(known)} rolled back)" if known else ""
        return [], f"there is no version to promote{back}: run a study first"
    if not rules.limits.limits():
        chosen = [each for each in left if BALANCED in each.aliases]
        return chosen, f"the version with the alias {BALANCED} was rolled back: state a limit"
    by_trial = {id(each.trial): each for each in left}
    chosen = [by_trial[id(trial)] for trial in rules.limits.meeting([each.trial for each in left])]
    nearest = rules.limits.nearest([each.trial for each in left])
    return chosen, (
        f"no version has {_limits(rules)}; the nearest is {by_trial[id(nearest)]}: "
        f"{_figures(nearest)}"
    )


def _same(version: Version, champion: Version) -> bool:
    sha = version.trial.model_sha256
    return version.number == champion.number or bool(sha and sha == champion.trial.model_sha256)


def _compare(challenger: Trial, champion: Trial, rules: Rules, bench: Bench) -> tuple[Verdict, str]:
    check_objectives([challenger, champion], rules.objectives)
    baseline = bench.baseline(rules.objectives)
    new, old = (in_float_units(each, rules.objectives, baseline) for each in (challenger, champion))
    gains = {name: was - now for name, now, was in zip(rules.objectives, new, old, strict=True)}
    titles = {name: figure(name).spoken_title for name in rules.objectives}
    better = [titles[name] for name, gain in gains.items() if gain > 0]
    worse = [titles[name] for name, gain in gains.items() if gain < -rules.tolerance - 1e-12]
    against = ", ".join(
        f"{title} {_against(name, challenger.metrics[name], champion.metrics[name])}"
        for name, title in titles.items()
    )
    if worse:
        why = f"it is worse in {' and '.join(worse)}"
    elif not better:
        why = "it is better in nothing"
    else:
        why = f"it is better in {' and '.join(better)}"
    verdict = Verdict.NOT_BETTER if worse or not better else Verdict.PROMOTED
    return verdict, f"{why} ({against}; tolerance {rules.tolerance:g})"


def _against(name: str, new: float, old: float) -> str:
    written = [figure(name).spoken_text(value) for value in (new, old)]
    if written[0] == written[1] and new != old:
        written = [f"{new:.9g}", f"{old:.9g}"]
    return " against ".join(written)


def _limits(rules: Rules) -> str:
    return str(rules.limits) or "no limit to meet"


def _figures(trial: Trial) -> str:
    measured = [each for each in told() if each.name in trial.metrics]
    return ", ".join(
        f"{each.spoken_title} {each.spoken_text(trial.metrics[each.name])}" for each in measured
    )
