"""report.html and comparison.html as a person meets them: as files, and in MLflow's viewer."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mlflow_server import served
from onnx import helper
from onnx_models import build, weight
from tiny_studies import Lab

from seqto.cli.comparing import compare_files
from seqto.cli.study_command import write_files
from seqto.tracking.mlflow import MlflowTracker
from seqto.types import Model

EVIL = "</script><img src=x onerror=alert(1)>"


def evil_chain() -> Model:
    """Return a chain of four layers, one of which has a name that would like to be run."""
    nodes, weights, before, width = [], [], "image", 1
    for index, name in enumerate(("first", EVIL, "third")):
        weights.append(weight(f"w{index}", 8, width, 3, 3))
        inputs, output = [before, f"w{index}"], f"y{index}"
        nodes.append(helper.make_node("Conv", inputs, [output], name, pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [output], [f"r{index}"], f"relu{index}"))
        before, width = f"r{index}", 8
    weights.append(weight("fc_w", 10, 8 * 8 * 8))
    nodes.append(helper.make_node("Flatten", [before], ["flat"], "flatten"))
    nodes.append(helper.make_node("Gemm", ["flat", "fc_w"], ["y"], "fc", transB=1))
    return build(nodes, weights, {"image": ["N", 1, 8, 8]}, {"y": ["N", 10]}, name="chain")


@dataclass(frozen=True)
class Made:
    """A study with its files, in an MLflow store of its own."""

    run: str
    folder: Path
    store: str

    @property
    def url(self) -> str:
        return (self.folder / "report.html").as_uri()


@pytest.fixture(scope="module")
def made(migrated_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("study")
    store = f"sqlite:///{folder / 'mlflow.db'}"
    (folder / "mlflow.db").write_bytes(migrated_store.read_bytes())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delenv("MLFLOW_RUN_ID", raising=False)
        outcome = Lab.at(folder, evil_chain()).run(
            MlflowTracker(uri=store),
            publish=lambda record, front: write_files(folder, record, front, {"python": "9"}, None),
        )
    return Made(outcome.record.id, folder, store)


@pytest.fixture(scope="module")
def server(made: Made) -> Iterator[str]:
    """The address of an MLflow that serves the study."""
    with served(made.store, made.folder) as address:
        yield address


@pytest.fixture
def quiet(page: Any) -> Any:
    """A page that may open files, but neither dialogs nor connections."""
    asked: list[str] = []
    page.on("request", lambda each: asked.append(each.url))
    page.on("dialog", lambda each: asked.append(f"dialog {each.message}"))
    yield page
    assert not [each for each in asked if not each.startswith(("file:", "data:"))]


def column(page: Any, number: int) -> list[float]:
    cells = page.locator(f"#candidates tbody tr td:nth-child({number})")
    return [float(each.get_attribute("data-v")) for each in cells.all()]


def head(page: Any, title: str) -> Any:
    return page.locator("#candidates th", has_text=title).first


def test_hover_shows_loss_with_its_interval(quiet: Any, made: Made, shots: Path) -> None:
    quiet.goto(made.url)
    tip = quiet.locator(".tip")
    assert tip.is_hidden()
    quiet.get_by_role("img", name="#0").hover(force=True)
    text = tip.inner_text()
    assert "95 %:" in text and " KB" in text and "none of 4 layers" in text
    quiet.screenshot(path=shots / "report-light.png", full_page=True)
    quiet.mouse.move(1, 1)
    assert tip.is_hidden()


def test_arrow_keys_move_along_the_points(quiet: Any, made: Made) -> None:
    quiet.goto(made.url)
    quiet.locator(".dot[tabindex='0']").focus()
    first = quiet.locator(".tip b").inner_text()
    quiet.keyboard.press("ArrowRight")
    assert quiet.locator(".tip b").inner_text() != first
    quiet.keyboard.press("Escape")
    assert quiet.locator(".tip").is_hidden()


def test_the_float_model_and_the_recommended_are_marked(quiet: Any, made: Made) -> None:
    quiet.goto(made.url)
    assert quiet.get_by_role("img", name="float model").count() == 1
    tags = quiet.locator(".plot text.tag").all_text_contents()
    assert "float" in tags and any("small" in tag for tag in tags)
    assert quiet.locator(".plot .ring").count() == len(tags) - 1
    assert quiet.locator(".plot path.step").count() == 1


def test_a_click_on_a_head_sorts_and_another_turns_round(quiet: Any, made: Made) -> None:
    quiet.goto(made.url)
    assert column(quiet, 1) == sorted(column(quiet, 1)), "by number to begin with"
    size = head(quiet, "size")
    size.get_by_role("button").click()
    rising = column(quiet, 4)
    assert rising == sorted(rising) and size.get_attribute("aria-sort") == "ascending"
    size.get_by_role("button").click()
    assert column(quiet, 4) == rising[::-1] and size.get_attribute("aria-sort") == "descending"
    assert head(quiet, "candidate").get_attribute("aria-sort") is None


def test_rows_are_filtered_by_layer_and_by_front(quiet: Any, made: Made) -> None:
    quiet.goto(made.url)
    rows = quiet.locator("#candidates tbody tr")
    everything = rows.count()
    quiet.get_by_placeholder("part of its name").fill("THIRD")
    shown = quiet.locator("#candidates tbody tr:visible")
    assert 0 < shown.count() < everything
    for row in shown.all():
        row.locator("summary").click()
        # To be waited for: what a row unfolds is made when it is asked for.
        assert "third" in row.locator("dd").first.inner_text(), "float32 comes first"
    assert quiet.locator("#shown").inner_text() == f"{shown.count()} of {everything} shown"
    quiet.get_by_placeholder("part of its name").fill("")
    quiet.get_by_label("on the front only").check()
    assert shown.count() == quiet.locator("#candidates tr.front").count() < everything


def test_an_evil_name_is_text_only(quiet: Any, made: Made) -> None:
    quiet.goto(made.url)
    assert quiet.get_by_role("cell", name=EVIL).is_visible()
    assert quiet.locator("img[src='x']").count() == 0
    last = quiet.locator("#candidates tbody tr").last
    last.locator("summary").click()
    assert last.locator("dd", has_text=EVIL).first.inner_text()
    quiet.locator(".dot").last.hover(force=True)
    quiet.wait_for_timeout(200)
    assert quiet.locator("img[src='x']").count() == 0


def test_no_other_script_would_run(quiet: Any, made: Made, tmp_path: Path) -> None:
    text = (made.folder / "report.html").read_text()
    path = tmp_path / "tampered.html"
    path.write_text(text.replace("<main>", "<main><script>window.ran = true</script>"))
    quiet.goto(path.as_uri())
    assert quiet.evaluate("window.ran") is None
    assert quiet.locator(".dot").count() > 0, "but the page's own does"


@pytest.mark.parametrize("size", [(1100, "dark"), (390, "light")], ids=str)
def test_it_fits_the_screen(browser: Any, made: Made, shots: Path, size: tuple[int, str]) -> None:
    width, scheme = size
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.goto(made.url)
    page.locator(".dot").first.hover(force=True)
    page.screenshot(path=shots / f"report-{scheme}-{width}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    box = page.locator(".tip").bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
    context.close()


def test_printed_it_has_no_controls_and_all_rows(quiet: Any, made: Made, shots: Path) -> None:
    quiet.goto(made.url)
    quiet.emulate_media(media="print")
    assert quiet.locator(".controls").is_hidden()
    assert quiet.locator(".tall").evaluate("each => each.scrollHeight <= each.clientHeight")
    quiet.pdf(path=shots / "report.pdf")


def test_it_works_in_mlflows_viewer(page: Any, made: Made, server: str, shots: Path) -> None:
    dialogs: list[str] = []
    page.on("dialog", lambda each: (dialogs.append(each.message), each.dismiss()))
    page.goto(f"{server}/#/experiments/1/runs/{made.run}/artifacts/report.html")
    frame = page.frame_locator("iframe.mlflow-html-iframe")
    frame.locator(".dot").first.wait_for(timeout=30_000)
    frame.get_by_role("img", name="#0").hover(force=True)
    assert "95 %:" in frame.locator(".tip").inner_text()
    page.screenshot(path=shots / "report-mlflow.png")
    frame.locator("#candidates th", has_text="size").first.get_by_role("button").click()
    sizes = frame.locator("#candidates tbody tr td:nth-child(4)").all()
    values = [float(each.get_attribute("data-v")) for each in sizes]
    assert values == sorted(values)
    frame.get_by_label("on the front only").check()
    assert frame.locator("#candidates tbody tr:visible").count() < len(values)
    assert not dialogs


def test_studies_lie_over_each_other(
    quiet: Any, made: Made, shots: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (made.folder / "report.json").read_text()
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text(text)
    second.write_text(text.replace('"seqto.device": "cpu"', '"seqto.device": "phone"'))
    compare_files(tmp_path, [first, second])
    assert "hypervolume" in capsys.readouterr().out
    quiet.goto((tmp_path / "comparison.html").as_uri())
    assert quiet.locator(".plot path.step").count() == 2
    assert quiet.locator(".key li").all_inner_texts() == ["cpu", "phone", "float model"]
    quiet.locator(".dot").first.hover(force=True)
    assert "study" in quiet.locator(".tip").inner_text()
    assert quiet.locator("#shared tbody tr").count() == 5
    quiet.locator(".axes select").select_option(label="latency (ms)")
    assert "latency (ms)" in quiet.locator(".plot text.title").all_text_contents()
    quiet.screenshot(path=shots / "comparison.png", full_page=True)
