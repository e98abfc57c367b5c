"""Candidates that are stopped once a smaller one is certain to be as good."""

import pickle
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tiny_studies import Lab

from seqto.devices.onnxruntime import OnnxRuntimeDevice, OnnxRuntimeProgram
from seqto.errors import DeviceImportError
from seqto.measuring import batch as module
from seqto.measuring.batch import Attempt, attempts
from seqto.measuring.stopping import Contest, Dominated, Rival
from seqto.metrics.agreement import Top1Agreement
from seqto.metrics.cosine import NeighbourLoss
from seqto.types import Arrays, Candidate, Measurement, Model, TrialState


class Counting(OnnxRuntimeDevice):
    """A CPU that counts how many samples it runs."""

    def __init__(self) -> None:
        super().__init__(warmup=0, repeats=1)
        self.samples = 0

    def load(self, model: Model) -> OnnxRuntimeProgram:
        """Return the model ready to be counted."""
        program = super().load(model)
        run = program.run

        def counted(inputs: Arrays) -> Sequence[np.ndarray]:
            self.samples += len(next(iter(inputs.values())))
            return run(inputs)

        program.run = counted  # type: ignore[method-assign]
        return program


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return Lab.at(tmp_path_factory.mktemp("lab"))


def coarse_and_coarser(lab: Lab) -> list[Candidate]:
    """Return a good small candidate and, with the same beginning, larger ones that lose more."""
    *first, last = lab.subject.layer_names
    begun = dict.fromkeys(first, "coded_2")
    return [Candidate.of({**begun, last: each}) for each in ("coded_1", "float16", "float32")]


def tried(
    lab: Lab, candidates: Sequence[Candidate], rivals: list[Rival] | None
) -> tuple[list[Attempt], int]:
    """Return what becomes of these candidates, and how many samples run; None stops nobody."""
    device = Counting()
    parts = replace(lab.parts, device=device)
    stoppable = () if rivals is None else candidates
    found = list(attempts(parts, lab.subject, candidates, None, rivals or (), stoppable))
    return found, device.samples


def measured(attempt: Attempt) -> Measurement:
    assert attempt.measurement is not None
    return attempt.measurement


