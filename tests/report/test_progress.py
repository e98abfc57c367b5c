import io
import re

import pytest
from rich.console import Console
from studies import trial

from seqto.report import progress as module
from seqto.report.progress import Ended, StepLines, StudyProgress, table_of
from seqto.types import TrialState


def run(console: Console) -> None:
    done = trial(7, accuracy_loss=0.011, size_bytes=5_000_000.0)
    failed = trial(8, state=TrialState.FAILED, failure="[/red] no room")
    with StudyProgress(console) as progress:
        progress.advance(done, 1, None)
        progress.advance(failed, 2, 30)


def test_progress_shows_the_candidate_and_the_total() -> None:
    stream = io.StringIO()
    run(Console(file=stream, width=80, force_terminal=True, color_system=None))
    text = stream.getvalue()
    assert re.search(r"#7 +5.00 MB +1.10 % +on the front so far", text)
    assert "1/?" in text
    assert re.search(r"#8 +failed", text)
    assert "2/30" in text


def test_time_left_is_told_only_where_it_is_known() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=100, force_terminal=True, color_system=None)
    with StudyProgress(console) as progress:
        progress._progress.refresh()
        assert "left" not in stream.getvalue()
        for done in range(1, 5):
            progress.advance(trial(done, accuracy_loss=0.0, size_bytes=1.0), done, 40)
    assert re.search(r"\d:\d\d:\d\d left", stream.getvalue())


def test_progress_keeps_its_speed_when_the_total_grows() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    with StudyProgress(console, total=5) as progress:
        for done in range(1, 5):
            progress.advance(trial(done, accuracy_loss=0.0, size_bytes=1.0), done, 10 * done)
        task = progress._progress.tasks[0]
        assert (task.completed, task.total) == (4, 40)
        assert task.speed is not None and task.time_remaining is not None


def test_progress_is_silent_without_a_terminal() -> None:
    stream = io.StringIO()
    with StudyProgress(Console(file=stream, force_terminal=False), total=3) as progress:
        progress.advance(trial(0, accuracy_loss=0.0, size_bytes=1.0), 1, 3)
    assert stream.getvalue() == ""


def test_each_phase_has_its_own_count() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True, color_system=None)
    with StudyProgress(console) as progress:
        for done in range(5):
            progress.say("ranking layers", done, 65)
        progress._progress.refresh()
        assert re.search(r"ranking layers .* 4/65 .*left", stream.getvalue())
        progress.say("screening", 1, 16)
        task = progress._progress.tasks[0]
        assert (task.completed, task.total, task.time_remaining) == (1, 16, None)
        progress.say("measuring", 0, 6)
        progress.advance(trial(0, accuracy_loss=0.0, size_bytes=1e8), 1, 6)
        progress.say("drawing")
        progress._progress.refresh()
    text = stream.getvalue()
    assert re.search(r"#0 +100.00 MB +0.00 %", text) and re.search(r"measuring .* 1/6", text)
    assert "drawing" in text and "0/?" not in text
    assert max(len(line) for line in re.split(r"[\r\n]|\x1b\[\S+", text)) <= 80


def test_without_a_terminal_there_is_a_line_for_each_step() -> None:
    stream = io.StringIO()
    with StepLines(Console(file=stream, width=80, force_terminal=False)) as lines:
        lines.say("starting", 2, 3)
        for done in range(6):
            lines.say("calibrating", done, 5)
        lines.say("measuring", 0, 2)
        lines.advance(trial(0, accuracy_loss=0.011, size_bytes=5e6), 1, 2)
        lines.advance(trial(1, state=TrialState.FAILED, failure="no room"), 2, None)
        lines.say("drawing")
    found = [re.sub(r"\d\.\d s", "T", line) for line in stream.getvalue().splitlines()]
    assert found == [
        "starting: T",
        "calibrating (5): T",
        "measuring 1/2: #0 loss 1.10 %, size 5.00 MB, on the front so far (T)",
        "measuring 2/?: #1 failed (T)",
        "drawing: T",
    ]


def test_progress_says_what_is_being_done() -> None:
    console = Console(record=True, width=100, force_terminal=True, file=io.StringIO())
    with StudyProgress(console) as progress:
        progress.say("drawing")
        progress._progress.refresh()
    assert "drawing" in console.file.getvalue()


def test_a_long_phase_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    with StepLines(Console(file=stream, width=80, force_terminal=False)) as lines:
        for done in range(5):
            now[0] += 20.0
            lines.say("ranking layers", done, 4)
    assert stream.getvalue().splitlines() == [
        "ranking layers 1/4, 20 s so far",
        "ranking layers 3/4, 60 s so far",
        "ranking layers (4): 80.0 s",
    ]


def test_the_front_so_far_forgets_what_is_beaten() -> None:
    found = Ended()
    found.add(trial(0, accuracy_loss=0.2, size_bytes=9.0))
    assert found.front == {"run-0"}
    found.add(trial(1, state=TrialState.FAILED))
    found.add(trial(2, accuracy_loss=0.1, size_bytes=8.0))
    found.add(trial(2, accuracy_loss=0.1, size_bytes=8.0))
    assert found.front == {"run-2"} and len(found.trials) == 3


def test_a_full_screen_keeps_the_front_and_the_latest() -> None:
    found = Ended()
    found.add(trial(0, accuracy_loss=0.0, size_bytes=1.0))
    for at in range(1, 9):
        found.add(trial(at, accuracy_loss=0.5, size_bytes=10.0 + at))
    assert [each.index for each in found.shown(4)] == [0, 6, 7, 8]
    assert len(found.shown(99)) == 9
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(table_of(found, 4))
    assert "(5 more)" in console.export_text()


def test_another_part_may_show_something_of_its_own() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=80, force_terminal=True, color_system=None)
    with StudyProgress(console) as progress:
        with progress.aside():
            assert not progress._progress.live.is_started
        assert progress._progress.live.is_started
