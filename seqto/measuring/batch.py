"""Candidates built and measured one after another; what they have in common runs once."""

import functools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from seqto.errors import MetricError, reason
from seqto.freeing import give_back
from seqto.graph.segments import same_computation
from seqto.graph.unpacking import has_coded_weights, unpacked
from seqto.measuring.evaluate import measure, undone
from seqto.measuring.loss import losses_of
from seqto.measuring.peaks import peak
from seqto.measuring.prefixes import MEMORY_LIMIT, SharedRuns
from seqto.measuring.stopping import Contest, Dominated, Rival, Stop, Watch
from seqto.measuring.subject import Subject
from seqto.protocols import Device, Previews, Quantizer, SharesPrefixes
from seqto.types import Candidate, Measurement, Model, Outputs

SHARED_BYTES = MEMORY_LIMIT
"""How many bytes of activations to keep for the next candidates; 0 shares nothing."""

_log = logging.getLogger(__name__)

_SMALL = 2**26
"""Models of fewer bytes are returned with their attempts, rather than built again."""

_HELD_BYTES = 2**26
"""How many bytes of outputs are held at most for models that are loaded later."""


class Tools(Protocol):
    """What makes candidates and what runs them."""

    @property
    def quantizer(self) -> Quantizer:
        """Makes a candidate's model."""
        ...

    @property
    def device(self) -> Device:
        """Runs it."""
        ...


@dataclass(frozen=True)
class Attempt:
    """What a candidate scored, or why it failed.

    `undone` are the float layers that the device runs in integers anyway; `model` is what was
    measured, if it is small; `stopped` says why it was not measured on all samples.
    """

    measurement: Measurement | None = None
    failure: str = ""
    stopped: Stop | None = None
    undone: tuple[str, ...] = ()
    model: Model | None = None


def attempts(
    parts: Tools,
    subject: Subject,
    candidates: Sequence[Candidate],
    known: Mapping[str, Measurement] | None = None,
    rivals: Sequence[Rival] = (),
    may_stop: Collection[Candidate] = (),
    ahead: bool = False,
) -> Iterator[Attempt]:
    """Yield each candidate's attempt, in their order.

    `known` holds earlier measurements by the model's digest: no model is measured twice. Those that
    `may_stop` are stopped once one of the `rivals`, or an earlier candidate, dominates them. With
    `ahead`, all run before the first one is loaded as a whole, which takes less memory at a time.
    """
    measured = dict(known or {})
    built = [_built(parts, subject, candidate) for candidate in candidates]
    shared = _shared(parts, subject, candidates, built)
    runs = _Runs(subject, Contest(subject, list(rivals)), may_stop, shared)
    del shared
    models = list(zip(candidates, built, strict=True))
    if ahead:
        runs.ahead([each for each in models if _is_new(each[1], measured)])
    for candidate, model in models:
        if isinstance(model, Attempt):
            yield model
            continue
        try:
            if model.digest not in measured:
                measured[model.digest] = runs.measured(candidate, model, parts.device)
            layers = undone(candidate, model, parts.device)
        except MetricError:
            raise
        except Dominated as dominated:
            yield Attempt(stopped=dominated.stop)
        except Exception as error:
            yield _failed(error)
        else:
            kept = model if model.size < _SMALL else None
            yield Attempt(measured[model.digest], undone=tuple(layers), model=kept)


def _is_new(model: Model | Attempt, measured: Mapping[str, Measurement]) -> bool:
    return isinstance(model, Model) and model.digest not in measured


