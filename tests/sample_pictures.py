"""Pictures for RapidOCR's three models and for nudenet, drawn in code with seeds.

Functions whose name ends in `inputs` return arrays by input name, whose first axis counts samples.
"""

from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from sample_files import some_words

from seqto.types import Arrays


def lines(count: int, seed: int = 0) -> list[str]:
    """Return so many short lines of words and numbers."""
    draw = np.random.default_rng(seed)
    return [f"{' '.join(some_words(draw, 2))} {draw.integers(10, 999)}" for _ in range(count)]


def line_inputs(count: int = 64, seed: int = 0, width: int = 320) -> Arrays:
    """Return pictures of lines, 48 pixels high, in several sizes, greys and shades of blur."""
    draw = np.random.default_rng(seed)
    pictures = [_line(text, draw, width) for text in lines(count, seed)]
    return {"x": np.stack([_scaled(each) for each in pictures])}


def upright_inputs(count: int = 64, seed: int = 0) -> Arrays:
    """Return pictures of lines, every other one upside down."""
    draw = np.random.default_rng(seed)
    pictures = [_line(text, draw, 192) for text in lines(count, seed)]
    turned = [each.rotate(180) if at % 2 else each for at, each in enumerate(pictures)]
    return {"x": np.stack([_scaled(each) for each in turned])}


def page_inputs(count: int = 24, seed: int = 0, pixels: int = 256) -> Arrays:
    """Return square pictures with some lines of text at several places and sizes."""
    draw = np.random.default_rng(seed)
    return {"x": np.stack([_scaled(_page(draw, pixels)) for _ in range(count)])}


def _scaled(picture: Image.Image) -> np.ndarray:
    pixels = np.asarray(picture.convert("RGB"), np.float32).transpose(2, 0, 1)
    return (pixels / 255 - 0.5) / 0.5


def _line(text: str, draw: np.random.Generator, width: int) -> Image.Image:
    """Return a picture of a line of text that fits into it."""
    paper, ink = int(draw.integers(170, 256)), int(draw.integers(0, 90))
    picture = Image.new("L", (width, 48), paper)
    pen = ImageDraw.Draw(picture)
    size = int(draw.integers(22, 34))
    while pen.textlength(text, ImageFont.load_default(size)) > width - 8:
        size -= 1
    pen.text((4, 24 - size // 2), text, ink, ImageFont.load_default(size))
    return _noisy(picture.filter(ImageFilter.GaussianBlur(float(draw.random()))), draw)


def _page(draw: np.random.Generator, pixels: int) -> Image.Image:
    paper, ink = int(draw.integers(170, 256)), int(draw.integers(0, 90))
    picture = Image.new("L", (pixels, pixels), paper)
    pen = ImageDraw.Draw(picture)
    top = int(draw.integers(4, 30))
    while top < pixels - 40:
        size = int(draw.integers(14, 30))
        text = " ".join(some_words(draw, int(draw.integers(1, 3))))
        pen.text((int(draw.integers(4, pixels // 3)), top), text, ink, ImageFont.load_default(size))
        top += size + int(draw.integers(8, 40))
    return _noisy(picture, draw)


def _noisy(picture: Image.Image, draw: np.random.Generator) -> Image.Image:
    pixels = np.asarray(picture, np.float32)
    pixels = pixels + draw.normal(0, 6, pixels.shape)
    return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


def face_inputs(count: int = 24, seed: int = 0, pixels: int = 320) -> Arrays:
    """Return scenes with a drawn face or two, which nudenet finds in most of them."""
    draw = np.random.default_rng(seed)
    scenes = [np.asarray(_scene(draw, pixels), np.float32) / 255 for _ in range(count)]
    return {"images": np.stack(scenes).transpose(0, 3, 1, 2).copy()}


def _scene(draw: np.random.Generator, pixels: int) -> Image.Image:
    picture = Image.new("RGB", (pixels, pixels), _colour(draw, 90, 230))
    for _ in range(3):
        x, y = draw.integers(0, pixels, 2).tolist()
        box = [x, y, x + int(draw.integers(20, 120)), y + int(draw.integers(20, 120))]
        ImageDraw.Draw(picture).rectangle(box, _colour(draw, 60, 250))
    for place in draw.permutation(2)[: draw.integers(1, 3)].tolist():
        size = int(draw.integers(pixels // 4, pixels // 3))
        left = int(place * pixels / 2 + draw.integers(0, max(pixels // 2 - size, 1)))
        _face(ImageDraw.Draw(picture), draw, left, int(draw.integers(20, pixels // 3)), size)
    return picture.filter(ImageFilter.GaussianBlur(1.2))


def _colour(draw: np.random.Generator, low: int, high: int) -> tuple[int, ...]:
    return tuple(draw.integers(low, high, 3).tolist())


def _face(
    pen: ImageDraw.ImageDraw, draw: np.random.Generator, left: int, top: int, size: int
) -> None:
    """Draw hair, shoulders, a head, eyes, brows, a nose and a mouth."""
    tone = float(draw.uniform(0.6, 1.0))
    skin, shade = (
        (int(r * tone), int(g * tone), int(b * tone))
        for r, g, b in ((236, 188, 160), (196, 140, 115))
    )
    hair = (int(draw.integers(20, 110)), int(draw.integers(10, 70)), 20)

    def box(x0: float, y0: float, x1: float, y1: float) -> list[float]:
        return [left + x0 * size, top + y0 * size, left + x1 * size, top + y1 * size]

    pen.ellipse(box(-0.2, 1.25, 1.2, 2.6), _colour(draw, 20, 200))
    pen.rectangle(box(0.36, 1.0, 0.64, 1.45), shade)
    pen.ellipse(box(0.02, -0.12, 0.98, 1.05), hair)
    pen.ellipse(box(0.12, 0.05, 0.88, 1.25), skin)
    for centre in (0.33, 0.67):
        pen.ellipse(box(centre - 0.09, 0.5, centre + 0.09, 0.59), (245, 245, 245))
        pen.ellipse(box(centre - 0.04, 0.5, centre + 0.04, 0.59), (50, 35, 30))
        pen.arc(box(centre - 0.12, 0.38, centre + 0.12, 0.52), 200, 340, hair, max(size // 30, 2))
    pen.polygon(
        [
            (left + 0.5 * size, top + 0.55 * size),
            (left + 0.43 * size, top + 0.8 * size),
            (left + 0.57 * size, top + 0.8 * size),
        ],
        shade,
    )
    pen.ellipse(box(0.36, 0.92, 0.64, 1.02), (175, 70, 75))


def characters(vocabulary: str) -> list[str]:
    """Return what the columns of RapidOCR's recognizer mean; the first one is the blank."""
    return ["", *vocabulary.splitlines(), " "]


def decoded(probabilities: np.ndarray, letters: Sequence[str]) -> str:
    """Return the text of one line: repeated characters once, blanks left out."""
    best = probabilities.argmax(-1)
    kept = [each for at, each in enumerate(best) if each and (at == 0 or each != best[at - 1])]
    return "".join(letters[each] for each in kept)
