"""Where a page leads: to the study's runs in the tracker, and to the models beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from seqto.protocols import Pages
from seqto.types import Front


@dataclass(frozen=True)
class PageLinks:
    """Addresses of runs, by their ids, and names of model files beside the page, by alias."""

    runs: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)


NO_LINKS = PageLinks()


def links_of(tracker: Pages, study: str, front: Front, with_files: bool = False) -> PageLinks:
    """Return where the page of this study leads.

    With `with_files`, the recommended models are written beside the page.
    """
    server, sign, own = tracker.address(study).url.partition("#")
    # Trackers without pages have addresses for people, not for browsers.
    runs = {study: f"{server}#{own}"} if sign and server.startswith("http") else {}
    if runs:
        pages = tracker.pages(study, front)
        members = [trial.id for trial in front.members if trial.id in pages]
        runs |= {each: f"{server}{pages[each]}" for each in members}
    files = {each.alias: model_file(each.alias) for each in front.recommended}
    return PageLinks(runs, files if with_files else {})


def model_file(alias: str) -> str:
    """Return the name of the file that holds the model which is recommended by this alias."""
    return f"{alias}.onnx"
