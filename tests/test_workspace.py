"""The folder of what is computed once."""

import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import platformdirs
import pytest

from seqto.errors import CacheError
from seqto.workspace import Workspace, kept, kept_json, written_whole


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
        workspace.reference,
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


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def edited(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[20] ^= 1
    path.write_bytes(content)


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def unsealed(path: Path) -> None:
    path.write_text(json.dumps([1] * 100))


def of_another_key(path: Path) -> None:
    other = path.with_name("another.json")
    kept_json(other, lambda: [1] * 100)
    other.replace(path)


@pytest.mark.parametrize("damage", [cut, emptied, edited, longer, unsealed, of_another_key])
def test_a_cached_file_that_is_not_as_it_was_made_is_made_again(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path, made = tmp_path / "ranges" / "key.json", []

    def compute() -> list[int]:
        made.append(1)
        return [7] * 100

    for _ in range(2):
        assert kept_json(path, compute) == [7] * 100
    assert len(made) == 1 and not caplog.records
    damage(path)
    for _ in range(2):
        assert kept_json(path, compute) == [7] * 100
    assert len(made) == 2
    (line,) = (record.getMessage() for record in caplog.records)
    assert str(path) in line and "made again" in line


def test_a_cached_file_may_move_with_its_cache(tmp_path: Path) -> None:
    path = tmp_path / "here" / "ranges" / "key.json"
    kept_json(path, lambda: 1)
    (tmp_path / "here").rename(tmp_path / "there")
    moved = tmp_path / "there" / "ranges" / "key.json"
    assert kept_json(moved, lambda: 2) == 1


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(CacheError, match="cannot be kept in .* SEQTO_CACHE"):
        kept_json(tmp_path / "cache" / "ranges" / "key.json", lambda: 1)

    def full(path: Path) -> None:
        with open("/dev/full", "w") as file:
            file.write("x" * 100_000)

    with pytest.raises(CacheError, match="No space left"):
        kept(tmp_path / "ranges" / "key.json", full)


def test_other_errors_of_what_is_computed_are_not_the_caches(tmp_path: Path) -> None:
    def missing(path: Path) -> None:
        (tmp_path / "nothing").read_text()

    with pytest.raises(FileNotFoundError):
        kept(tmp_path / "ranges" / "key.json", missing)
    assert list((tmp_path / "ranges").iterdir()) == []
