"""The import rule of the design: downward only, and each library in its own room."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "seqto"

LEVELS = [
    {"types", "errors", "identity", "interrupts", "logs", "protocols", "workspace", "figures"}
    | {"freeing", "secrets", "packages", "phases", "__init__"},
    {"graph"},
    {"models", "datasets", "quantizers", "search", "devices", "metrics", "tracking"},
    {"tasks"},
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
    "ray": {"measuring"},
    "matplotlib": {"report"},
    "sklearn": {"datasets"},
    "PIL": {"datasets"},
    "huggingface_hub": {"models"},
    "datasets": {"datasets"},
    "tokenizers": {"datasets", "metrics"},
    "rapidfuzz": {"metrics"},
    "sacrebleu": {"metrics"},
    "onnx": {"types", "graph", "quantizers", "tracking", "api"},
}
ALIKE = {"auto", "local"}
"""Modules of one name that configs of users name as `_target_`: their rooms tell them apart."""

# The contract's own modules, which may see each other.
GROUND = LEVELS[0]

FILES = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    # What `python -m` runs stands above all rooms, wherever it lies.
    return "__main__" if path.name == "__main__.py" else path.parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    tree = ast.parse((PACKAGE / path).read_text())
    if path == Path("__init__.py"):
        # The door names what is behind it, for who checks types; it opens when it is used.
        tree.body = [node for node in tree.body if not isinstance(node, ast.If)]
    for node in ast.walk(tree):
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
    own = room(path)
    for other in rooms:
        assert not forbidden(own, other), (
            f"seqto/{path} imports seqto.{other}, which is not below {own}: rooms of one level do "
            "not see each other. Move what both need downward, or take it as an argument."
        )


@pytest.mark.parametrize("path", FILES, ids=str)
def test_libraries_stay_in_their_rooms(path: Path) -> None:
    for library in {name.split(".")[0] for name in imported(path)} & ROOMS.keys():
        assert room(path) in ROOMS[library], (
            f"seqto/{path} imports {library}, which belongs into {', '.join(ROOMS[library])}."
        )


def test_no_two_modules_have_one_name() -> None:
    # `__main__` and `__init__` are Python's; what `python -m` starts has the name of the command.
    names = [path.stem for path in FILES if not path.stem.startswith("__")]
    twice = {name for name in names if names.count(name) > 1}
    assert twice <= ALIKE, f"two modules are called {', '.join(twice - ALIKE)}"


def test_the_rule_can_be_broken() -> None:
    assert forbidden("models", "datasets")
    assert forbidden("graph", "study")
    assert not forbidden("study", "graph")
