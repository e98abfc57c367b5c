"""MatMuls as ONNX Runtime's MatMulNBits, which reads weights of 4 and 8 bits as they are stored.

It rounds activations to 8 bits, with a scale for each block of them. Measured with one thread on an
x86 CPU with VNNI, with matrices of 384 x 384 to 2048 x 8192, it is 1.3 to 4 times as fast as a
float MatMul for one token, and 1.0 to 1.6 times for 32. The rounding adds 0.4 % to the noise of
4-bit weights, but as much again to that of 8-bit ones; and its scales have 32 bits, so that int4 in
blocks of 32 takes a ninth more bytes than if it is unpacked at load.
"""

from collections.abc import Collection, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from seqto.graph.layers import weights_of
from seqto.graph.links import Links, drop_unused
from seqto.graph.nodes import initializers
from seqto.graph.packing import Packed, in_blocks, nibbles
from seqto.types import INT4, INT8, Model

LEAST_WEIGHTS = 384 * 384
"""The smallest matrix with which a gain was measured."""

DOMAIN = "com.microsoft"
OPERATION = "MatMulNBits"
BITS = {INT4: 4, INT8: 8}

_BLOCKS = (128, 64, 32)
"""Blocks of 8-bit weights; the larger, the faster."""

_SMALLEST_BLOCK = 16
_ROUNDED_ACTIVATIONS = 4
"""The accuracy level at which MatMulNBits is fast."""


def matmuls(model: Model, names: Collection[str], least: int) -> set[str]:
    """Return those of these layers that can be MatMulNBits: MatMuls of at least so many weights.

    Others that read the same weight would need it in another form.
    """
    graph = model.proto.graph
    constants, links = initializers(graph), Links(graph)
    found = set()
    for node in graph.node:
        weight = next(iter(weights_of(node, constants)), None) if node.name in names else None
        if weight is not None and _fits(weight, least):
            readers = links.readers(weight.name)
            if all(each.op_type == "MatMul" and each.input[1] == weight.name for each in readers):
                found.add(str(node.name))
    return found


def _fits(weight: onnx.TensorProto, least: int) -> bool:
    rows, *columns = weight.dims
    return (
        weight.data_type == TensorProto.FLOAT
        and len(columns) == 1
        and rows * columns[0] >= least
        and block_of(rows, INT8, 0) > 0
    )


def block_of(values: int, precision: str, block: int) -> int:
    """Return how many weights share a scale; 0 if the values do not fill whole blocks.

    `block` is the block size of int4; that of int8 is the largest that fits.
    """
    sizes = (block,) if precision == INT4 else _BLOCKS
    whole = (each for each in sizes if values % each == 0 and _is_allowed(each))
    return next(whole, 0)


def _is_allowed(block: int) -> bool:
    """Return whether MatMulNBits has blocks of this size: powers of two."""
    return block >= _SMALLEST_BLOCK and block & (block - 1) == 0


def pack_nbits(
    weight: onnx.TensorProto,
    name: str,
    precision: str,
    block: int,
    chosen: np.ndarray | None = None,
) -> Packed:
    """Return a MatMul's weight as MatMulNBits reads it.

    `chosen` are the integers of int4 in the form of the weight; by default its values are rounded.
    """
    matrix = np.ascontiguousarray(numpy_helper.to_array(weight).T)
    integers, scales = in_blocks(matrix, precision, block)
    if precision == INT4 and chosen is not None:
        integers = np.ascontiguousarray(chosen.T).reshape(integers.shape)
    unsigned = (integers.astype(np.int16) + 2 ** (BITS[precision] - 1)).astype(np.uint8)
    if precision == INT4:
        packed = np.frombuffer(nibbles(unsigned), np.uint8)
        unsigned = packed.reshape(*unsigned.shape[:2], block // 2)
    values = numpy_helper.from_array(unsigned, name)
    # In float32, without a Cast: if its scales are computed, the outputs are silently wrong.
    scales = scales.reshape(scales.shape[:2]).astype(np.float32)
    stored = numpy_helper.from_array(scales, f"{name}_scale")
    return Packed(TensorProto.FLOAT, values, stored, (), (), tuple(weight.dims))


def nbits_bytes(outputs: int, values: int, precision: str, block: int) -> int:
    """Return the bytes of a packed weight in blocks of this size."""
    return outputs * (values * BITS[precision] // 8 + 4 * (values // block))


def run_packed(node: onnx.NodeProto, packed: Packed, precision: str, block: int) -> None:
    """Make this MatMul read the packed weight."""
    size, outputs = packed.padded
    node.op_type, node.domain = OPERATION, DOMAIN
    node.input[:] = [node.input[0], *(each.name for each in packed.held)]
    numbers = {"K": size, "N": outputs, "bits": BITS[precision], "block_size": block}
    numbers["accuracy_level"] = _ROUNDED_ACTIVATIONS
    node.attribute.extend(helper.make_attribute(name, each) for name, each in numbers.items())


def import_domain(proto: onnx.ModelProto) -> None:
    """Declare the domain of MatMulNBits, if the model does not yet."""
    if all(each.domain != DOMAIN for each in proto.opset_import):
        proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))


def unpack_matmuls(proto: onnx.ModelProto) -> None:
    """Replace each MatMulNBits by a MatMul of float weights, for runtimes that do not have it.

    Expects its scales to be constants. Activations are no longer rounded.
    """
    graph = proto.graph
    constants = initializers(graph)
    for node in graph.node:
        if node.op_type == OPERATION and {*node.input[1:]} <= constants.keys():
            name = f"{node.name}_unpacked"
            values = _unpacked(node, constants)
            graph.initializer.append(numpy_helper.from_array(values, name))
            node.op_type, node.domain = "MatMul", ""
            node.input[:] = [node.input[0], name]
            del node.attribute[:]
    drop_unused(graph)


def _unpacked(node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]) -> np.ndarray:
    """Return the weight of a MatMulNBits that this module made."""
    numbers = {each.name: each.i for each in node.attribute}
    stored, scales = (numpy_helper.to_array(constants[name]) for name in node.input[1:3])
    if numbers["bits"] == BITS[INT4]:
        stored = np.stack([stored & 0xF, stored >> 4], axis=-1).reshape(*stored.shape[:2], -1)
    centred = stored.astype(np.float32) - 2 ** (numbers["bits"] - 1)
    blocks = centred * scales.reshape(*centred.shape[:2], 1)
    return np.ascontiguousarray(blocks.reshape(numbers["N"], numbers["K"]).T)
