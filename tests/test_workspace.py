"""The folder of what is computed once."""

import os
import stat
import threading
from pathlib import Path

import platformdirs
import pytest

from seqto.workspace import Workspace, written_whole


def test_default_is_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, ""):
        monkeypatch.delenv("SEQTO_CACHE", raising=False)
        if value is not None:
            monkeypatch.setenv("SEQTO_CACHE", value)
        assert Workspace.default().root == Path(platformdirs.user_cache_dir("seqto"))


def test_default_can_be_moved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SEQTO_CACHE", str(tmp_path))
    assert Workspace.default() == Workspace(tmp_path)


def test_paths_of_one_key_lie_in_the_folder_and_differ(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    kinds = [
        *(workspace.samples, workspace.ranges, workspace.scores, workspace.learned),
        *(workspace.reference, workspace.lock),
    ]
    paths = [kind(key) for kind in kinds for key in ("one", "two")]
    assert len(set(paths)) == len(paths)
    assert all(tmp_path in path.parents for path in paths)
    # A question makes no folders.
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_there_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "file.json"
    with written_whole(path) as temporary:
        temporary.write_text("half")
        assert not path.exists()
        assert temporary.parent == path.parent
        # numpy.save would append the suffix that is not there.
        assert temporary.suffix == ".json"
        temporary.write_text("whole")
        inode = temporary.stat().st_ino
    assert path.read_text() == "whole"
    # Renamed, not copied: a reader never sees a part of it.
    assert path.stat().st_ino == inode
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_what_fails_leaves_all_as_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "file.json"
    path.write_text("before")
    with pytest.raises(error), written_whole(path) as temporary:
        temporary.write_text("half")
        raise error
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_files_have_the_mode_of_any_other(tmp_path: Path) -> None:
    plain, written = tmp_path / "plain", tmp_path / "written"
    previous = os.umask(0o027)
    try:
        plain.touch()
        with written_whole(written) as temporary:
            temporary.write_text("content")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(previous)
    assert stat.S_IMODE(written.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode) == 0o640


def test_many_writers_of_one_file_do_not_mix(tmp_path: Path) -> None:
    path = tmp_path / "file.txt"
    together = threading.Barrier(4)

    def write(letter: str) -> None:
        with written_whole(path) as temporary:
            together.wait(timeout=120)
            temporary.write_text(letter * 100_000)

    writers = [threading.Thread(target=write, args=(letter,)) for letter in "abcd"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    content = path.read_text()
    assert len(content) == 100_000
    assert len(set(content)) == 1
    assert list(tmp_path.iterdir()) == [path]
