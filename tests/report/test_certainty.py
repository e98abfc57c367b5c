"""How sure an answer is, and what other words might find."""

from dataclasses import replace

import pytest
from studies import TAGS, study, trial

from seqto.pareto.front import find_front
from seqto.report.certainty import certainty, hints, remarks, speeds
from seqto.types import SAMPLES, Candidate, Front, StudyRecord, Trial

OBJECTIVES = ["accuracy_loss", "size_bytes"]


def measured(index: int, loss: float, size: float, ms: float, **more: float) -> Trial:
    """Return a trial of 200 samples, which lost the first of them."""
    found = trial(
        index,
        accuracy_loss=loss,
        accuracy_loss_low=max(loss - 0.01, 0),
        accuracy_loss_high=loss + 0.02,
        size_bytes=size * 1000,
        size_ratio=size,
        latency_ms=ms,
        latency_p10_ms=ms * 0.99,
        latency_p90_ms=ms * 1.01,
        **more,
    )
    lost = round(200 * loss)
    return replace(found, losses=(1.0,) * lost + (0.0,) * (200 - lost))


def coded(each: Trial) -> Trial:
    return replace(each, candidate=Candidate.of({"a": "coded_0.5", "b": "float16"}))


def recorded(*trials: Trial, **tags: str) -> tuple[StudyRecord, Front]:
    baseline = {"size_bytes": 1000.0, "latency_ms": 10.0}
    times = {"latency_p10_ms": 9.9, "latency_p90_ms": 10.1}
    named = {name.replace("_", ".", 1): tag for name, tag in tags.items()}
    everything = TAGS | {SAMPLES: "200"} | named
    record = study(trials, baseline=baseline | times, tags=everything)
    return record, find_front(record.trials, OBJECTIVES, record.baseline)


def test_it_says_the_interval_and_what_cannot_be_told_apart() -> None:
    record, front = recorded(measured(0, 0.01, 0.2, 10), measured(1, 0.0, 0.4, 10))
    sure = certainty(record, front)
    assert sure["how sure"] == (
        "#0 loses 0.00 to 3.00 % (95 %, 200 samples); "
        "too few samples to tell the losses of #0 and #1 apart (paired test)"
    )
    assert sure["to know more"] == "dataset.evaluation_size=800 would halve the interval"


def test_what_is_like_its_neighbours_is_not_like_all() -> None:
    # Of 200 samples 10, 5 and none are lost: 5 may be chance, 10 are not.
    sizes = {0.05: 0.1, 0.025: 0.2, 0.0: 0.4}
    trials = [measured(at, *each, 10) for at, each in enumerate(sizes.items())]
    record, front = recorded(*trials)
    assert [each.trial.index for each in front.recommended] == [1, 2, 0]
    assert certainty(record, front)["how sure"].endswith(
        "to tell the losses of #0 and #1, or of #1 and #2, apart (paired test)"
    )


def test_a_narrow_interval_needs_no_more_samples() -> None:
    narrow = measured(0, 0.0, 0.2, 10)
    narrow = replace(narrow, metrics={**narrow.metrics, "accuracy_loss_high": 0.004})
    assert "to know more" not in certainty(*recorded(narrow))


def test_a_study_that_recorded_no_interval_says_nothing() -> None:
    record = study([trial(0, accuracy_loss=0.1, size_bytes=300.0)])
    front = find_front(record.trials, OBJECTIVES, record.baseline)
    assert certainty(record, front) == {}


def test_a_faster_model_behind_the_front_is_told_of() -> None:
    small = coded(measured(1, 0.0, 0.2, 10))
    record, front = recorded(measured(0, 0.01, 0.3, 5), small)
    assert hints(record, front) == {
        "faster": "#0, 30 % of the size, differs from the float model on 1.0 % of samples, 2.0x "
        "faster: 'objectives=[accuracy_loss,size_bytes,latency_ms]' has it on the front"
    }


@pytest.mark.parametrize(("ms", "loss"), [(9.8, 0.01), (5, 0.3)])
def test_what_is_hardly_faster_or_ruined_is_not(ms: float, loss: float) -> None:
    small = coded(measured(1, 0.0, 0.2, 10))
    assert hints(*recorded(measured(0, loss, 0.3, ms), small)) == {}


def test_stored_weights_are_no_faster_and_integers_might_be() -> None:
    small = coded(measured(1, 0.0, 0.2, 10))
    found = hints(*recorded(small, seqto_quantization="weight_only"))
    assert found == {"faster": "quantization=static (or dynamic) runs layers in integers"}


def test_eight_bits_are_not_the_least() -> None:
    assert "fewer than 8 bits" in hints(*recorded(measured(0, 0.0, 0.3, 10)))["smaller"]


def timed(*trials: Trial) -> tuple[StudyRecord, Front]:
    record, _ = recorded(*trials)
    return record, find_front(record.trials, ["accuracy_loss", "latency_ms"], record.baseline)


def predicted(ms: float, conversions: float) -> dict[str, float]:
    return {"latency_predicted_ms": ms, "latency_conversions_ms": conversions}


def test_it_says_why_candidates_are_slow_and_how_good_predictions_were() -> None:
    slow = measured(0, 0.01, 0.2, 15, **predicted(14.25, 6.0))
    told = speeds(*timed(slow, measured(1, 0.0, 0.4, 10, **predicted(10.5, 0.0))))
    assert told["latency"] == "predicted within 5.0 % on average"
    assert told["slow"] == (
        "#0 takes 15.00 ms, float 10.00 ms (layers 8.25 ms, conversions 6.00 ms)"
    )
    assert told["speed"] == "no candidate is surely faster than the float model"


def test_a_fast_candidate_is_not_called_slow() -> None:
    record, front = timed(measured(0, 0.01, 0.2, 5, **predicted(5.0, 0.5)))
    assert set(speeds(record, front)) == {"latency"}
    assert "latency" in remarks(record, front)


def test_studies_that_do_not_ask_for_latency_say_only_why_what_is_recommended_is_slow() -> None:
    slow = replace(measured(0, 0.01, 0.2, 15), candidate=Candidate.excluding("abc", "b"))
    worse = measured(1, 0.02, 0.3, 20)
    record, front = recorded(slow, worse)
    assert {each.trial.index for each in front.recommended} == {0}
    assert speeds(record, front) == {
        "slow": "#0 takes 15.00 ms, float 10.00 ms (2 of 3 layers in int8) "
        "('objectives=[accuracy_loss,size_bytes,latency_ms]' looks for fast ones)"
    }
    # Nothing is said of what is as fast, or too noisy to tell.
    noisy = {**slow.metrics, "latency_p10_ms": 10.0}
    for each in (measured(0, 0.01, 0.2, 10), replace(slow, metrics=noisy)):
        assert speeds(*recorded(each)) == {}
