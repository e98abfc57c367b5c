"""The description of a study's run, which seqto and people write together."""

from collections.abc import Callable

import pytest
from mlflow.tracking import MlflowClient
from mlflow_inspector import MlflowInspector
from suite_trackers import Desk

pytestmark = pytest.mark.usefixtures("no_mlflow_around")


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_what_a_person_wrote_below_the_note_is_kept(
    desk: Desk, client: MlflowClient, newline: str
) -> None:
    desk.tracker.log_note(desk.study, "first")
    edited = f"{MlflowInspector(client).note(desk.study)}\n\nMine, *all* mine.\n"
    client.set_tag(desk.study, "mlflow.note.content", edited.replace("\n", newline))
    for text in ("second", "third"):
        desk.tracker.log_note(desk.study, text)
    held = MlflowInspector(client).note(desk.study)
    assert held.startswith("third\n") and held.endswith("\n\nMine, *all* mine.")
    assert "first" not in held and "second" not in held


@pytest.mark.parametrize(
    "edit",
    [
        lambda held: held.replace("first", "first, but changed"),
        lambda held: "first, but changed",
        lambda held: f"{held.replace('first', 'first, but changed')}\n\nAnd more.",
    ],
)
def test_note_that_a_person_changed_is_kept_below(
    desk: Desk, client: MlflowClient, edit: Callable[[str], str]
) -> None:
    desk.tracker.log_note(desk.study, "first")
    held = MlflowInspector(client).note(desk.study)
    client.set_tag(desk.study, "mlflow.note.content", edit(held))
    for text in ("second", "third"):
        desk.tracker.log_note(desk.study, text)
    ours, _, theirs = MlflowInspector(client).note(desk.study).partition("[//]: # ")
    assert ours.startswith("third\n") and "first" not in ours
    assert theirs.count("first, but changed") == 1
    assert "second" not in theirs


def test_notes_that_leave_no_space_are_left_alone(
    desk: Desk, client: MlflowClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.set_tag(desk.study, "mlflow.note.content", "m" * 7900)
    desk.tracker.log_note(desk.study, "front " * 50)
    assert MlflowInspector(client).note(desk.study) == "m" * 7900
    assert desk.study in caplog.text
