import dataclasses
import html
import re

import pytest
from studies import TAGS, hand_study, ladder_study, random_study

from seqto.pareto.front import find_front
from seqto.report.note import MOST_ROWS, plain, study_note
from seqto.types import COMMAND, REGISTERED, Candidate, Front, StudyRecord

LOSS_SIZE = ("accuracy_loss", "size_bytes")
ODD = '<img src=x onerror=alert(1)> | `code` **bold** _it_ [a](javascript:b) & &lt; \\ # "q"\nline'


def front_of(record: StudyRecord) -> Front:
    return find_front(record.trials, LOSS_SIZE, record.baseline)


def note(record: StudyRecord, **pages: str) -> str:
    return study_note(record, front_of(record), pages)


def named(record: StudyRecord, **tags: str) -> StudyRecord:
    added = {f"seqto.{name}": value for name, value in tags.items()}
    return dataclasses.replace(record, tags={**record.tags, **added})


def rows(text: str) -> list[list[str]]:
    """Return the cells of the table, without what only aligns them."""
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    spaces = re.compile(r"&emsp;|&numsp;")
    return [[spaces.sub("", cell).strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_note_opens_with_the_answer() -> None:
    first = note(hand_study()).splitlines()[0]
    assert first == (
        "**efficientnet-lite0 &#183; cpu &#183; static**: Take &#35;7 &#40;balanced&#41;&#58; "
        "40 % of the size, differs from the float model on 1.1 % of samples. "
        "3 of 4 candidates on the front."
    )


def test_table_is_the_front_and_then_the_float_model() -> None:
    assert rows(note(hand_study())) == [
        ["candidate", "in float32", "size", "of float", "loss", ""],
        ["#9", "2 of 3", "800.0 KB", "80.0 %", "0.00 %", "**accurate**"],
        ["#7", "1 of 3", "400.0 KB", "40.0 %", "1.10 %", "**balanced**"],
        ["#0", "0 of 3", "300.0 KB", "30.0 %", "10.00 %", "**small**"],
        ["float", "", "1.00 MB", "100.0 %", "0.00 %", ""],
    ]


def test_more_precisions_than_two_are_not_called_float32() -> None:
    record = hand_study()
    mixed = Candidate.of({"a": "int4", "b": "float16", "c": "int8"})
    trials = [
        dataclasses.replace(each, candidate=mixed) if each.index == 7 else each
        for each in record.trials
    ]
    head, *body = rows(note(dataclasses.replace(record, trials=tuple(trials))))
    assert head[1] == "layers"
    assert [row[1] for row in body] == ["1xi8 2xf32", "1xi4 1xi8 1xf16", "3xi8", ""]


def test_all_rows_have_as_many_cells_as_the_head() -> None:
    lines = [line for line in note(ladder_study()).splitlines() if line.startswith("|")]
    assert {line.count("|") for line in lines} == {lines[0].count("|")}
    assert "latency" in lines[0] and "accuracy" in lines[0]


def test_links_are_those_that_there_are() -> None:
    assert "](" not in note(hand_study())
    text = note(hand_study(), report="#/report", **{"run-7": "#/seven"})
    assert "[report](#/report)" in text and "[#7](#/seven)" in text
    assert text.count("](") == 2
    # MLflow covers all but the first two lines.
    assert text.startswith("[report](#/report)\n\n**")


def test_losses_that_cannot_be_told_apart_are_told() -> None:
    record = hand_study()
    trials = [
        dataclasses.replace(
            each, metrics={**each.metrics, "accuracy_loss_low": 0.0, "accuracy_loss_high": 0.9}
        )
        for each in record.trials
    ]
    unsure = dataclasses.replace(record, trials=tuple(trials))
    assert "too few samples to tell the losses of" in html.unescape(note(unsure))
    assert "too few samples" not in note(record)


def test_registered_models_are_linked_with_their_aliases() -> None:
    record = hand_study()
    registered = dataclasses.replace(record, tags={**record.tags, REGISTERED: "seqto-a-cpu"})
    text = note(registered, registered="#/models/seqto-a-cpu")
    assert "Registered as [seqto-a-cpu](#/models/seqto-a-cpu): balanced is #" in text
    assert "Registered as seqto-a-cpu: " in note(registered)
    assert "Registered" not in note(record)


def test_command_that_made_it_is_there_to_copy() -> None:
    command = "python -m seqto 'model.path=a b.onnx' -m"
    assert f"\n```bash\n{command}\n```" in note(named(hand_study(), command=command))
    assert "```" not in note(hand_study())
    assert COMMAND == "seqto.command"


def test_command_cannot_end_its_block() -> None:
    text = note(named(hand_study(), command="seqto 'a\n```\n<img src=x>'"))
    assert text.endswith("````bash\nseqto 'a\n```\n<img src=x>'\n````")


def test_long_front_is_cut_to_rows_that_fit() -> None:
    record = random_study(layers=60, candidates=400)
    front = front_of(record)
    assert len(front.members) > MOST_ROWS
    text = note(record)
    assert len(rows(text)) == MOST_ROWS + 2
    assert f"and {len(front.members) - MOST_ROWS} more" in text
    assert {"**accurate**", "**balanced**", "**small**"} <= {row[-1] for row in rows(text)}


@pytest.mark.parametrize("tag", ["model", "device", "quantization", "metric"])
def test_names_mean_nothing_to_markdown(tag: str) -> None:
    text = note(named(hand_study(), **{tag: ODD}))
    assert rows(text) == rows(note(hand_study()))
    for part in ("<img", "`", "**bold", "[a]", "](", "&lt;", "\\"):
        assert part not in text
    assert len(text.splitlines()) == len(note(hand_study()).splitlines())


def test_plain_text_says_what_it_said() -> None:
    assert html.unescape(plain(ODD)) == ODD.replace("\n", " ")
    assert plain("resnet50-v1.5/a, 3 %") == "resnet50-v1.5/a, 3 %"


def test_study_without_recommendations_has_a_note() -> None:
    record = hand_study()
    front = dataclasses.replace(front_of(record), recommended=())
    assert study_note(record, front, {}).splitlines()[0].endswith("3 of 4 candidates on the front.")
    assert TAGS["seqto.model"] in study_note(record, front, {})
