"""What is being done is told to whoever listens, and to nobody else."""

import threading

import pytest

from seqto.phases import counted, listening, say

Told = list[tuple[str, int, int | None]]


@pytest.fixture
def told() -> Told:
    return []


def hear(told: Told, what: str, done: int, total: int | None) -> None:
    told.append((what, done, total))


def test_items_are_counted(told: Told) -> None:
    with listening(lambda *words: hear(told, *words)):
        assert list(counted("ranking", ["a", "b"])) == ["a", "b"]
        assert list(counted("decoding", iter("a"), 1)) == ["a"]
        assert list(counted("reading", iter("a"))) == ["a"]
    assert told == [
        *(("ranking", done, 2) for done in range(3)),
        *(("decoding", done, 1) for done in range(2)),
        *(("reading", done, None) for done in range(2)),
    ]


def test_without_a_listener_nothing_happens(told: Told) -> None:
    with listening(lambda *words: hear(told, *words)):
        pass
    say("resting")
    assert list(counted("resting", [1])) == [1]
    assert not told


def test_the_inner_listener_hears_and_the_outer_one_comes_back(told: Told) -> None:
    inner: Told = []
    with listening(lambda *words: hear(told, *words)):
        with pytest.raises(ValueError, match="over"), listening(lambda *words: hear(inner, *words)):
            say("inside")
            raise ValueError("over")
        say("outside")
    assert (told, inner) == ([("outside", 0, None)], [("inside", 0, None)])


def test_other_threads_are_not_heard(told: Told) -> None:
    with listening(lambda *words: hear(told, *words)):
        thread = threading.Thread(target=say, args=("elsewhere",))
        thread.start()
        thread.join()
    assert not told
