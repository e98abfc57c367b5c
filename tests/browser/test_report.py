"""report.html and comparison.html as a person meets them: as files, and in MLflow's viewer."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from mlflow_server import served
from onnx import helper
from onnx_models import build, weight
from playwright.sync_api import TimeoutError, expect
from tiny_studies import Lab

from seqto.cli.comparing import compare_files
from seqto.report.page_links import links_of
from seqto.report.writing import write_files
from seqto.tracking.mlflow import MlflowTracker
from seqto.types import Model

LEFT_EDGES = "all => all.map(each => each.getBoundingClientRect().left)"
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
            publish=lambda record, front: write_files(
                *(folder, record, front, {"python": "9"}, None),
                links_of(MlflowTracker(uri=store), record.id, front, with_files=True),
            ),
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
    page.on("dialog", lambda each: (asked.append(f"dialog {each.message}"), each.dismiss()))
    yield page
    assert not [each for each in asked if not each.startswith(("file:", "data:"))]


def column(page: Any, number: int) -> list[float]:
    """Return the numbers of a column from top to bottom, read in one go."""
    cells = page.locator(f"#candidates tbody tr td:nth-child({number})")
    return [float(each) for each in cells.evaluate_all("all => all.map(each => each.dataset.v)")]


def head(page: Any, title: str) -> Any:
    return page.locator("#candidates th", has_text=title).first


def sorted_by(page: Any, title: str, direction: str) -> None:
    """Click on a head, and wait until the table says that it is sorted so."""
    head(page, title).get_by_role("button").click()
    expect(head(page, title)).to_have_attribute("aria-sort", direction)


def tip_of(page: Any, dot: Any) -> Any:
    """Return the tip of a dot, once it is there.

    The chart is drawn anew when it gets its width, which takes away the tip of the drawing
    before: the mouse comes again then, as a person's does.
    """
    tip = page.locator("#chart .tip")
    end = time.monotonic() + 60
    while time.monotonic() < end:
        dot.hover(force=True)
        try:
            tip.wait_for(timeout=2_000)
            return tip
        except TimeoutError:
            dot.page.mouse.move(1, 1)
    raise AssertionError(f"{dot} has no tip")


def test_hover_shows_loss_with_its_interval(quiet: Any, made: Made, shots: Path) -> None:
    quiet.goto(made.url)
    expect(quiet.locator("#chart .tip")).to_be_hidden()
    tip = tip_of(quiet, quiet.locator("#chart").get_by_role("img", name="#0"))
    for words in ("95 %:", " KB", "none of 4 layers"):
        expect(tip).to_contain_text(words)
    quiet.screenshot(path=shots / "report-light.png", full_page=True)
    quiet.mouse.move(1, 1)
    expect(tip).to_be_hidden()


def test_arrow_keys_move_along_the_points(quiet: Any, made: Made) -> None:
    quiet.goto(made.url)
    quiet.locator(".dot[tabindex='0']").focus()
    title = quiet.locator("#chart .tip b")
    expect(title).to_be_visible()
    first = title.inner_text()
    quiet.keyboard.press("ArrowRight")
    expect(title).not_to_have_text(first)
    expect(title).to_be_visible()
    quiet.keyboard.press("Escape")
    expect(quiet.locator("#chart .tip")).to_be_hidden()


def test_the_float_model_and_the_recommended_are_marked(quiet: Any, made: Made) -> None:
    quiet.goto(made.url)
    expect(quiet.locator("#chart").get_by_role("img", name="float model")).to_have_count(1)
    tags = quiet.locator(".plot text.tag").all_text_contents()
    assert "float" in tags and any("small" in tag for tag in tags)
    expect(quiet.locator(".plot .ring")).to_have_count(len(tags) - 1)
    expect(quiet.locator(".plot path.step")).to_have_count(1)


def test_a_click_on_a_head_sorts_and_another_turns_round(quiet: Any, made: Made) -> None:
    quiet.goto(made.url)
    assert column(quiet, 1) == sorted(column(quiet, 1)), "by number to begin with"
    sorted_by(quiet, "size", "ascending")
    rising = column(quiet, 4)
    assert rising == sorted(rising) and rising[0] < rising[-1]
    sorted_by(quiet, "size", "descending")
    assert column(quiet, 4) == rising[::-1]
    sorted_by(quiet, "candidate", "ascending")
    assert head(quiet, "size").get_attribute("aria-sort") is None


def test_rows_are_filtered_by_layer_and_by_front(quiet: Any, made: Made) -> None:
    quiet.goto(made.url)
    everything = quiet.locator("#candidates tbody tr").count()
    shown = quiet.locator("#candidates tbody tr:visible")
    said = quiet.locator("#shown")
    expect(said).to_have_text(f"{everything} of {everything} shown")
    quiet.get_by_placeholder("part of its name").fill("THIRD")
    expect(said).not_to_have_text(f"{everything} of {everything} shown")
    few = shown.count()
    assert 0 < few < everything
    expect(said).to_have_text(f"{few} of {everything} shown")
    first = shown.first
    places = first.locator("td").evaluate_all(LEFT_EDGES)
    first.locator("button.layers").click()
    # What a row unfolds is made when it is asked for; float32 comes first. No column moves.
    listed = quiet.locator("tr.listed")
    expect(listed.locator("dd").first).to_contain_text("third")
    assert first.locator("td").evaluate_all(LEFT_EDGES) == places
    quiet.get_by_placeholder("part of its name").fill("")
    expect(listed).to_have_count(0)
    expect(shown).to_have_count(everything)
    quiet.get_by_label("on the front only").check()
    members = quiet.locator("#candidates tr.front").count()
    assert 0 < members < everything
    expect(shown).to_have_count(members)


def test_an_evil_name_is_text_only(quiet: Any, made: Made) -> None:
    quiet.goto(made.url)
    expect(quiet.get_by_role("cell", name=EVIL)).to_be_visible()
    quiet.locator("#candidates button.layers").last.click()
    expect(quiet.locator("tr.listed dd", has_text=EVIL).first).to_be_visible()
    quiet.get_by_placeholder("part of its name").fill(EVIL)
    expect(quiet.locator("#shown")).not_to_have_text(re.compile(r"^(\d+) of \1 shown"))
    number = quiet.locator("#candidates tbody tr:visible td").first.get_attribute("data-v")
    quiet.locator("#chart").get_by_role("img", name=re.compile(rf"^#{number}\b")).focus()
    expect(quiet.locator("#chart .tip")).to_contain_text(EVIL)
    expect(quiet.locator("img[src='x']")).to_have_count(0)


def test_the_strip_is_linked_with_table_and_front(quiet: Any, made: Made, shots: Path) -> None:
    quiet.goto(made.url)
    rows = quiet.locator("#strip .row")
    expect(rows).to_have_count(quiet.locator(".plot .dot").count() - 1)
    strip = quiet.locator("#strip svg")
    box = rows.nth(1).locator("rect").first.bounding_box()
    end = time.monotonic() + 60
    while not quiet.locator("#strip .tip").is_visible() and time.monotonic() < end:
        # Drawn anew when it gets its width.
        quiet.mouse.move(1, 1)
        box = rows.nth(1).locator("rect").first.bounding_box()
        quiet.mouse.move(box["x"] + 3, box["y"] + 4)
    tip = quiet.locator("#strip .tip")
    expect(tip).to_contain_text("first")
    expect(tip).to_contain_text("rank")
    number = re.match(r"#(\d+)", rows.nth(1).get_attribute("aria-label"))[1]
    expect(quiet.locator("#candidates tr.on")).to_have_attribute("data-layers", number)
    expect(quiet.locator(".plot .dot.on")).to_have_attribute(
        "aria-label", re.compile(rf"^#{number}\b")
    )
    quiet.locator(f"#candidates tr[data-layers='{number}'] td").first.hover()
    expect(rows.nth(1)).to_have_class("row on")
    expect(strip).to_contain_text("output, 4 layers")
    quiet.screenshot(path=shots / "report-strip.png", full_page=True)


def test_keys_move_along_layers_and_candidates(quiet: Any, made: Made) -> None:
    quiet.goto(made.url)
    quiet.locator("#strip .row[tabindex='0']").focus()
    tip = quiet.locator("#strip .tip")
    expect(tip).to_contain_text("first")
    quiet.keyboard.press("ArrowRight")
    expect(tip).to_contain_text(EVIL)
    title = tip.locator("b").inner_text()
    quiet.keyboard.press("ArrowDown")
    expect(tip.locator("b")).not_to_have_text(title)
    expect(tip).to_contain_text(EVIL)
    quiet.keyboard.press("Escape")
    expect(tip).to_be_hidden()


def test_what_is_to_be_typed_is_copied(browser: Any, made: Made) -> None:
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(made.url)
    card = page.locator("article").first
    card.locator(".code button.copy").first.click()
    expect(card.locator(".code button.copy").first).to_have_text("copied")
    held = page.evaluate("navigator.clipboard.readText()")
    assert held.startswith("import mlflow") and held.endswith("print(model.predict(inputs))")
    # Where the page may not write to the clipboard, the old way does.
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject('no'); }")
    card.get_by_text("ONNX Runtime alone").click()
    card.locator(".code button.copy").nth(1).click()
    expect(card.locator(".code button.copy").nth(1)).to_have_text("copied")
    held = page.evaluate("navigator.clipboard.readText()")
    assert held.strip().endswith("print(session.run(None, inputs))")
    context.close()


def test_runs_and_files_are_a_click_away(quiet: Any, made: Made) -> None:
    quiet.goto(made.url)
    link = quiet.get_by_role("link", name="The study in MLflow")
    assert made.run in link.get_attribute("href")
    file = quiet.locator("article a[download]").first
    assert (made.folder / file.get_attribute("href")).name == "balanced.onnx"


def test_no_other_script_would_run(quiet: Any, made: Made, tmp_path: Path) -> None:
    text = (made.folder / "report.html").read_text()
    path = tmp_path / "tampered.html"
    path.write_text(text.replace("<main>", "<main><script>window.ran = true</script>"))
    quiet.goto(path.as_uri())
    expect(quiet.locator(".dot").first).to_be_visible()
    assert quiet.evaluate("window.ran") is None, "only the page's own script runs"


@pytest.mark.parametrize("size", [(1100, "dark"), (390, "light")], ids=str)
def test_it_fits_the_screen(browser: Any, made: Made, shots: Path, size: tuple[int, str]) -> None:
    width, scheme = size
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.goto(made.url)
    box = tip_of(page, page.locator(".dot").first).bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= width
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    page.screenshot(path=shots / f"report-{scheme}-{width}.png", full_page=True)
    context.close()


def test_printed_it_has_no_controls_and_all_rows(quiet: Any, made: Made, shots: Path) -> None:
    quiet.goto(made.url)
    quiet.emulate_media(media="print")
    expect(quiet.locator(".controls")).to_be_hidden()
    assert quiet.locator(".tall").evaluate("each => each.scrollHeight <= each.clientHeight")
    quiet.pdf(path=shots / "report.pdf")


def test_it_works_in_mlflows_viewer(page: Any, made: Made, server: str, shots: Path) -> None:
    dialogs: list[str] = []
    page.on("dialog", lambda each: (dialogs.append(each.message), each.dismiss()))
    page.goto(f"{server}/#/experiments/1/runs/{made.run}/artifacts/report.html")
    frame = page.frame_locator("iframe.mlflow-html-iframe")
    tip = tip_of(frame, frame.locator("#chart").get_by_role("img", name="#0"))
    expect(tip).to_contain_text("95 %:")
    page.screenshot(path=shots / "report-mlflow.png")
    sorted_by(frame, "size", "ascending")
    sizes = column(frame, 4)
    assert sizes == sorted(sizes)
    frame.get_by_label("on the front only").check()
    members = frame.locator("#candidates tr.front").count()
    assert 0 < members < len(sizes)
    expect(frame.locator("#candidates tbody tr:visible")).to_have_count(members)
    assert not dialogs


def test_studies_lie_over_each_other(
    quiet: Any, made: Made, shots: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (made.folder / "report.json").read_text()
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text(text)
    second.write_text(text.replace('"seqto.device": "cpu"', '"seqto.device": "phone"'))
    compare_files(tmp_path, [first, second])
    assert "volume" in capsys.readouterr().out
    quiet.goto((tmp_path / "comparison.html").as_uri())
    expect(quiet.locator(".plot path.step")).to_have_count(2)
    expect(quiet.locator("#chart .key li")).to_have_text(["cpu", "phone", "float model"])
    expect(tip_of(quiet, quiet.locator(".dot").first)).to_contain_text("study")
    expect(quiet.locator("#shared tbody tr")).to_have_count(5)
    quiet.locator(".axes select").select_option(label="latency (ms)")
    expect(quiet.locator(".plot text.title", has_text="latency (ms)")).to_be_visible()
    quiet.screenshot(path=shots / "comparison.png", full_page=True)


LINES = """cells => cells.flatMap(cell => {
  const found = [], walk = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    for (const word of walk.currentNode.data.matchAll(/\\S+/g)) {
      const range = document.createRange();
      range.setStart(walk.currentNode, word.index);
      range.setEnd(walk.currentNode, word.index + word[0].length);
      found.push([word[0], range.getClientRects().length]);
    }
  }
  return found;
})"""
"""How many lines each piece of the cells' text is on."""


@pytest.mark.parametrize("width", [390, 1280])
def test_long_names_of_studies_break_between_their_words(
    quiet: Any, made: Made, shots: Path, tmp_path: Path, width: int
) -> None:
    text = (made.folder / "report.json").read_text()
    models = ["efficientnet_lite4_trained_on_imagenet", "mobilenetv2-quantization-friendly"]
    files = [tmp_path / f"{name}.json" for name in models]
    known = json.loads(text)["study"]["tags"]["seqto.model"]
    for path, name in zip(files, models, strict=True):
        path.write_text(text.replace(f'"seqto.model": "{known}"', f'"seqto.model": "{name}"'))
    compare_files(tmp_path, files)
    quiet.set_viewport_size({"width": width, "height": 800})
    quiet.goto((tmp_path / "comparison.html").as_uri())
    for names in (quiet.locator("#studies td.name"), quiet.locator("#shared th.group")):
        pieces = names.evaluate_all(LINES)
        assert [piece for piece, _ in pieces][:2] == ["efficientnet_", "lite4_"]
        assert {lines for _, lines in pieces} == {1}
    assert quiet.evaluate("document.documentElement.scrollWidth") <= width
    quiet.screenshot(path=shots / f"comparison-names-{width}.png", full_page=True)
