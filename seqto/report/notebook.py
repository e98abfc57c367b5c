"""A study's result as a notebook shows it."""

import base64
import io
import tempfile
from pathlib import Path

from rich.console import Console

from seqto.report.answer import with_basis
from seqto.report.info import front_info
from seqto.report.terminal import print_front
from seqto.types import Front, StudyRecord

_WIDTH = 110
_TABLE = '<pre style="line-height:1.3;font-family:monospace">{code}</pre>'


def result_html(record: StudyRecord, front: Front) -> str:
    """Return the answer, the front's table and its picture as HTML."""
    # Recorded, not displayed at once.
    console = Console(record=True, file=io.StringIO(), width=_WIDTH, force_jupyter=False)
    console.print(with_basis(record, front), style="bold", highlight=False)
    console.print()
    print_front(console, record, front)
    return console.export_html(inline_styles=True, code_format=_TABLE) + _picture(record, front)


def _picture(record: StudyRecord, front: Front) -> str:
    # matplotlib takes half a second to import.
    from seqto.report.plots import draw_front

    with tempfile.TemporaryDirectory(prefix="seqto-") as folder:
        path = Path(folder) / "front.png"
        draw_front(front_info(record, front), path)
        encoded = base64.b64encode(path.read_bytes()).decode()
    style = "width:640px;max-width:100%"
    return f'<img alt="the front" style="{style}" src="data:image/png;base64,{encoded}">'
