"""What fits the registers of a CPU."""

import pytest

from seqto.devices.tvm_loops import Vectors

WIDE = Vectors(lanes=16, registers=24)


@pytest.mark.parametrize(
    ("extent", "width", "rows"), [(64, 16, 6), (40, 8, 12), (196, 7, 12), (49, 7, 12), (3, 3, 12)]
)
def test_tiles_fit_the_registers(extent: int, width: int, rows: int) -> None:
    vectors = Vectors(lanes=8, registers=12)
    assert (vectors.width(extent), vectors.rows(48, width)) == (width, rows)


@pytest.mark.parametrize(
    ("channels", "block"), [(32, 16), (1280, 16), (24, 8), (1000, 8), (10, 1), (3, 1)]
)
def test_channels_are_packed_by_whole_vectors(channels: int, block: int) -> None:
    assert WIDE.block(channels) == block


@pytest.mark.parametrize(
    ("pixels", "vectors", "tile"),
    [(7, 12, (7, 3)), (14, 30, (7, 3)), (49, 1, (7, 1)), (47, 12, (1, 12))],
)
def test_a_tile_uses_each_load_as_often_as_registers_allow(
    pixels: int, vectors: int, tile: tuple[int, int]
) -> None:
    assert WIDE.tile(pixels, vectors) == tile
