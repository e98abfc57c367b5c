"""The files of a study: pictures, report.json and report.html."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from seqto.phases import counted
from seqto.report.page_links import NO_LINKS, PageLinks
from seqto.types import Front, StudyRecord

REPORT = "report.json"
PAGE, PICTURE = "report.html", "front.png"
SENSITIVITY, OBJECTIVES = "sensitivity.png", "objectives.png"


def write_files(
    folder: Path,
    record: StudyRecord,
    front: Front,
    environment: Mapping[str, str],
    exclusions: Mapping[str, Any] | None,
    links: PageLinks = NO_LINKS,
) -> list[Path]:
    """Write the pictures, report.json and report.html of a study, and return their paths."""
    # matplotlib takes half a second to import, and only the final step needs it.
    from seqto.report import document, info, plots, study_page

    names = (SENSITIVITY, OBJECTIVES, PICTURE, REPORT, PAGE)
    sensitivity, objectives, picture, report, page = (folder / name for name in names)
    pictures = {each.name: each for each in (sensitivity, objectives)}
    steps: list[Callable[[], None]] = [
        lambda: plots.draw_sensitivity(info.sensitivity_info(record), sensitivity),
        lambda: plots.draw_objectives(info.objectives_info(record, front), objectives),
        lambda: plots.draw_front(info.front_info(record, front), picture),
        lambda: document.write_report(report, record, front, environment),
        lambda: study_page.write_study_page(
            page, record, front, environment, pictures, exclusions, links
        ),
    ]
    for step in counted("drawing", steps):
        step()
    return [sensitivity, objectives, picture, report, page]


def write_picture(folder: Path, record: StudyRecord, front: Front) -> Path:
    """Write the picture of the front alone, and return its path."""
    from seqto.report import info, plots

    path = folder / PICTURE
    plots.draw_front(info.front_info(record, front), path)
    return path
