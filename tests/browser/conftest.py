"""A page of a real browser, with no network but this machine's."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

# Chromium's own services would ask for hosts that a closed network refuses.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]


# Five seconds are little for MLflow's pages on a busy machine.
PATIENCE = 60_000
playwright.expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator["playwright.Browser"]:
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("chromium is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: "playwright.Browser") -> Iterator["playwright.Page"]:
    """A wide page; what its scripts throw fails the test."""
    context = browser.new_context(viewport={"width": 1500, "height": 1000})
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert not errors


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    """Where screenshots go: SEQTO_SHOTS, for a person to look at, else a folder of the test."""
    folder = Path(os.environ.get("SEQTO_SHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
