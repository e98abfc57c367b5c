"""The losses of all tasks once more, as a reader would compute them by hand.

Nothing of seqto's tasks and metrics is used here. Each function takes the compared outputs of the
float model and of a candidate, by name, one entry per sample as a session returns it for a batch of
1, and returns the loss of each sample.
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

Answers = Sequence[Mapping[str, np.ndarray]]


def top_classes(wanted: Answers, found: Answers) -> list[float]:
    """Return 1 where the highest score is at another place."""
    return [float(np.argmax(one) != np.argmax(two)) for one, two in _pairs(wanted, found)]


def top_five(wanted: Answers, found: Answers) -> list[float]:
    """Return the share of the five highest scores that are not among the candidate's five.

    NaN where the fifth and the sixth are so close that rounding decides which one is higher.
    """
    losses = []
    for one, two in _pairs(wanted, found):
        if any(_is_close_call(each.ravel()) for each in (one, two)):
            losses.append(float("nan"))
            continue
        right, made = (set(each.ravel().argsort()[-5:].tolist()) for each in (one, two))
        losses.append(len(right - made) / 5)
    return losses


def _is_close_call(scores: np.ndarray) -> bool:
    sixth, fifth = np.sort(scores)[-6:-4]
    return bool(fifth - sixth <= 0.01 * fifth)


def decisions(wanted: Answers, found: Answers) -> list[float]:
    """Return 1 where a probability is on the other side of one half."""
    return [float((one.item() > 0.5) != (two.item() > 0.5)) for one, two in _pairs(wanted, found)]


def angles(wanted: Answers, found: Answers) -> list[float]:
    """Return one minus the cosine."""
    return [
        1 - float(one.ravel() @ two.ravel() / np.linalg.norm(one) / np.linalg.norm(two))
        for one, two in _pairs(wanted, found)
    ]


def tokens(wanted: Answers, found: Answers) -> list[float]:
    """Return the share of positions whose highest score is at another token."""
    losses = []
    for one, two in _pairs(wanted, found):
        differ = [row.argmax() != other.argmax() for row, other in zip(one[0], two[0], strict=True)]
        losses.append(sum(differ) / len(differ))
    return losses


def texts(wanted: Answers, found: Answers) -> list[float]:
    """Return the edits from one text to the other, as a share of the float model's text."""
    losses = []
    for one, two in _pairs(wanted, found):
        right, read = _without_repeats(one[0]), _without_repeats(two[0])
        losses.append(min(1.0, _edits(right, read) / max(1, len(right))))
    return losses


def _without_repeats(scores: np.ndarray) -> list[int]:
    return [token for token, _ in groupby(row.argmax().item() for row in scores) if token != 0]


def _edits(one: list[int], other: list[int]) -> int:
    """Return Levenshtein's distance, by its table."""
    row = list(range(len(other) + 1))
    for i, token in enumerate(one, 1):
        above, row = row, [i]
        for j, candidate in enumerate(other, 1):
            changed = above[j - 1] + (token != candidate)
            row.append(min(changed, above[j] + 1, row[j - 1] + 1))
    return row[-1]


def one_mask(wanted: Answers, found: Answers) -> list[float]:
    """Return one minus the IoU of the pixels that are more likely in the object than not."""
    return [_miss(one >= 0.5, two >= 0.5) for one, two in _pairs(wanted, found)]


def masks(wanted: Answers, found: Answers) -> list[float]:
    """Return one minus the mean IoU of the classes that any of two maps has."""
    losses = []
    for one, two in _pairs(wanted, found):
        right, made = one[0].argmax(0), two[0].argmax(0)
        present = sorted({*right.ravel().tolist(), *made.ravel().tolist()})
        losses.append(float(np.mean([_miss(right == each, made == each) for each in present])))
    return losses


def _miss(one: np.ndarray, other: np.ndarray) -> float:
    either = int((one | other).sum())
    return 1 - int((one & other).sum()) / either if either else 0.0


class Box(NamedTuple):
    """A found object."""

    score: float
    kind: int
    left: float
    top: float
    right: float
    bottom: float


def yolo_boxes(wanted: Answers, found: Answers) -> list[float]:
    """Return one minus F1 of boxes that are written as YOLOv8 does."""
    return [1 - _f1(_of_yolo(one), _of_yolo(two)) for one, two in _pairs(wanted, found)]


