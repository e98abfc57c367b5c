"""The image files of a folder, with the labels that the folder gives them."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seqto.errors import DatasetError

EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff")

_COLUMNS = ("file", "label")
_LONGEST_LABEL = 9
"""Digits of a class index: more are a mistake, and no number that arrays can hold."""


@dataclass(frozen=True)
class ImageFile:
    """An image, named by its path relative to the dataset's folder."""

    name: str
    path: Path
    label: int | None = None


def find_images(folder: Path, labels: str | Literal[False] | None) -> list[ImageFile]:
    """Return the images of a flat folder, one folder per class, or a CSV, sorted by name.

    If `labels` is False, they have none.
    """
    if not folder.is_dir():
        raise DatasetError(f"{folder} is no folder: set dataset.path to a folder of images.")
    table = _table(folder, labels or None)
    found = _of_table(folder, table) if table else _of_folders(folder)
    if labels is False:
        found = [ImageFile(each.name, each.path) for each in found]
    if not found:
        raise DatasetError(
            f"{folder} has no images: dataset.path takes a folder of {', '.join(EXTENSIONS)} "
            "files, of one folder per class, or with a CSV of the columns file,label."
        )
    return sorted(found, key=lambda image: image.name)


def _table(folder: Path, labels: str | None) -> Path | None:
    """Return the CSV that lists the images, or None if there is none."""
    if labels is not None:
        if not (folder / labels).is_file():
            raise DatasetError(f"dataset.labels={labels} is no file in {folder}.")
        return folder / labels
    tables = sorted(each for each in _visible(folder) if each.suffix.lower() == ".csv")
    if len(tables) > 1:
        names = ", ".join(each.name for each in tables)
        raise DatasetError(f"{folder} has several CSV files: set dataset.labels to one of {names}.")
    return tables[0] if tables else None


def _of_folders(folder: Path) -> list[ImageFile]:
    """Return the images in the folder itself, or in its subfolders, one per class."""
    folders = sorted(each for each in _visible(folder) if each.is_dir())
    nested = [
        ImageFile(path.relative_to(folder).as_posix(), path, label)
        for label, each in enumerate(folders)
        for path in _images(each)
    ]
    flat = [ImageFile(path.name, path) for path in _images(folder)]
    if flat and nested:
        raise DatasetError(
            f"{folder} has images both in itself and in folders ({nested[0].name!r}): "
            "keep them either flat or in one folder per class."
        )
    # A single subfolder does not distinguish classes.
    if len(folders) == 1:
        nested = [ImageFile(each.name, each.path) for each in nested]
    return flat or nested


def _images(folder: Path) -> Iterator[Path]:
    """Yield the image files in the folder itself."""
    for path in _visible(folder):
        if path.suffix.lower() in EXTENSIONS and path.is_file():
            yield path


def _visible(folder: Path) -> Iterator[Path]:
    """Yield the folder's entries, without hidden files such as those that macOS leaves behind."""
    return (path for path in folder.iterdir() if not path.name.startswith("."))


def _of_table(folder: Path, table: Path) -> list[ImageFile]:
    """Return the images that a CSV names."""
    try:
        # Spreadsheets may start a CSV with a byte order mark.
        with table.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            _require_header(reader.fieldnames or (), table)
            found = [_of_row(folder, row, f"{table}, line {reader.line_num}") for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(f"{table} cannot be read as a CSV in UTF-8 ({error}).") from error
    _require_one_label(found, table)
    # A line that repeats another says nothing new.
    return list({each.path: each for each in found}.values())


def _require_one_label(images: Sequence[ImageFile], table: Path) -> None:
    """Raise if the CSV gives one file two labels."""
    labels: dict[Path, int | None] = {}
    for each in images:
        if labels.setdefault(each.path, each.label) != each.label:
            raise DatasetError(
                f"{table} gives {each.name!r} the labels {labels[each.path]} and {each.label}: "
                "keep one of the two lines."
            )


def _require_header(header: Sequence[str], table: Path) -> None:
    """Raise if the CSV does not start with the names of its columns."""
    if not set(_COLUMNS) <= set(header):
        raise DatasetError(
            f"{table}, line 1: the header must be {','.join(_COLUMNS)}, not {','.join(header)!r}."
        )


def _of_row(folder: Path, row: dict[str, str | None], place: str) -> ImageFile:
    """Return the image of one line."""
    name, label = row["file"] or "", (row["label"] or "").strip()
    if not label.isdecimal():
        raise DatasetError(f"{place}: the label must be a class index from 0, not {label!r}.")
    if len(label) > _LONGEST_LABEL:
        raise DatasetError(f"{place}: no model has a class {label[:20]}...: give its index.")
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise DatasetError(f"{place}: {name!r} leaves {folder}: name files inside it.")
    for path in (folder / name, folder / "images" / name):
        if path.is_file():
            return ImageFile(name, path, int(label))
    raise DatasetError(f"{place}: {name!r} is neither in {folder} nor in its folder images.")
