"""The files of a study: pictures, report.json and report.html."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seqto.types import Front, StudyRecord

REPORT = "report.json"
PAGE, PICTURE = "report.html", "front.png"


def write_files(
    folder: Path,
    record: StudyRecord,
    front: Front,
    environment: Mapping[str, str],
    exclusions: Mapping[str, Any] | None,
) -> list[Path]:
    """Write the pictures, report.json and report.html of a study, and return their paths."""
    # matplotlib takes half a second to import, and only the final step needs it.
    from seqto.report import document, info, plots, study_page

    names = ("sensitivity.png", "objectives.png", "front.png", "report.json", "report.html")
    sensitivity, objectives, picture, report, page = (folder / name for name in names)
    plots.draw_sensitivity(info.sensitivity_info(record), sensitivity)
    plots.draw_objectives(info.objectives_info(record, front), objectives)
    plots.draw_front(info.front_info(record, front), picture)
    document.write_report(report, record, front, environment)
    pictures = {each.name: each for each in (sensitivity, objectives)}
    study_page.write_study_page(page, record, front, environment, pictures, exclusions)
    return [sensitivity, objectives, picture, report, page]
