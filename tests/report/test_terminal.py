import io
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from studies import hand_study, ladder_study, random_study, study, trial

from seqto.pareto.front import find_front
from seqto.quantizers.auto import AutoQuantizer
from seqto.report.terminal import in_words, print_front, print_schemes
from seqto.types import Candidate, StudyRecord, Trial

LOSS_SIZE = ("accuracy_loss", "size_bytes")


def printed(record: StudyRecord, objectives: tuple[str, ...] = LOSS_SIZE, width: int = 100) -> str:
    console = Console(file=io.StringIO(), record=True, width=width, force_terminal=True)
    print_front(console, record, find_front(record.trials, objectives, record.baseline))
    return console.export_text()


def test_table_shows_the_front_and_then_the_float_model() -> None:
    lines = [line.split() for line in printed(hand_study()).splitlines()]
    assert lines[0][-7:] == ["3", "of", "4", "candidates", "on", "the", "front"]
    assert lines[1] == ["candidate", "excluded", "size", "of", "float", "loss"]
    assert lines[2] == ["#9", "2", "of", "3", "800.0", "KB", "80.0", "%", "0.00", "%", "accurate"]
    assert lines[3] == ["#7", "1", "of", "3", "400.0", "KB", "40.0", "%", "1.10", "%", "balanced"]
    assert lines[4] == ["#0", "0", "of", "3", "300.0", "KB", "30.0", "%", "10.00", "%", "small"]
    assert lines[5] == ["float", "3", "of", "3", "1.00", "MB", "100.0", "%", "0.00", "%"]


def test_recommended_are_told_in_words() -> None:
    words = "#7: 40 % of the size, differs from the float model on 1.1 % of samples"
    lines = [line.rstrip() for line in printed(hand_study()).splitlines()]
    assert f"balanced  {words}" in lines
    assert "accurate  #9: 80 % of the size, agrees with the float model on all samples" in lines


def test_a_trial_with_several_aliases_is_told_once() -> None:
    record = study([trial(0, accuracy_loss=0.0, size_bytes=100.0)])
    assert printed(record).count("#0:") == 1
    assert "balanced, accurate, small  #0:" in printed(record)