@dataclass(eq=False)
class _Runs:
    """Measures models; their outputs come from `shared` runs where they can."""

    subject: Subject
    contest: Contest
    may_stop: Collection[Candidate]
    shared: Callable[[Model, Watch | None], Outputs | None]
    _found: dict[str, Outputs | Exception] = field(default_factory=dict)

    def ahead(self, models: Sequence[tuple[Candidate, Model | Attempt]]) -> None:
        """Run these models now, and let go what they share.

        Decoding coded weights is when processes take most memory: activations are then gone.
        """
        held = len(models) * sum(
            np.asarray(each).nbytes for of in self.subject.reference.values() for each in of
        )
        coded = any(isinstance(each, Model) and has_coded_weights(each.proto) for _, each in models)
        if not coded or held > _HELD_BYTES:
            return
        measured = self.contest
        # Who runs ahead may still fail when it is loaded: then it has stopped nobody.
        self.contest = Contest(self.subject, list(measured.rivals))
        for candidate, model in models:
            assert isinstance(model, Model)
            try:
                outputs = self._outputs(candidate, model)
            except Exception as error:
                # Its frames would keep alive all that is to be let go.
                self._found[model.digest] = error.with_traceback(None)
                continue
            if outputs is not None:
                self._found[model.digest] = outputs
                if self.may_stop:
                    losses = losses_of(self.subject.metric, self.subject.reference, outputs)
                    self.contest.add(model.size, losses)
        self.contest = measured
        self.shared = lambda model, watch: None
        give_back()

    def measured(self, candidate: Candidate, model: Model, device: Device) -> Measurement:
        """Return what this candidate scores; raise Dominated once it cannot be on the front."""
        outputs = self._found.pop(model.digest, None)
        if isinstance(outputs, Dominated) and not self.contest.confirms(outputs.stop):
            outputs = None
        if isinstance(outputs, Exception):
            raise outputs
        if outputs is None:
            outputs = self._outputs(candidate, model)
        watch = self._watch(candidate, model) if outputs is None else None
        found = measure(model, self.subject, device, outputs, candidate, watch)
        self.contest.add(model.size, found.losses)
        return found

    def _outputs(self, candidate: Candidate, model: Model) -> Outputs | None:
        """Return the outputs of this model; None if it has to run as a whole."""
        if same_computation(model, self.subject.model):
            return self.subject.reference
        return self.shared(model, self._watch(candidate, model))

    def _watch(self, candidate: Candidate, model: Model) -> Watch | None:
        return self.contest.watch(model.size) if candidate in self.may_stop else None


def shares_prefixes(device: Device) -> bool:
    """Return whether running a model in parts on this device gives the same outputs."""
    return isinstance(device, SharesPrefixes) and device.shares_prefixes


def _shared(
    parts: Tools,
    subject: Subject,
    candidates: Sequence[Candidate],
    built: Sequence[Model | Attempt],
) -> Callable[[Model, Watch | None], Outputs | None]:
    """Return what gives the outputs of these models, run in parts; None if they cannot be.

    Coded weights all come from a few streams, which parts cannot share: plain weights are in their
    place.
    """
    makers = {
        model.digest: functools.partial(_decoded, parts.quantizer, subject, candidate, model)
        for candidate, model in zip(candidates, built, strict=True)
        if isinstance(model, Model)
    }
    if not SHARED_BYTES or len(makers) < 2 or not _shares(parts.device, subject):
        return lambda model, watch: None
    places = {digest: place for place, digest in enumerate(makers)}
    how = (subject.samples, subject.batch, parts.device, subject.observed, SHARED_BYTES)
    try:
        runs = SharedRuns(list(makers.values()), *how)
    except Exception as error:  # Whatever a quantizer raises: the files themselves may run.
        _log.info("Candidates run as wholes: %s", reason(error))
        return lambda model, watch: None
    return lambda model, watch: runs.outputs(places[model.digest], watch)


def _decoded(quantizer: Quantizer, subject: Subject, candidate: Candidate, model: Model) -> Model:
    """Return the candidate's model, with plain weights in place of coded ones."""
    if not has_coded_weights(model.proto):
        return model
    if isinstance(quantizer, Previews):
        return quantizer.preview(subject.model, subject.ranges, candidate)
    return unpacked(model)


def _shares(device: Device, subject: Subject) -> bool:
    """Return whether to run models in parts; models that are too large to copy are not.

    Nor are those with several outputs: a second one may keep nodes from being fused.
    """
    alone = len(subject.model.proto.graph.output) == 1 and subject.observed.is_plain
    return alone and shares_prefixes(device) and not subject.model.is_large


def _built(parts: Tools, subject: Subject, candidate: Candidate) -> Model | Attempt:
    """Return the candidate's model, or why it cannot be built."""
    try:
        with peak():
            return parts.quantizer.quantize(subject.model, subject.ranges, candidate)
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> Attempt:
    return Attempt(failure=reason(error))
