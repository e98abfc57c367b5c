"""Studies side by side: their labels, their summaries, and the candidates they share."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from studies import TAGS, ladder_study, study, trial

from seqto.pareto.front import find_front
from seqto.report.comparison import Smallest, compare, labels
from seqto.report.comparison_page import PAGE, comparison_page, fronts_chart, write_comparison
from seqto.report.comparison_table import print_comparison
from seqto.report.document import report
from seqto.types import OVERRIDES, Candidate, StudyRecord, TrialState


def told(record: StudyRecord, run: str = "0123456789", **tags: str) -> dict[str, Any]:
    """Return the report of this study with other tags."""
    named = {f"seqto.{name}": value for name, value in tags.items()}
    moved = replace(record, id=run, tags={**record.tags, **named})
    front = find_front(record.trials, ["accuracy_loss", "size_bytes"], record.baseline, 3)
    return report(moved, front, {"device.runtime": f"runtime of {moved.tags['seqto.device']}"})


def figures(loss: float, latency: float, size: float = 100.0) -> dict[str, float]:
    return {"accuracy_loss": loss, "latency_ms": latency, "size_bytes": size}


HERE = study([trial(0, **figures(0.2, 2)), trial(1, excluded=["a"], **figures(0, 3, 200))])
THERE = study(
    [
        trial(0, state=TrialState.FAILED, failure="DeviceRunError: <b>SIGSEGV</b>"),
        trial(1, excluded=["a"], **figures(0.1, 9, 200)),
        trial(2, excluded=["a", "b"], **figures(0.015, 9, 300)),
    ]
)


def squeezed(line: str) -> str:
    return " ".join(line.split())


def both() -> list[dict[str, Any]]:
    return [told(HERE), told(THERE, device="phone")]


def test_studies_are_called_by_what_differs() -> None:
    assert labels(both()) == ["cpu", "phone"]
    assert compare(both()).title == "efficientnet-lite0 · static"
    kinds = [told(HERE), told(HERE, quantization="dynamic"), told(HERE, model="other")]
    assert labels(kinds) == [
        "efficientnet-lite0 · static",
        "efficientnet-lite0 · dynamic",
        "other · static",
    ]


def test_studies_alike_are_called_by_their_words_or_their_runs() -> None:
    words = ({OVERRIDES: json.dumps(["device=cpu", f"search.step={step}"])} for step in (1, 2))
    made = [replace(HERE, tags={**TAGS, **tags}) for tags in words]
    assert labels([told(each) for each in made]) == ["search.step=1", "search.step=2"]
    assert labels([told(HERE, "a" * 32), told(HERE, "b" * 32)]) == ["aaaaaaaa", "bbbbbbbb"]
    mixed = [told(HERE, "a" * 32), told(HERE, "b" * 32), told(HERE, "c" * 32, device="phone")]
    assert labels(mixed) == ["cpu · aaaaaaaa", "cpu · bbbbbbbb", "phone"]


def test_the_same_candidates_are_side_by_side() -> None:
    info = compare(both())
    assert [len(row.candidate.excluded) for row in info.rows] == [0, 1]
    first, second = info.rows
    assert first.cells["cpu"].metrics["accuracy_loss"] == 0.2
    assert "SIGSEGV" in first.cells["phone"].failure
    latencies = [second.cells[name].metrics["latency_ms"] for name in ("cpu", "phone")]
    assert latencies == [3, 9]
    assert info.alone == {"cpu": 0, "phone": 1}
    assert first.cells["cpu"].pareto and not first.cells["phone"].pareto


def test_summaries_share_a_reference() -> None:
    here, there = compare(both()).studies
    assert (here.candidates, here.failed, here.front) == (2, 0, 2)
    assert (there.candidates, there.failed, there.front) == (3, 1, 2)
    assert here.hypervolume == pytest.approx(0.8 * 0.9 + 0.2 * 0.8)
    assert there.hypervolume == pytest.approx(0.9 * 0.8 + 0.085 * 0.7)
    assert here.smallest == {0.02: Smallest(1, 200, 0.2, 3), 0.01: Smallest(1, 200, 0.2, 3)}
    assert there.smallest == {0.02: Smallest(2, 300, 0.3, 9), 0.01: None}
    assert there.runtime == "runtime of phone"


def test_the_hypervolume_does_not_depend_on_a_studys_own_objectives() -> None:
    front = find_front(HERE.trials, ["accuracy_loss", "latency_ms"], HERE.baseline, 3)
    other = report(replace(HERE, id="b" * 32), front, {})
    first, second = compare([told(HERE), other]).studies
    assert first.hypervolume == second.hypervolume


def test_losses_that_cannot_be_compared_are_told() -> None:
    assert compare(both()).caveats == ()
    (caveat,) = compare([told(HERE), told(HERE, metric="top5")]).caveats
    assert "metric" in caveat
    (caveat,) = compare([told(HERE), told(HERE, dataset="npz")]).caveats
    assert "samples" in caveat


def test_the_chart_has_a_series_a_study() -> None:
    chart = fronts_chart(compare(both()), both())
    assert [each["name"] for each in chart["series"]] == ["cpu", "phone"]
    dots = chart["series"][1]["dots"]
    assert [dot["kind"] for dot in dots] == ["front", "front", "float"]
    assert ("float32", "1 of 3: a") in dots[0]["facts"]
    assert [axis["title"] for axis in chart["x"]] == ["size (% of the float model)", "latency (ms)"]


def test_the_page_shows_numbers_and_no_markup_of_failures() -> None:
    text = comparison_page(compare(both()), both())
    assert "20.00 %" in text and "9.00 ms" in text and "1 of phone" in text
    assert "<b>SIG" not in text and "failed" in text


@pytest.mark.parametrize("missing", ["latency_ms", "accuracy_loss", "size_bytes"])
def test_what_was_not_measured_is_left_blank(missing: str) -> None:
    reports = both()
    for candidate in reports[0]["candidates"]:
        candidate["metrics"].pop(missing, None)
    reports[1]["candidates"][1]["metrics"][missing] = None
    assert comparison_page(compare(reports), reports)


def test_studies_with_nothing_in_common_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    other = study([trial(0, layers=("x", "y"), **figures(0.1, 1))])
    reports = [told(HERE), told(other, model="other")]
    info = compare(reports)
    assert info.rows == ()
    assert "No candidate is in two of these" in comparison_page(info, reports)
    print_comparison(Console(width=120), info)
    assert "no candidate is in two of them" in capsys.readouterr().out


def test_the_terminal_has_studies_and_shared_candidates(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(Console(width=120), compare(both()))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "efficientnet-lite0 · static"
    assert lines[1:3] == ["A  cpu  01234567", "B  phone  01234567"]
    assert lines[4].startswith(
        "With at most 2 % loss, cpu (#1, 20.0 % of the size) is the smallest"
    )
    at = next(at for at, line in enumerate(lines) if line.startswith("study"))
    assert squeezed(lines[at + 1]) == "A 2 2 0.880 20.0 % 20.0 % 3.00 ms"
    assert squeezed(lines[at + 2]) == "B 3 (1 failed) 2 0.779 30.0 % none 9.00 ms"
    assert squeezed(lines[at + 4]) == "shared candidate excluded A B"
    assert lines[at + 5].startswith("all int8")
    assert "failed" in lines[at + 5] and "20.00 %  2.00 ms" in lines[at + 5]


def test_the_verdict_names_the_smallest_and_the_fastest() -> None:
    found = compare(both()).verdict
    assert found == (
        "With at most 2 % loss, cpu (#1, 20.0 % of the size) is the smallest, before phone (#2, "
        "30.0 % of the size). cpu's is the fastest: 3.00 ms."
    )
    one = study([trial(0, **figures(0.5, 3))])
    found = compare([told(HERE), told(one, device="phone")]).verdict
    assert found.endswith("is the smallest; phone has none.")
    found = compare([told(one), told(one, device="phone")]).verdict
    assert found.startswith("No study has a candidate that loses at most 2 %; cpu has the best")


def test_equal_sizes_have_no_smallest() -> None:
    found = compare([told(HERE), told(HERE, device="phone")]).verdict
    assert found == (
        "With at most 2 % loss, cpu (#1, 20.0 % of the size) and phone (#1, 20.0 % of the size) "
        "are equally small."
    )


def test_models_are_compared_by_bytes() -> None:
    large = study([trial(0, **figures(0.0, 3, 500.0))], baseline={"size_bytes": 1e6})
    found = compare([told(HERE), told(large, model="large")]).verdict
    assert "efficientnet-lite0 (#1, 0.2 KB) is the smallest, before large (#0, 0.5 KB)" in found


def test_candidates_are_called_by_their_layers() -> None:
    assert [row.name for row in compare(both()).rows] == ["all int8", "int8 but a"]
    text = comparison_page(compare(both()), both(), ["a/report.html", "b/report.html"])
    assert ">int8 but a</td>" in text and '<a href="b/report.html">phone</a>' in text


def test_more_precisions_than_two_are_all_counted(capsys: pytest.CaptureFixture[str]) -> None:
    half = Candidate.of({"a": "float16", "b": "int4", "c": "int8"})
    mixed = replace(HERE, trials=(HERE.trials[0], replace(HERE.trials[1], candidate=half)))
    reports = [told(mixed), told(mixed, device="phone")]
    info = compare(reports)
    assert {row.name for row in info.rows} == {"all int8", "#1"}
    print_comparison(Console(width=120), info)
    text = capsys.readouterr().out
    assert "1xi4 1xi8 1xf16" in text and "3xi8" in text and "excluded" not in text
    assert "in float32" not in comparison_page(info, reports)


def test_long_names_are_in_one_piece(capsys: pytest.CaptureFixture[str]) -> None:
    word = "dataset.path=/a/very/long/path/to/photos search.maximum=1 device.repeats=3 seed=4"
    made = replace(HERE, tags={**TAGS, OVERRIDES: json.dumps(word.split())})
    reports = [told(HERE, "a" * 32), told(made, "b" * 32)]
    assert labels(reports) == ["default", word]
    print_comparison(Console(width=80), compare(reports))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["A  default  aaaaaaaa", f"B  {word}  bbbbbbbb"]
    assert max(map(len, lines[3:])) <= 80


def test_more_studies_than_letters(capsys: pytest.CaptureFixture[str]) -> None:
    print_comparison(Console(width=300), compare([told(HERE, f"{at:08}") for at in range(28)]))
    starts = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()[1:29]]
    assert (starts[0], starts[25:]) == ("A", ["Z", "A2", "B2"])


def test_the_page_is_written_whole(tmp_path: Path) -> None:
    reports = [told(ladder_study(seed=seed), f"run{seed}") for seed in (0, 1)]
    info, path = write_comparison(tmp_path / "new", reports)
    assert path == tmp_path / "new" / PAGE and path.stat().st_size > 10_000
    assert len(info.studies) == 2
