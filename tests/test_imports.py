"""The import rule of the design: downward only, and each library in its own room."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "seqto"

LEVELS = [
    {"types", "errors", "identity", "interrupts", "logs", "protocols", "workspace", "figures"}
    | {"__init__"},
    {"graph"},
    {"models", "datasets", "quantizers", "search", "devices", "metrics", "tracking"},
    {"pareto", "sensitivity"},
    {"measuring"},
    {"study", "report", "promotion"},
    {"config"},
    {"api"},
    {"cli"},
    {"__main__", "_plugins", "compare", "promote"},
]
ROOMS = {
    "mlflow": {"tracking"},
    "hydra": {"config", "cli", "_plugins"},
    "omegaconf": {"config", "api", "cli", "_plugins"},
    "tvm": {"devices"},
    "pymoo": {"pareto", "search"},
    "matplotlib": {"report"},
    "sklearn": {"datasets"},
    "PIL": {"datasets"},
    "huggingface_hub": {"models"},
    "datasets": {"datasets"},
    "onnx": {"types", "graph", "quantizers", "tracking"},
}
# The contract's own modules, which may see each other.
GROUND = LEVELS[0]

FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    # What `python -m` runs stands above all rooms, wherever it lies.
    return "__main__" if path.name == "__main__.py" else path.parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse((PACKAGE / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield f"{node.module}"


def level(name: str) -> int:
    (found,) = (number for number, rooms in enumerate(LEVELS) if name in rooms)
    return found


def forbidden(own: str, other: str) -> bool:
    if own == other or {own, other} <= GROUND:
        return False
    return level(other) >= level(own)


def test_every_room_has_a_level() -> None:
    assert {room(path) for path in FILES} <= set().union(*LEVELS)


@pytest.mark.parametrize("path", FILES, ids=str)
def test_imports_go_downward_only(path: Path) -> None:
    rooms = {
        name.split(".")[1] if "." in name else "__init__"
        for name in imported(path)
        if name.split(".")[0] == "seqto"
    }
    assert not {other for other in rooms if forbidden(room(path), other)}


@pytest.mark.parametrize("path", FILES, ids=str)
def test_libraries_stay_in_their_rooms(path: Path) -> None:
    libraries = {name.split(".")[0] for name in imported(path)}
    assert not {each for each in libraries if room(path) not in ROOMS.get(each, {room(path)})}


def test_the_rule_can_be_broken() -> None:
    assert forbidden("models", "datasets")
    assert forbidden("graph", "study")
    assert not forbidden("study", "graph")
