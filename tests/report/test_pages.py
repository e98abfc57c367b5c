import base64
import hashlib
import json
import re

from markupsafe import Markup

from seqto.report.pages import breakable, embedded, render
from seqto.report.study_page import TEMPLATE

NASTY = "</script><!--<img src=x onerror=alert(1)>&amp;\u2028\u2029"


def test_embedded_json_reads_back_and_ends_no_script() -> None:
    text = str(embedded({NASTY: [NASTY, 0.5, None]}))
    assert json.loads(text) == {NASTY: [NASTY, 0.5, None]}
    assert not set("<>&\u2028\u2029") & set(text)


def test_the_policy_names_the_pages_only_script() -> None:
    values = dict.fromkeys(
        (
            "answer",
            "counts",
            "hypervolume",
            "study",
            "run",
            "command",
            "sensitivity",
            "layers_title",
            "score_in_words",
            "strip_of",
        ),
        "",
    )
    lists = dict.fromkeys(
        ("choices", "titles", "rows", "float_figures", "layers", "failures", "stopped", "schemes"),
        (),
    )
    others = {"exclusions": (), "objectives": "", "environment": {}, "tags": {}, "remarks": {}}
    page = render(TEMPLATE, {"a": 1}, title=NASTY, **values, **lists, **others)
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    assert f"script-src &#39;sha256-{digest}&#39;" in page
    assert "default-src &#39;none&#39;" in page
    assert "<img" not in page, "titles are escaped"


def test_names_break_behind_separators_and_only_very_long_words_elsewhere() -> None:
    for name, pieces in {
        "lite4_trained-v2": ["lite4_", "trained-", "v2"],
        "net-1.0.onnx · cpu": ["net-", "1.0.", "onnx · cpu"],
        "a" * 50: ["a" * 24, "a" * 24, "aa"],
        "<b>_x": [Markup("&lt;b&gt;_"), "x"],
        "": [""],
    }.items():
        assert breakable(name) == "<wbr>".join(pieces)


def test_the_page_names_no_host() -> None:
    names = set(re.findall(r"https?://[^\"'\s<)]+", _parts()))
    assert names == {"http://www.w3.org/2000/svg"}, "a namespace, which nobody fetches"


def _parts() -> str:
    from seqto.report.pages import FOLDER

    return "".join(path.read_text() for path in FOLDER.iterdir())
