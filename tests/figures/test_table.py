"""What one row of the table of figures brings with it."""

import base64
import importlib.util
import io
import json
import re
import zlib
from dataclasses import asdict, replace
from types import ModuleType
from typing import Any

import pytest
from omegaconf import OmegaConf
from pydantic import ValidationError
from rich.console import Console
from studies import hand_study

from seqto.cli import promoting
from seqto.config.paths import CONF
from seqto.errors import ConfigError
from seqto.figures import Figure, Limit, as_measured, figure, table
from seqto.identity import identity
from seqto.pareto import limits
from seqto.pareto.front import find_front, in_float_units
from seqto.pareto.limits import Constraint, Gate
from seqto.report.comparison import compare
from seqto.report.comparison_page import comparison_page
from seqto.report.comparison_table import print_comparison
from seqto.report.document import report
from seqto.report.info import axis
from seqto.report.note import study_note
from seqto.report.study_page import study_page
from seqto.report.terminal import print_front
from seqto.report.wording import in_words
from seqto.study.settings import StudySettings
from seqto.tracking.ui import described, experiment_tags, study_views
from seqto.types import Front, StudyRecord

ENERGY = Figure(
    "energy_mj",
    title="energy",
    unit="mJ",
    limit=Limit("5", "at most so many millijoules an inference"),
)
OBJECTIVES = ("accuracy_loss", "energy_mj")


