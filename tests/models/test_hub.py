"""Models from Hugging Face: the real client against a small server on loopback."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import FILE, REPO, Hub, look_at, served
from onnx_models import residual
from pydantic import ValidationError
from suite_sources import ModelSourceSuite

from seqto.errors import ModelError
from seqto.models import hub as hub_model
from seqto.models.hub import HubModel
from seqto.workspace import Workspace

CONTENT = residual().to_bytes()
# The client writes 10 MiB at a time: what is cut off within the first is lost.
LARGE, CUT = bytes(range(256)) * 2**17, 15 * 2**20 + 7


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Serve the residual model where the client looks."""
    with served(CONTENT) as hub:
        look_at(hub.endpoint, monkeypatch)
        yield hub


def source(hub: Hub, folder: Path, **options: str | None) -> HubModel:
    """Return the source of the served file."""
    given = {"repo": REPO, "file": FILE, "sha256": hub.sha256} | options
    return HubModel(**given, workspace=Workspace(folder))


class TestHubModel(ModelSourceSuite):
    """The conformance suite."""

    @pytest.fixture
    def source(self, hub: Hub, tmp_path: Path) -> HubModel:
        """Return a model source of the served file."""
        return source(hub, tmp_path)


def left(folder: Path) -> list[str]:
    """Return what is in the cache folder, locks aside."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
    return sorted(path.name for path in found)


def test_a_good_file_is_fetched_once(hub: Hub, tmp_path: Path) -> None:
    model = source(hub, tmp_path)
    assert model.load().to_bytes() == CONTENT
    assert model.name == "small"
    assert left(tmp_path) == ["small.onnx"]
    assert source(hub, tmp_path).load().to_bytes() == CONTENT
    assert (hub.heads, len(hub.ranges)) == (1, 1)


def test_a_file_that_lies_elsewhere_is_followed(hub: Hub, tmp_path: Path) -> None:
    hub.elsewhere = True
    assert source(hub, tmp_path).load().to_bytes() == CONTENT
    assert hub.heads == 1 and hub.ranges == [None]


def test_a_file_put_there_by_hand_is_used(hub: Hub, tmp_path: Path) -> None:
    model = source(hub, tmp_path)
    model.path.parent.mkdir(parents=True)
    model.path.write_bytes(CONTENT)
    assert model.load().to_bytes() == CONTENT
    assert hub.heads == 0


def test_a_wrong_file_is_refused_and_removed(hub: Hub, tmp_path: Path) -> None:
    asked = source(hub, tmp_path)
    hub.content = CONTENT[:-1] + b"x"
    with pytest.raises(ModelError, match=f"sha256 is {hub.sha256}, not {asked.sha256}"):
        asked.load()
    assert left(tmp_path) == []
    hub.content = CONTENT
    assert asked.load().to_bytes() == CONTENT


def test_another_file_put_there_by_hand_is_told_and_never_deleted(hub: Hub, tmp_path: Path) -> None:
    model = source(hub, tmp_path)
    model.path.parent.mkdir(parents=True)
    mine = CONTENT[:100]
    model.path.write_bytes(mine)
    own = hashlib.sha256(mine).hexdigest()
    with pytest.raises(ModelError) as caught:
        model.load()
    assert f"its sha256 is {own}, not {hub.sha256}" in str(caught.value)
    assert "model.sha256=null" in str(caught.value) and str(model.path) in str(caught.value)
    assert model.path.read_bytes() == mine and hub.heads == 0
    # As it is told: without a hash it is taken, moved away the right one is fetched.
    assert source(hub, tmp_path, sha256=None).fetch() == model.path
    model.path.rename(tmp_path / "mine.onnx")
    assert model.load().to_bytes() == CONTENT


def test_a_file_without_a_hash_is_taken_as_it_is(hub: Hub, tmp_path: Path) -> None:
    assert source(hub, tmp_path, sha256=None).load().to_bytes() == CONTENT


def test_a_file_without_a_hash_is_fetched_again_when_it_changed(
    hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hub_model._say_how_to_pin.cache_clear()
    path = source(hub, tmp_path, sha256=None).fetch()
    assert f"model.sha256={hub.sha256}" in caplog.text, "the word that pins it"
    path.write_bytes(CONTENT[:-1] + b"x")
    assert source(hub, tmp_path, sha256=None).load().to_bytes() == CONTENT
    assert "not as it was fetched" in caplog.text


def test_a_missing_file_is_named(hub: Hub, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no vision/none.onnx in owner/zoo at revision main"):
        source(hub, tmp_path, file="vision/none.onnx").load()
    with pytest.raises(ModelError, match=r"at revision v2.*model.revision"):
        source(hub, tmp_path, revision="v2").load()
    assert left(tmp_path) == []


def test_a_file_cut_off_goes_on_where_it_stopped(hub: Hub, tmp_path: Path) -> None:
    hub.content, hub.cuts = LARGE, [CUT]
    assert source(hub, tmp_path).fetch().read_bytes() == LARGE
    first, second = hub.ranges
    assert first is None and 0 < resumed_at(second) <= CUT


def test_an_interrupted_download_goes_on_in_the_next_process(hub: Hub, tmp_path: Path) -> None:
    hub.content, hub.cuts = LARGE, [CUT]
    program = (
        "import os; from huggingface_hub import file_download;"
        "from seqto.models.hub import HubModel;"
        # The client waits before it goes on: the machine is switched off just then.
        "file_download.time.sleep = lambda seconds: os._exit(9);"
        f"HubModel(repo={REPO!r}, file={FILE!r}, sha256={hub.sha256!r}).fetch()"
    )
    environment = os.environ | {"HF_ENDPOINT": hub.endpoint, "SEQTO_CACHE": str(tmp_path)}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, timeout=300)
    assert ended.returncode == 9
    (part,) = left(tmp_path)
    assert part.endswith(".part")
    assert source(hub, tmp_path).fetch().read_bytes() == LARGE
    first, second = hub.ranges
    assert first is None and 0 < resumed_at(second) <= CUT
    assert left(tmp_path) == ["small.onnx"]


def resumed_at(wanted: str | None) -> int:
    """Return the first byte that a request asks for."""
    return int((wanted or "bytes=0-").removeprefix("bytes=").rstrip("-"))


def test_without_a_network_one_line_says_what_to_do(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_at("http://127.0.0.1:9", monkeypatch)
    model = source(hub, tmp_path)
    with pytest.raises(ModelError) as raised:
        model.load()
    message = str(raised.value)
    assert "\n" not in message
    for words in ("small.onnx cannot be fetched", str(model.path), "model=local", "HF_ENDPOINT"):
        assert words in message


def test_without_the_client_the_extra_is_named(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModelError, match=r"pip install 'seqto\[hub\]'.*by hand"):
        source(hub, tmp_path).load()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("file", "../outside.onnx"),
        ("file", "/etc/passwd"),
        ("repo", "nobody"),
        ("sha256", "abc"),
        ("revision", "../.."),
    ],
)
def test_what_cannot_be_an_address_is_refused(option: str, value: str) -> None:
    with pytest.raises(ValidationError, match=option):
        HubModel(**{"repo": REPO, "file": FILE, option: value})