def scored_boxes(wanted: Answers, found: Answers) -> list[float]:
    """Return one minus F1 of boxes whose corners and scores are two outputs."""
    return [1 - _f1(_of_pair(one), _of_pair(two)) for one, two in zip(wanted, found, strict=True)]


def _of_yolo(output: np.ndarray) -> list[Box]:
    boxes = []
    for x, y, width, height, *scores in output[0].T.tolist():
        best = max(scores)
        corners = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
        boxes.append(Box(best, scores.index(best), *corners))
    return _objects(boxes)


def _of_pair(outputs: Mapping[str, np.ndarray]) -> list[Box]:
    corners, scores = outputs["boxes"][0].tolist(), outputs["scores"][0].tolist()
    rows = zip(corners, scores, strict=True)
    return _objects([Box(max(row), row.index(max(row)), *corner) for corner, row in rows])


def _objects(boxes: list[Box]) -> list[Box]:
    """Return the boxes above 0.25 that no surer one of their kind overlaps by more than 0.45."""
    kept: list[Box] = []
    for box in sorted(boxes, key=lambda each: -each.score):
        has_area = box.right > box.left and box.bottom > box.top
        repeats = any(_iou(box, each) > 0.45 for each in kept if each.kind == box.kind)
        if box.score >= 0.25 and has_area and not repeats:
            kept.append(box)
    return kept


def _f1(wanted: list[Box], found: list[Box]) -> float:
    """Return F1 of the found boxes, the surest of which choose first."""
    if not wanted and not found:
        return 1.0
    left = list(wanted)
    for box in found:
        near = [each for each in left if each.kind == box.kind and _iou(box, each) >= 0.5]
        if near:
            left.remove(max(near, key=lambda each: _iou(box, each)))
    return 2 * (len(wanted) - len(left)) / (len(wanted) + len(found))


def _iou(one: Box, other: Box) -> float:
    width = min(one.right, other.right) - max(one.left, other.left)
    height = min(one.bottom, other.bottom) - max(one.top, other.top)
    shared = max(width, 0.0) * max(height, 0.0)
    return shared / (_area(one) + _area(other) - shared)


def _area(box: Box) -> float:
    return (box.right - box.left) * (box.bottom - box.top)


def quantities(wanted: Answers, found: Answers) -> list[float]:
    """Return the mean squared error of a few values, each as a share of its variance."""
    right, made = (
        np.stack(each, dtype=np.float64) for each in zip(*_pairs(wanted, found), strict=True)
    )
    shares = (made - right) ** 2 / right.var(axis=0, ddof=1)
    return [min(1.0, float(each.mean())) for each in shares]


def signals(wanted: Answers, found: Answers) -> list[float]:
    """Return the noise of each sample as a share of its signal, mean over outputs."""
    by_output = []
    for name in wanted[0]:
        right, made = (
            np.stack([each[name] for each in of], dtype=np.float64) for of in (wanted, found)
        )
        noise = [((two - one) ** 2).mean() for one, two in zip(right, made, strict=True)]
        by_output.append(np.minimum(1, np.array(noise) / _powers(right)))
    return [float(each) for each in np.mean(by_output, axis=0)]


def _powers(samples: np.ndarray) -> np.ndarray:
    """Return the power of what each sample says beside the mean sample.

    Some of the mean is chance: a mean of n independent samples has a power of 1 / n of theirs. Only
    the share of it that exceeds this is taken off.
    """
    count, axes = len(samples), tuple(range(1, samples.ndim))
    mean = samples.mean(axis=0)
    spread = samples.var(axis=0, ddof=1).mean()
    shared = max(0.0, 1 - spread / count / (mean**2).mean())
    powers = ((samples - shared * mean) ** 2).mean(axis=axes) * count / (count - shared)
    return np.asarray(np.maximum(powers, spread / 1000))


def _pairs(wanted: Answers, found: Answers) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the only output of both models, for each sample."""
    pairs = []
    for one, two in zip(wanted, found, strict=True):
        ((name, right),) = one.items()
        pairs.append((np.asarray(right, np.float64), np.asarray(two[name], np.float64)))
    return pairs