@pytest.fixture
def energy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have one more row in the table."""
    monkeypatch.setattr(table, "FIGURES", (*table.FIGURES, ENERGY))


def measured(record: StudyRecord) -> StudyRecord:
    """Return the record as if energy had been measured: the more layers in float, the more."""
    trials = [
        replace(each, metrics={**each.metrics, "energy_mj": 1.25 + len(each.candidate.excluded)})
        for each in record.trials
    ]
    return replace(record, trials=tuple(trials), baseline={**record.baseline, "energy_mj": 5.0})


@pytest.fixture
def record(energy: None) -> StudyRecord:
    return measured(hand_study())


@pytest.fixture
def front(record: StudyRecord) -> Front:
    return find_front(record.trials, OBJECTIVES, record.baseline)


def printed(show: Any, *arguments: Any) -> str:
    console = Console(file=io.StringIO(), record=True, width=120, force_terminal=True)
    show(console, *arguments)
    return console.export_text()


def unpacked(value: str) -> dict[str, Any]:
    return dict(json.loads(zlib.decompress(base64.b64decode(value.partition(";")[2]))))


def test_a_new_figure_has_a_column_in_the_terminal(record: StudyRecord, front: Front) -> None:
    lines = printed(print_front, record, front).splitlines()
    assert lines[1].split()[-2:] == ["loss", "energy"]
    (cheapest,) = (line for line in lines if line.lstrip().startswith("#0 "))
    assert "1.25 mJ" in cheapest and "best-energy-mj" in cheapest
    (own,) = (line for line in lines if line.lstrip().startswith("float "))
    assert own.split()[-2:] == ["5", "mJ"]


def test_a_new_figure_is_told_in_words(record: StudyRecord) -> None:
    trial = record.trials[0]
    assert in_words(trial.metrics, record.baseline, "top1").endswith(", energy 1.25 mJ")
    assert described(trial).startswith("30% size, 10.00% loss, energy 1.25 mJ, candidate 0")


def test_a_new_figure_has_a_column_in_the_note(record: StudyRecord, front: Front) -> None:
    note = study_note(record, front, {})
    header = next(line for line in note.splitlines() if line.startswith("| candidate"))
    assert re.findall(r"\w+", header.replace("&emsp;", ""))[-1] == "energy"
    assert "1.25 mJ" in note


def test_a_new_figure_has_a_column_and_an_axis_on_the_page(
    record: StudyRecord, front: Front
) -> None:
    page = study_page(
        record, find_front(record.trials, ("accuracy_loss", "size_bytes"), {}), {}, {}
    )
    assert re.search(r"<th[^>]*>\s*<button[^>]*>energy</button>", page)
    assert re.search(r'<td class="number" data-v="1.25">1.25 mJ</td>', page)
    assert '"title":"energy (mJ)"' in page
    assert '["energy","1.25 mJ"]' in page


def test_a_new_figure_is_compared(record: StudyRecord, front: Front) -> None:
    other = replace(record, id="other", tags={**record.tags, "seqto.device": "phone"})
    reports = [report(each, front, {}) for each in (record, other)]
    info = compare(reports)
    page = comparison_page(info, reports)
    assert page.count('<th class="number ">energy</th>') == 2
    assert '"title":"energy (mJ)"' in page
    assert "10.00 %  1.25 mJ" in printed(print_comparison, info)


def test_a_new_figure_is_in_mlflows_views(record: StudyRecord, front: Front) -> None:
    sized = find_front(record.trials, ("accuracy_loss", "size_bytes"), record.baseline)
    for each in (front, sized):
        state = unpacked(next(iter(study_views("abc", each).values())))
        assert "metrics.`energy_mj`" in state["selectedColumns"]
        assert "energy_mj" in [
            chart["xaxis"]["key"]
            for chart in state["compareRunCharts"]
            if chart["type"] == "SCATTER"
        ]
    views = experiment_tags()
    fronts = json.loads(views["mlflow.sharedViewState.seqto-fronts"])["state"]
    assert "metrics.`energy_mj`" in unpacked(fronts)["selectedColumns"]


def test_a_new_figure_may_be_an_objective(record: StudyRecord, front: Front) -> None:
    assert StudySettings(objectives=list(OBJECTIVES)).objectives == list(OBJECTIVES)
    assert {each.alias: each.trial.index for each in front.recommended}["best-energy-mj"] == 0
    assert in_float_units(record.trials[0], ["energy_mj"], record.baseline) == (0.25,)
    assert axis("energy_mj", record.baseline).title == "energy (mJ)"
    assert axis("energy_mj", record.baseline).baseline == 5.0


def test_an_objective_has_to_be_in_the_table() -> None:
    with pytest.raises(ConfigError, match=r"'energy_mj'.*, which is not measured"):
        StudySettings(objectives=list(OBJECTIVES))


@pytest.fixture
def fresh_limits(energy: None) -> ModuleType:
    """Return the module of limits as it is where the table has had the row from the start."""
    spec = importlib.util.spec_from_file_location("fresh_limits", limits.__file__)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["Constraint", "Gate"])
def test_a_new_figure_may_be_limited(
    record: StudyRecord, fresh_limits: ModuleType, kind: str
) -> None:
    limit = getattr(fresh_limits, kind)(max_energy_mj=2.25)
    assert (limit.max_energy_mj, limit.limits()) == (2.25, {"energy_mj": 2.25})
    assert str(limit) == "energy_mj <= 2.25"
    assert [each.index for each in limit.meeting(record.trials)] == [0, 7, 8]
    with pytest.raises(ValidationError, match="greater than 0"):
        getattr(fresh_limits, kind)(max_energy_mj=0)


def test_help_of_promotion_has_a_new_limit(energy: None, capsys: pytest.CaptureFixture) -> None:
    promoting.main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    line = "    max_energy_mj=5               at most so many millijoules an inference"
    # Behind the other limits, before the words that follow them.
    follows = lines[lines.index(line) + 1]
    assert follows.lstrip().startswith("tolerance=")


@pytest.mark.parametrize("kind", [Constraint, Gate])
def test_config_has_the_limits_of_the_table(kind: type[limits.Limits]) -> None:
    config = OmegaConf.load(CONF / "config.yaml")
    assert list(config[kind.__name__.lower()]) == list(kind.bounded)
    assert list(kind.bounded.values()) == list(table.limited())


def test_what_identifies_a_constraint_is_its_limits() -> None:
    others = ("max_size_ratio", "max_latency_ms", "max_float_share")
    values = {"max_accuracy_loss": 0.1, **dict.fromkeys(others)}
    constraint = Constraint(max_accuracy_loss=0.1)
    assert asdict(constraint) == values
    assert identity(constraint) == {"_target_": "seqto.pareto.limits.Constraint", **values}
    assert constraint == Constraint(max_accuracy_loss=0.1) != Constraint()


def test_names_and_columns_are_taken_once() -> None:
    names = [each.name for each in table.FIGURES]
    places = [each.column for each in table.FIGURES if each.column not in (None, table.LAST)]
    assert len(set(names)) == len(names) and len(set(places)) == len(places)


def test_shares_are_of_figures_in_the_table() -> None:
    names = {each.name for each in table.FIGURES}
    assert {each.share_of for each in table.FIGURES if each.share_of} <= names


def test_only_what_is_better_when_less_can_be_minimised_or_limited() -> None:
    more = {each.name for each in table.FIGURES if not each.less_is_better}
    scores = {"f1", "map_50", "map", "mean_iou", "recall", "bleu", "sqnr_db"}
    assert more == {"accuracy", *scores}
    assert not more & {each.name for each in table.objectives()}
    assert not more & set(table.limited())


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("f1", 0.876, "87.6 %"),
        ("bleu", 0.3456, "34.6"),
        ("wer", 0.05, "5.0 %"),
        ("mae", 1.23456, "1.235"),
        ("sqnr_db", 31.25, "31.2 dB"),
    ],
)
def test_figures_of_targets_are_written_as_people_do(name: str, value: float, text: str) -> None:
    assert figure(name).text(value) == text


def test_figures_of_targets_stand_between_accuracy_and_latency() -> None:
    names = [each.name for each in table.columns()]
    of_task = [each.name for each in table.columns() if each.of_task]
    assert names[names.index("accuracy") :] == ["accuracy", *of_task, "latency_ms"]
    for name in ("accuracy", *of_task):
        assert figure(name).has_interval and figure(name).dispensable
    assert not {*of_task} & {each.name for each in table.objectives()}


def test_what_loading_takes_is_in_reports_but_not_in_the_terminal() -> None:
    names = {"load_ms": ("12.35 ms", "load"), "load_peak_bytes": ("154.90 MB", "load memory")}
    for name, (text, title) in names.items():
        value = 12.345678 if name == "load_ms" else 154.9e6
        assert (figure(name).text(value), figure(name).title) == (text, title)
    last = [each.name for each in table.columns(details=True)][-2:]
    assert last == list(names)
    assert not {*names} & {each.name for each in (*table.columns(), *table.viewed())}
    assert {*names} <= {each.name for each in table.objectives()}


def test_a_share_is_computed_where_it_was_not_measured() -> None:
    share = figure("size_ratio")
    assert share.value({"size_bytes": 250.0}, {"size_bytes": 1000.0}) == 0.25
    assert share.value({"size_ratio": 0.3, "size_bytes": 250.0}, {"size_bytes": 1000.0}) == 0.3
    assert share.value({"size_bytes": 250.0}, {"size_bytes": 0.0}) is None
    assert share.value({}, {"size_bytes": 1000.0}) is None


def test_a_metric_that_is_not_in_the_table_is_written_plainly() -> None:
    other = figure("peak_memory")
    assert (other.title, other.text(1234.56), other.text(None)) == ("peak memory", "1235", "")
    assert other.best_alias == "best-peak-memory"


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("accuracy_drop", 0.006249999999999978, 0.00625),
        ("accuracy_loss", 1 / 3, 0.333333),
        ("accuracy_loss", 3 / 300, 0.01),
        ("latency_ms", 0.08234567, 0.08235),
        ("latency_p90_ms", 1234.5678, 1235.0),
        ("size_bytes", 123456789.0, 123456789.0),
        ("f1", 0.0, 0.0),
        ("kl", float("inf"), float("inf")),
    ],
)
def test_only_what_was_measured_is_recorded(name: str, value: float, kept: float) -> None:
    assert as_measured(name, value) == kept