@pytest.mark.parametrize("shared", [True, False])
def test_what_a_smaller_one_dominates_is_stopped_early(
    lab: Lab, shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shared:
        monkeypatch.setattr(module, "SHARED_BYTES", 0)
    candidates = coarse_and_coarser(lab)
    whole, all_samples = tried(lab, candidates, None)
    truth = [measured(each) for each in whole]
    best = Rival(0.0, min(sum(each.losses) for each in truth) / 2)
    assert best.lost > 0, "or these candidates lose nothing, and are no test"
    found, few_samples = tried(lab, candidates, [best])
    assert few_samples < 0.75 * all_samples, "where all models lose half of what they lose"
    for attempt, each in zip(found, truth, strict=True):
        assert attempt.measurement is None and not attempt.failure
        assert attempt.stopped is not None
        figures = attempt.stopped.figures
        # What is said of it is true.
        low, high = figures["accuracy_loss_low"], figures["accuracy_loss_high"]
        assert best.lost / len(each.losses) <= low <= each.metrics["accuracy_loss"] <= high
        assert figures["size_ratio"] == each.metrics["size_ratio"]
        assert f"of {len(each.losses)} samples" in attempt.stopped.why


def test_nothing_on_the_front_is_stopped(lab: Lab) -> None:
    candidates = coarse_and_coarser(lab)
    truth = [measured(each) for each in tried(lab, candidates, None)[0]]
    found = tried(lab, candidates, [])[0]
    for at, (attempt, each) in enumerate(zip(found, truth, strict=True)):
        mine = sum(each.losses)
        smaller = [
            sum(other.losses)
            for other in truth[:at]
            if other.metrics["size_bytes"] <= each.metrics["size_bytes"]
        ]
        if attempt.stopped is None:
            assert measured(attempt).losses == each.losses
        else:
            assert min(smaller) <= mine, "only what is dominated"
    assert found[0].stopped is None


def test_larger_rivals_stop_nothing(lab: Lab) -> None:
    candidates = coarse_and_coarser(lab)[:1]
    (found,), _ = tried(lab, candidates, [Rival(1e9, 0.0)])
    assert found.stopped is None and measured(found).losses


def test_where_a_smaller_one_loses_nothing_no_sample_runs(lab: Lab) -> None:
    (found,), samples = tried(lab, coarse_and_coarser(lab)[:1], [Rival(1.0, 0.0)])
    assert found.stopped is not None and samples == 0
    assert found.stopped.why.startswith("stopped after 0 of ")


def test_samples_that_others_lost_come_first(lab: Lab) -> None:
    count = len(lab.subject.samples)
    contest = Contest(lab.subject, [])
    for lost in ([5, 9], [9]):
        contest.add(10.0, [float(at in lost) for at in range(count)])
    watch = contest.watch(20.0)
    assert watch is not None
    assert list(watch.order[:3]) == [9, 5, 0] and sorted(watch.order) == list(range(count))


def test_samples_that_are_seen_again_count_once(lab: Lab) -> None:
    """A part may fail after some samples: then the whole model runs, from the first one on."""
    reference = lab.subject.reference
    (name,) = reference
    wrong = [{name: -reference[name][at]} for at in range(4)]
    watch = Contest(lab.subject, [Rival(0.0, 5.0)]).watch(1.0)
    assert watch is not None
    for _ in range(3):
        watch.see(0, wrong)
    with pytest.raises(Dominated):
        watch.see(4, [{name: -reference[name][4]}])


def test_losses_that_depend_on_other_samples_stop_nobody(lab: Lab) -> None:
    rival = Rival(0.0, 1.0)
    of = [replace(lab.subject, metric=each) for each in (Top1Agreement(), NeighbourLoss())]
    assert [Contest(each, [rival]).watch(1.0) is None for each in of] == [False, True]
    assert Contest(of[0], []).watch(1.0) is None


def test_only_those_are_stopped_that_may_be(lab: Lab) -> None:
    candidates = coarse_and_coarser(lab)
    stoppable = candidates[:1]
    found = list(attempts(lab.parts, lab.subject, candidates, None, [Rival(0.0, 0.0)], stoppable))
    assert [each.stopped is not None for each in found] == [True, False, False]


def test_a_stop_comes_back_from_another_process(lab: Lab) -> None:
    (found,), _ = tried(lab, coarse_and_coarser(lab)[:1], [Rival(1.0, 0.0)])
    assert pickle.loads(pickle.dumps(found)) == found
    with pytest.raises(Dominated) as raised:
        Contest(lab.subject, [Rival(1.0, 0.0)]).watch(2.0)
    assert pickle.loads(pickle.dumps(raised.value)).stop == raised.value.stop


def test_stopped_is_settled() -> None:
    settled = {state for state in TrialState if state.is_settled}
    assert settled == {TrialState.COMPLETE, TrialState.STOPPED}


class Refusing(Counting):
    """A CPU that cannot load the first file as a whole."""

    refused: str = ""

    def load(self, model: Model) -> OnnxRuntimeProgram:
        """Return the model ready to be counted."""
        if model.digest == self.refused:
            raise DeviceImportError("it has no room for it")
        return super().load(model)


def test_who_ran_ahead_and_failed_has_stopped_nobody(lab: Lab) -> None:
    candidates = coarse_and_coarser(lab)
    built = lab.parts.quantizer.quantize(lab.subject.model, lab.subject.ranges, candidates[0])
    device = Refusing()
    parts = replace(lab.parts, device=device)
    ahead = list(attempts(parts, lab.subject, candidates, None, (), candidates, True))
    assert any(each.stopped for each in ahead), "or this is no test"
    device.refused = built.digest
    found = list(attempts(parts, lab.subject, candidates, None, (), candidates, True))
    assert "no room" in found[0].failure
    assert found[1].stopped is None and measured(found[1]).losses
