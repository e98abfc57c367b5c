"""A study in MLflow's own pages, as a person meets it who types `mlflow ui`."""

import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from forked_commands import Forked
from mlflow.entities import Run
from mlflow.tracking import MlflowClient
from mlflow_server import served
from playwright.sync_api import BrowserContext, Locator, Page, expect
from studies import study, trial

from seqto.pareto.front import find_front
from seqto.report.note import study_note
from seqto.tracking.mlflow import MlflowTracker
from seqto.types import StudyPlan

COMMAND = ["search=ladder", "sensitivity=paper", "search.step=2", "device.repeats=3"]
FRONT = "tags.\"seqto.pareto\" = 'true'"
EVIL = "a|b <img src=x onerror=alert(1)> `c` **d** [e](javascript:alert(2))"
MODEL_TRAINING = "workflowType=machine_learning"
RUN_LINKS = "[col-id='attributes.`Run Name`'] a"
RECOMMENDED, ON_FRONT = "rgb(213, 94, 0)", "rgb(0, 114, 178)"


@dataclass(frozen=True)
class Site:
    """A served store with one study made by the command line, and one with an evil name."""

    url: str
    study: Run
    children: list[Run]
    evil: str

    @property
    def page(self) -> str:
        """The page that `open:` names."""
        return f"{self.url}/#/experiments/1/runs/{self.study.info.run_id}?{MODEL_TRAINING}"

    @property
    def front(self) -> list[str]:
        """The names of the front's runs."""
        members = [run for run in self.children if run.data.tags["seqto.pareto"] == "true"]
        return sorted(str(run.info.run_name) for run in members)