@pytest.mark.parametrize("width", [80, 100])
def test_everything_fits_the_width(width: int) -> None:
    record = random_study(150, 150)
    text = printed(record, (*LOSS_SIZE, "latency_ms"), width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert "latency" in text and "accuracy" in text
    assert "…" not in text
    assert all(alias in text for alias in ("balanced", "accurate", "small"))


def test_long_fronts_show_a_spread_with_all_recommended() -> None:
    record = ladder_study(60)
    front = find_front(record.trials, LOSS_SIZE, record.baseline)
    rows = [line.split()[0] for line in printed(record).splitlines() if " of 60 " in line]
    assert len(rows) == 12 + 1
    assert {f"#{each.trial.index}" for each in front.recommended} <= set(rows)
    assert rows[0] == f"#{front.members[0].index}"
    assert rows[-2:] == [f"#{front.members[-1].index}", "float"]
    assert f"and {len(front.members) - 12} more" in printed(record)


def test_fronts_of_twelve_are_shown_whole() -> None:
    trials = [trial(at, accuracy_loss=at / 100, size_bytes=900.0 - at) for at in range(12)]
    assert "more" not in printed(study(trials))


def test_other_objectives_have_a_column() -> None:
    record = study([trial(0, kl=0.25, size_bytes=10.0)])
    lines = printed(record, ("kl", "size_bytes")).splitlines()
    assert "kl" in lines[1] and "loss" not in lines[1]
    assert "0.25" in lines[2]


@pytest.mark.parametrize(
    ("latency", "words"),
    [(5.0, "2.0x faster"), (15.0, "1.5x slower"), (10.2, "about as fast")],
)
def test_latency_is_told_against_the_float_model(latency: float, words: str) -> None:
    assert in_words({"latency_ms": latency}, {"latency_ms": 10.0}, "top1") == words
    assert in_words({"latency_ms": latency}, {}, "top1") == f"{latency:.2f} ms"


def test_fractions_of_a_moment_are_not_told_apart() -> None:
    assert in_words({"latency_ms": 0.14}, {"latency_ms": 0.07}, "top1") == "about as fast"


@pytest.mark.parametrize(("low", "words"), [(10.5, "about as fast"), (11.5, "1.2x slower")])
def test_latencies_within_each_others_noise_are_not_told_apart(low: float, words: str) -> None:
    slow = {"latency_ms": 12.0, "latency_p10_ms": low, "latency_p90_ms": 14.0}
    own = {"latency_ms": 10.0, "latency_p10_ms": 9.0, "latency_p90_ms": 11.0}
    assert in_words(slow, own, "top1") == words
    faster = in_words(own, slow, "top1")
    assert faster == words.replace("slower", "faster")


def scheme(name: str, harm: float, exact: float, base: bool = False) -> dict[str, Any]:
    return {
        **{"scheme": name, "divergence": harm, "exact_divergence": exact, "size_bytes": 250},
        **{"size_ratio": 0.25, "latency_ms": 3.14159, "latency_p10_ms": 2.0, "base": base},
    }


def schemes_printed(*rows: dict[str, Any], width: int = 100) -> str:
    console = Console(file=io.StringIO(), record=True, width=width, force_terminal=True)
    print_schemes(console, study([], tables={"schemes": rows}))
    return console.export_text()


SAFE = scheme("int8 per channel, safe", 0.0123, 0.0122, base=True)
FAST = scheme("int8 per channel, fast", 0.5466, 0.0122)


def test_schemes_are_a_table_with_the_bases_marked() -> None:
    header, safe, fast, *_ = schemes_printed(SAFE, FAST).splitlines()
    assert header.split() == ["full", "quantization", "of", "float", *header.split()[4:]]
    assert header.split()[4:] == ["divergence", "exact", "latency"]
    words = ["int8", "per", "channel,", "safe", "25.0", "%", "0.0123", "0.0122", "3.14", "ms"]
    assert safe.split() == [*words, "base"]
    assert fast.split()[3:] == ["fast", "25.0", "%", "0.5466", "0.0122", "3.14", "ms"]


def test_gap_to_the_exact_result_is_called_an_artefact_of_the_cpu() -> None:
    assert "an artefact of the CPU, not of a layer" in schemes_printed(SAFE, FAST, width=200)
    assert "artefact" not in schemes_printed(SAFE)
    # Roundings are none.
    assert "artefact" not in schemes_printed(scheme("a", 0.0015, 0.0009), scheme("b", 0.4, 0.3))


def test_without_schemes_nothing_is_said_of_them() -> None:
    assert schemes_printed() == ""
    console = Console(file=io.StringIO(), record=True, width=100, force_terminal=True)
    print_schemes(console, hand_study())
    assert console.export_text() == ""


def test_names_of_schemes_are_no_markup() -> None:
    assert "[bold]x[/]" in schemes_printed(scheme("[bold]x[/]", 0.1, 0.1))


@pytest.mark.parametrize("width", [80, 100])
def test_schemes_fit_the_width(width: int) -> None:
    rows = [scheme(name, 12.3456, 0.1, base=True) for name in AutoQuantizer().schemes]
    text = schemes_printed(*rows, width=width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    assert text.count("base") == len(rows) and "…" not in text
    # One line each, between the header and the note on the artefact.
    assert len([line for line in text.splitlines() if "12.3456" in line]) == len(rows)


def test_recommended_say_their_scheme() -> None:
    record = study([trial(0, accuracy_loss=0.0, size_bytes=1.0, scheme="7 bits per tensor, safe")])
    assert "on all samples (7 bits per tensor, safe)" in printed(record, width=120)
    assert "(" not in printed(hand_study()).partition("balanced  #")[2]


def test_loss_of_another_metric_is_not_called_disagreement() -> None:
    assert in_words({"accuracy_loss": 0.05}, {}, "topk") == "topk loss 5.0 %"
    assert "differs" in in_words({"accuracy_loss": 0.05}, {}, "top1")


def test_file_that_is_larger_than_the_original_says_so() -> None:
    assert "larger" in in_words({"size_ratio": 1.05}, {}, "top1")
    assert "larger" not in in_words({"size_ratio": 0.95}, {}, "top1")


def test_mixed_precisions_are_counted_by_their_width() -> None:
    mixed = Candidate.of({"a": "float16", "b": "int4", "c": "int8", "d": "int4"})
    assert mixed.in_words() == "layers 2xi4 1xi8 1xf16"
    assert Candidate.excluding("abc", "a").in_words() == "1 of 3 layers in float32"


def mixed_study() -> StudyRecord:
    record = random_study(150, 150)
    half = dict.fromkeys("abcdefghij", "float16") | dict.fromkeys("klmnopqrst", "int4")
    trials = [
        replace(each, candidate=Candidate.of(half | {"u": "int8", "v": "float32"}))
        for each in record.trials[:-20]
    ]
    plain = [
        replace(each, candidate=Candidate.excluding("abcdefghijklmnopqrstuv", "a"))
        for each in record.trials[-20:]
    ]
    return replace(record, trials=(*trials, *plain))


@pytest.mark.parametrize(
    ("width", "titles"),
    [(120, {"of float", "accuracy"}), (80, {"accuracy"}), (74, set()), (66, set())],
)
def test_aliases_are_never_cut(width: int, titles: set[str]) -> None:
    text = printed(mixed_study(), (*LOSS_SIZE, "latency_ms"), width)
    lines = text.splitlines()
    (at,) = [at for at, line in enumerate(lines) if line.startswith("candidate ")]
    head, *rows = lines[at:]
    assert {title for title in ("of float", "accuracy") if title in head} == titles
    table = "\n".join(rows[:13])
    assert "…" not in table
    assert all(alias in table for alias in ("balanced", "accurate", "small"))


@pytest.mark.parametrize(("width", "titles"), [(100, {"accuracy", "F1"}), (80, {"accuracy"})])
def test_accuracy_stays_longer_than_f1(width: int, titles: set[str]) -> None:
    figures = {"accuracy_loss": 0.0, "size_bytes": 135300.0, "latency_ms": 0.09}
    record = study([trial(0, **figures, accuracy=0.25, f1=0.2)])
    (head,) = [line for line in printed(record, width=width).splitlines() if "candidate " in line]
    assert {title for title in ("accuracy", "F1") if title in head} == titles


def test_layers_of_a_mixed_front_are_counted_alike_in_all_rows() -> None:
    text = printed(mixed_study(), (*LOSS_SIZE, "latency_ms"), 120)
    (line,) = [line for line in text.splitlines() if line.strip().startswith("float ")]
    assert line.split()[1] == "22xf32"
    assert " of 22" not in text


def with_interval(index: int, loss: float, size: float, half: float) -> Trial:
    interval = {"accuracy_loss_low": loss - half, "accuracy_loss_high": loss + half}
    return trial(index, accuracy_loss=loss, size_bytes=size, size_ratio=size / 100, **interval)


@pytest.mark.parametrize(("half", "said"), [(0.1, True), (0.01, False)])
def test_losses_that_cannot_be_told_apart_say_so(half: float, said: bool) -> None:
    record = study([with_interval(0, 0.3, 10.0, half), with_interval(1, 0.2, 20.0, half)])
    assert ("the losses of #0 and #1 apart" in printed(record)) is said


@pytest.mark.parametrize(("lost", "said"), [(4, True), (40, False)])
def test_losses_of_the_same_samples_are_compared_in_pairs(lost: int, said: bool) -> None:
    # Their intervals overlap by far.
    few, more = np.zeros(300), np.zeros(300)
    few[:100] = more[: 100 + lost] = 1
    trials = [
        replace(with_interval(at, losses.mean(), size, 0.2), losses=tuple(losses))
        for at, (losses, size) in enumerate([(more, 10.0), (few, 20.0)])
    ]
    assert ("the losses of #0 and #1 apart" in printed(study(trials))) is said
