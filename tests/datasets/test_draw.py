"""One rule for all datasets: how many samples calibrate, and how many evaluate."""

import logging

import pytest

from seqto.datasets.draw import Draw, Drawn
from seqto.errors import DatasetError


def drawn(total: int, calibration: int | None, evaluation: int | str | None) -> Drawn:
    return Draw(calibration, evaluation, 0, "photos", "images").of(total, str)


CASES = {
    "enough": (1000, None, None, (100, 300)),
    "just enough": (400, None, None, (100, 300)),
    "few": (238, None, None, (59, 179)),
    "fewest": (20, None, None, (5, 15)),
    "few, all": (238, None, "all", (59, 179)),
    "all": (1000, None, "all", (100, 900)),
    "all that calibration leaves": (1000, 10, "all", (10, 990)),
    "calibration": (1000, 10, None, (10, 300)),
    "calibration of few": (50, 40, None, (40, 10)),
    "evaluation": (1000, None, 10, (100, 10)),
    "both": (5, 2, 3, (2, 3)),
}


@pytest.mark.parametrize("case", CASES)
def test_sizes(case: str) -> None:
    total, calibration, evaluation, sizes = CASES[case]
    found = drawn(total, calibration, evaluation)
    assert (found.calibration, len(found.indices) - found.calibration) == sizes
    assert len(set(found.order)) == sum(sizes)


WRONG = {
    "too few": (19, None, None, "photos has 19 images, too few .* give 20 or more, 400 for"),
    "one": (1, None, "all", "photos has 1 image, too few"),
    "fewer than asked for": (238, 100, 300, "has 238 images, but 100 to calibrate and 300 to"),
    "fewer than evaluate": (238, None, 300, "has 238 images, but 100 to calibrate and 300 to"),
    "none left": (40, 40, None, "has 40 images, but 40 to calibrate and at least 1 to"),
}


@pytest.mark.parametrize("case", WRONG)
def test_too_few_are_refused(case: str) -> None:
    total, calibration, evaluation, words = WRONG[case]
    with pytest.raises(DatasetError, match=words):
        drawn(total, calibration, evaluation)


def test_copies_do_not_count() -> None:
    with pytest.raises(DatasetError, match="photos has 15 different images, too few"):
        Draw(None, None, 0, "photos", "images").of(30, lambda index: str(index // 2))


def test_what_few_samples_cost_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        drawn(238, None, None)
    (line,) = caplog.messages
    assert line == (
        "photos has 238 images: 59 calibrate and 179 evaluate. A loss of 2 % is then known to "
        "within 2.1 points; with 400 images, to within 1.6."
    )


@pytest.mark.parametrize("sizes", [(400, None, None), (30, 10, 20), (30, 10, None)])
def test_nothing_is_said_of_enough_samples_or_of_sizes_that_were_chosen(
    caplog: pytest.LogCaptureFixture, sizes: tuple[int, int | None, int | None]
) -> None:
    with caplog.at_level(logging.WARNING):
        drawn(*sizes)
    assert not caplog.messages
