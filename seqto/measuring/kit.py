"""What a machine needs to measure a study's candidates: nothing that only another machine has.

The model, ranges, learned weights, samples and the float model's outputs travel as they are, with
their digest. So who receives them decodes, calibrates and learns nothing again.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from seqto.errors import StudyError
from seqto.graph.sent_models import NO_MODEL, PackedModel
from seqto.measuring.batch import Attempt, Tools, attempts
from seqto.measuring.provenance import check_provenance, machine_of, surroundings_of
from seqto.measuring.subject import Subject
from seqto.protocols import Device, Quantizer
from seqto.types import Candidate


@dataclass(frozen=True)
class Order:
    """A candidate as a few bytes: for each layer the number of its precision."""

    numbers: bytes
    scheme: str


@dataclass(frozen=True)
class Kit:
    """All that candidates are made of and measured with."""

    digest: str
    model: PackedModel
    subject: Subject
    """Without its model, and without the samples that only calibrate."""
    device: Device
    quantizer: Quantizer
    layers: tuple[str, ...]
    precisions: tuple[str, ...]
    surroundings: Mapping[str, str]
    """The versions and kernels of the study: with others, something else would be measured."""

    @classmethod
    def of(cls, tools: Tools, subject: Subject) -> "Kit":
        """Pack what the candidates of this subject need."""
        model = PackedModel.of(subject.model)
        rest = replace(subject, model=NO_MODEL, calibration=subject.calibration.first(0))
        return cls(
            digest=_digest(model, rest),
            model=model,
            subject=rest,
            device=tools.device,
            quantizer=tools.quantizer,
            layers=tuple(sorted(subject.layer_names)),
            precisions=tuple(tools.quantizer.precisions),
            surroundings=surroundings_of(tools.device),
        )

    def order(self, candidate: Candidate) -> Order:
        """Return a candidate in a few bytes."""
        chosen = dict(candidate.precisions)
        return Order(
            bytes(self.precisions.index(chosen[name]) for name in self.layers), candidate.scheme
        )

    def candidate(self, order: Order) -> Candidate:
        """Return the candidate that was ordered."""
        chosen = zip(self.layers, order.numbers, strict=True)
        return Candidate.of({name: self.precisions[each] for name, each in chosen}, order.scheme)

    def opened(self) -> Subject:
        """Return the subject; raise if it is not what was packed, or is not for this machine."""
        if _digest(self.model, self.subject) != self.digest:
            raise StudyError("what the study sent arrived changed: its digest is another one.")
        check_provenance(self.surroundings, surroundings_of(self.device))
        return replace(self.subject, model=self.model.unpacked())


def measure_ordered(kit: Kit, orders: Sequence[Order], timed_on: str = "") -> list[Attempt]:
    """Measure the candidates of these orders here.

    `timed_on` is the only kind of machine that may, where latency counts.
    """
    machine = machine_of(kit.device)
    if timed_on and machine != timed_on:
        raise StudyError(
            f"latency counts in this study and is that of {timed_on}: this machine is {machine}. "
            "Run it on machines of one kind, or leave latency out of objectives, constraint and "
            "gate."
        )
    candidates = [kit.candidate(each) for each in orders]
    return [_placed(each, machine) for each in attempts(kit, _opened(kit), candidates)]


_held: dict[str, Subject] = {}
"""The subject that this process measured last, by the digest of its kit."""


def _opened(kit: Kit) -> Subject:
    if kit.digest not in _held:
        opened = kit.opened()
        _held.clear()
        _held[kit.digest] = opened
    return _held[kit.digest]


def _placed(made: Attempt, machine: str) -> Attempt:
    if made.measurement is None:
        return made
    # Models stay here: the driver builds those of the front.
    return replace(made, measurement=replace(made.measurement, machine=machine), model=None)


def _digest(model: PackedModel, subject: Subject) -> str:
    """Return the sha256 of the content."""
    digest = hashlib.sha256(repr(sorted(subject.ranges.items())).encode())
    for array in _arrays(model, subject):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def _arrays(model: PackedModel, subject: Subject) -> Iterator[np.ndarray]:
    yield model.graph
    for held in (model.weights, model.learned, subject.samples.inputs):
        yield from (array for array in held.values() if array.dtype.kind not in "OUS")
    for entries in subject.reference.values():
        yield from (each for each in entries if each.dtype.kind not in "OUS")
