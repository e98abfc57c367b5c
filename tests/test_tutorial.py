"""The tutorial runs from its first cell to its last."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

TUTORIAL = Path(__file__).parent.parent / "scripts" / "tutorial.ipynb"


@pytest.mark.slow
def test_the_tutorial_runs_as_it_stands(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQTO_CACHE", str(cache))
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    notebook = nbformat.read(TUTORIAL, as_version=4)
    client = NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    shown = [
        each.get("text") or each["data"].get("text/plain", "")
        for cell in notebook.cells
        for each in cell.get("outputs", [])
    ]
    text = "\n".join(shown)
    assert "candidates on the front" in text and "version 1 promoted" in text
    assert 'install "ipywidgets"' not in text, "nothing of seqto's wants widgets"
    # What is displayed is displayed once, as a page with its picture.
    pages = [
        each["data"]["text/html"]
        for cell in notebook.cells
        for each in cell.get("outputs", [])
        if "text/html" in each.get("data", {}) and "<pre" in each["data"]["text/html"]
    ]
    assert len(pages) == 1 and "data:image/png;base64," in pages[0]
    assert (tmp_path / "small.onnx").stat().st_size < 200_000