@pytest.fixture(scope="module")
def site(
    browser: object,
    migrated_store: Path,
    cache: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(migrated_store, folder / "mlflow.db")
    store = f"sqlite:///{folder}/mlflow.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("SEQTO_CACHE", str(cache))
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        patch.setenv("PYTHONPATH", ":".join(sys.path))
        for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
            patch.delenv(name, raising=False)
        process = Forked(["seqto", *COMMAND, "-m"], folder, os.environ)
        said = process.communicate(timeout=300)
        assert process.returncode == 0, said
        client = MlflowClient(store)
        (made,) = client.search_runs(["1"], "tags.`seqto.kind` = 'study'")
        children = client.search_runs(["1"], f"tags.`mlflow.parentRunId` = '{made.info.run_id}'")
        evil = _evil_study(MlflowTracker(uri=store))
        with served(store, folder) as url:
            yield Site(url, made, list(children), evil)


def _evil_study(tracker: MlflowTracker) -> str:
    """Record a study whose model and command would like to be more than text."""
    tags = {"seqto.model": EVIL, "seqto.device": "cpu", "seqto.command": f"seqto '{EVIL}\n```'"}
    run = tracker.open_study(StudyPlan("evil", "evil", tags, {}, ""), False)
    record = study([trial(0, accuracy_loss=0.5, size_bytes=500.0)], tags=tags)
    front = find_front(record.trials, ("accuracy_loss", "size_bytes"), record.baseline)
    tracker.log_note(run, study_note(record, front, {}))
    return run


@pytest.fixture
def context(page: Page) -> BrowserContext:
    """Return the page's context: no network but this machine's, MLflow's assistant closed."""
    page.context.route(re.compile(r"^https?://(?!127\.0\.0\.1)"), lambda route: route.abort())
    page.context.add_init_script(
        "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')"
    )
    return page.context


def note_on(page: Page) -> Locator:
    """Return the note of a run's page, unfolded."""
    page.get_by_text("Show more").click()
    return page.get_by_test_id("note-editor-preview-content")


def followed(context: BrowserContext, page: Page, link: str) -> Page:
    """Return the page that a link of the note opens, in a new tab as MLflow has it."""
    with context.expect_page() as opened:
        page.get_by_role("link", name=link, exact=True).click()
    return opened.value


def names_on(page: Page) -> list[str]:
    """Return the names of the runs in the table of runs, as far as they are shown."""
    return sorted(page.locator(RUN_LINKS).all_inner_texts())


def heads_on(page: Page) -> list[str]:
    """Return the metrics, params and tags that have a column in the table of runs, in order."""
    cells = page.locator(".ag-header-cell").evaluate_all(
        "all => all.map(each => [each.getBoundingClientRect().x, each.getAttribute('col-id')])"
    )
    return [found[1] for _, name in sorted(cells) if (found := re.search(r"\.`(.+)`$", name))]


def expect_soon(page: Page, read: Callable[[], object], wanted: object) -> None:
    """Wait until what is read is this: MLflow fills its tables and charts step by step."""
    end = time.monotonic() + 60
    while (found := read()) != wanted and time.monotonic() < end:
        page.wait_for_timeout(100)
    assert found == wanted


def test_study_opens_with_its_answer(
    site: Site, page: Page, context: BrowserContext, shots: Path
) -> None:
    page.goto(site.page)
    # Folded, the answer and the links are what there is space for.
    expect(page.get_by_text("candidates on the front")).to_be_in_viewport()
    expect(page.get_by_role("link", name="compare the front")).to_be_in_viewport()
    note = note_on(page)
    rows = note.locator("tbody tr")
    expect(rows).to_have_count(len(site.front) + 1)
    shown = [row.split("\t")[0].strip() for row in rows.all_inner_texts()]
    assert shown[-1] == "float"
    assert sorted(int(name.removeprefix("#")) for name in shown[:-1]) == [
        int(name.split()[0]) for name in site.front
    ]
    for alias in ("balanced", "accurate", "small"):
        expect(note.locator("tbody strong", has_text=alias)).to_have_count(1)
    expect(note.locator("pre")).to_have_text(f"python -m seqto {' '.join(COMMAND)} -m")
    expect(page.get_by_role("link", name="Model registry")).to_be_visible()
    page.screenshot(path=shots / "mlflow_study.png")
    balanced = next(name for name in site.front if "balanced" in name)
    run = followed(context, page, f"#{int(balanced.split()[0])}")
    expect(run.get_by_role("heading", name=balanced)).to_be_visible()


def test_note_links_to_the_comparison_of_the_front(
    site: Site, page: Page, context: BrowserContext, shots: Path
) -> None:
    page.goto(site.page)
    compared = followed(context, page, "compare the front")
    expect(compared.get_by_text(f"{len(site.front)} matching runs")).to_be_visible()
    # Loss, and what it costs, without a choice of axes.
    expect(compared.get_by_text("Parallel Coordinates")).to_be_visible()
    for name in ("size_ratio", "latency_ms"):
        expect(compared.get_by_text(f"{name} vs. accuracy_loss")).to_be_visible()
    points = compared.locator(".js-plotly-plot .scatterlayer").first.locator("path.point")
    expect(points).to_have_count(len(site.front))
    compared.screenshot(path=shots / "mlflow_compare.png")


def test_note_links_to_the_report(
    site: Site, page: Page, context: BrowserContext, shots: Path
) -> None:
    page.goto(site.page)
    report = followed(context, page, "report")
    expect(report.get_by_role("tab", name="Artifacts")).to_have_attribute("aria-selected", "true")
    # It is shown in a frame, as a page of its own.
    expect(report.frame_locator("iframe").get_by_role("heading").first).to_be_visible()
    report.screenshot(path=shots / "mlflow_report.png")


def test_table_of_candidates_has_whole_names_and_the_columns_that_matter(
    site: Site, page: Page, context: BrowserContext, shots: Path
) -> None:
    page.goto(site.page)
    table = followed(context, page, "all candidates")
    expect(table.get_by_text(f"{len(site.children)} matching runs")).to_be_visible()
    expect(table.get_by_role("link", name=site.front[0])).to_be_visible()
    columns = ["accuracy_loss", "size_ratio", "latency_ms", "accuracy"]
    heads = ["excluded_count", *columns, "seqto.recommended"]
    expect(table.locator(".ag-header-cell", has_text=heads[-1])).to_be_in_viewport()
    expect_soon(table, lambda: [each for each in heads_on(table) if each in heads], heads)
    table.screenshot(path=shots / "mlflow_candidates.png")
    names = sorted(str(run.info.run_name) for run in site.children)
    expect_soon(table, lambda: names_on(table), names)
    assert len({name[:12] for name in names}) == len(names)
    whole = "all => all.every(each => each.scrollWidth <= each.offsetWidth)"
    expect_soon(table, lambda: table.locator(RUN_LINKS).evaluate_all(whole), True)


def test_charts_show_the_trade_off_without_set_up(
    site: Site, page: Page, context: BrowserContext, shots: Path
) -> None:
    page.goto(site.page)
    charts = followed(context, page, "charts")
    expect(charts.get_by_text("size_ratio vs. accuracy_loss")).to_be_visible()
    points = charts.locator(".js-plotly-plot").first.locator(".scatterlayer path.point")
    expect(points).to_have_count(len(site.children))
    fills = "all => all.map(each => getComputedStyle(each).fill)"
    recommended = len({run for run in site.front if "front" not in run})
    wanted = {RECOMMENDED: recommended, ON_FRONT: len(site.front) - recommended}

    def coloured() -> dict[str, int]:
        colours = points.evaluate_all(fills)
        return {colour: colours.count(colour) for colour in wanted}

    expect_soon(charts, coloured, wanted)
    expect(charts.get_by_text("Parallel Coordinates")).to_be_visible()
    charts.screenshot(path=shots / "mlflow_charts.png")


def test_filter_of_the_readme_gives_the_front(
    site: Site, page: Page, context: BrowserContext, shots: Path
) -> None:
    page.goto(f"{site.url}/#/experiments/1/runs?{MODEL_TRAINING}")
    expect(page.get_by_role("link", name="digits cpu static ladder")).to_be_visible()
    search = page.get_by_placeholder("metrics.rmse < 1")
    search.fill(FRONT)
    search.press("Enter")
    expect_soon(page, lambda: names_on(page), ["digits cpu static ladder"])
    # By date MLflow folds them into their study.
    page.locator(".ag-cell", has_text="digits cpu static ladder").get_by_role("button").click()
    wanted = sorted([*site.front, "digits cpu static ladder"])
    expect_soon(page, lambda: names_on(page), wanted)
    page.screenshot(path=shots / "mlflow_filter.png")


def test_views_to_choose_from(site: Site, page: Page, context: BrowserContext, shots: Path) -> None:
    page.goto(f"{site.url}/#/experiments/1/runs?{MODEL_TRAINING}")
    page.get_by_test_id("saved-views-trigger").click()
    expect(page.get_by_text("seqto: studies")).to_be_visible()
    page.get_by_text("seqto: all fronts").click()
    expect_soon(page, lambda: names_on(page), site.front)
    page.screenshot(path=shots / "mlflow_fronts.png")


def test_registered_model_tells_its_versions_apart(
    site: Site, page: Page, context: BrowserContext, shots: Path
) -> None:
    page.goto(f"{site.url}/#/models/seqto-digits-cpu-static?{MODEL_TRAINING}")
    expect(
        page.get_by_text('load_model("models:/seqto-digits-cpu-static@balanced")')
    ).to_be_visible()
    for alias in ("balanced", "accurate", "small"):
        expect(page.get_by_text(f"@ {alias}")).to_be_visible()
    expect(page.get_by_text(re.compile(r"\d+% size, \d\.\d\d% loss")).first).to_be_visible()
    page.screenshot(path=shots / "mlflow_model.png")


def test_names_in_a_note_are_only_text(
    site: Site, page: Page, context: BrowserContext, shots: Path
) -> None:
    ran: list[str] = []
    page.on("dialog", lambda dialog: (ran.append(dialog.message), dialog.dismiss()))
    page.goto(f"{site.url}/#/experiments/1/runs/{site.evil}?{MODEL_TRAINING}")
    note = note_on(page)
    expect(note.locator("strong").first).to_have_text(f"{EVIL} · cpu")
    expect(note.locator("img, a")).to_have_count(0)
    expect(note.locator("tbody tr")).to_have_count(2)
    expect(note.locator("pre")).to_contain_text("onerror=alert(1)")
    page.screenshot(path=shots / "mlflow_evil.png")
    assert not ran
