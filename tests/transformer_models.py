"""A tiny vision transformer, node by node as PyTorch exports one at opset 17."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx_models import Shape, build, weight

from seqto.types import Model

_WIDTH, _HEADS, _PATCHES = 32, 4, 16


def vit(blocks: int = 2, batch: int | str = 1, *, like_bert: bool = False) -> Model:
    """Return a vision transformer for 8 x 8 digits: a class token and 16 patches of 2 x 2.

    The blocks share the constant shapes of their Reshapes. With a batch of 1, all shapes are known,
    and ONNX Runtime makes a Gemm between two Reshapes of a MatMul and its Add. But if attention is
    added to the normalized tokens, `like_bert`, it leaves the MatMuls around it to AttentionFusion.
    """
    tokens = _PATCHES + 1
    shapes = {
        "sequence_shape": [-1, _WIDTH, _PATCHES],
        "heads_shape": [-1, tokens, _HEADS, _WIDTH // _HEADS],
        "joined_shape": [-1, tokens, _WIDTH],
    }
    numbers = {"root_two": 2**0.5, "one": 1.0, "half": 0.5, "scale": (_WIDTH / _HEADS) ** -0.5}
    weights = [
        *(numpy_helper.from_array(np.array(each, np.int64), name) for name, each in shapes.items()),
        *(numpy_helper.from_array(np.float32(each), name) for name, each in numbers.items()),
        *(weight("patch_w", _WIDTH, 1, 2, 2), _bias("patch_b", _WIDTH)),
        *(weight("class_token", 1, 1, _WIDTH), weight("places", 1, tokens, _WIDTH)),
    ]
    nodes = [
        helper.make_node("Conv", ["image", "patch_w", "patch_b"], ["map"], "patch", strides=[2, 2]),
        _made("Reshape", ["map", "sequence_shape"], "columns"),
        _made("Transpose", ["columns"], "patches", perm=[0, 2, 1]),
        *_class_tokens(weights),
        _made("Concat", ["class_tokens", "patches"], "tokens", axis=1),
        _made("Add", ["tokens", "places"], "x0"),
    ]
    for index in range(blocks):
        nodes += _block(index, weights, like_bert=like_bert)
    nodes += [
        *_norm(f"x{blocks}", "last", weights),
        _class_state("last", "class_state", weights),
        helper.make_node("Gemm", ["class_state", "head_w", "head_b"], ["y"], "head", transB=1),
    ]
    weights += [weight("head_w", 10, _WIDTH), _bias("head_b", 10)]
    inputs: dict[str, Shape] = {"image": [batch, 1, 8, 8]}
    return build(nodes, weights, inputs, {"y": [batch, 10]}, name="vit")


def _class_tokens(weights: list[onnx.TensorProto]) -> list[onnx.NodeProto]:
    """Return the nodes that repeat the class token for each sample."""
    sizes = {"first": [0], "second": [1], "rest": [1, _WIDTH]}
    weights += [
        numpy_helper.from_array(np.array(each, np.int64), name) for name, each in sizes.items()
    ]
    return [
        _made("Shape", ["patches"], "patches_shape"),
        _made("Slice", ["patches_shape", "first", "second"], "samples"),
        _made("Concat", ["samples", "rest"], "class_shape", axis=0),
        _made("Expand", ["class_token", "class_shape"], "class_tokens"),
    ]


def _block(index: int, weights: list[onnx.TensorProto], *, like_bert: bool) -> list[onnx.NodeProto]:
    """Return attention and a perceptron behind it, each added to what it reads."""
    at, given, after = f"b{index}", f"x{index}", f"x{index + 1}"
    nodes = _norm(given, f"{at}_n", weights)
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes += [
            *_dense(f"{at}_n", f"{at}_{name}", _WIDTH, _WIDTH, weights),
            _made("Reshape", [f"{at}_{name}", "heads_shape"], f"{at}_{name}_r"),
            _made("Transpose", [f"{at}_{name}_r"], f"{at}_{name}_t", perm=order),
        ]
    return [
        *nodes,
        _made("MatMul", [f"{at}_q_t", f"{at}_k_t"], f"{at}_products"),
        _made("Mul", [f"{at}_products", "scale"], f"{at}_scores"),
        _made("Softmax", [f"{at}_scores"], f"{at}_shares", axis=-1),
        _made("MatMul", [f"{at}_shares", f"{at}_v_t"], f"{at}_sums"),
        _made("Transpose", [f"{at}_sums"], f"{at}_sums_t", perm=[0, 2, 1, 3]),
        _made("Reshape", [f"{at}_sums_t", "joined_shape"], f"{at}_joined"),
        *_dense(f"{at}_joined", f"{at}_out", _WIDTH, _WIDTH, weights),
        _made("Add", [f"{at}_n" if like_bert else given, f"{at}_out"], f"{at}_attended"),
        *_norm(f"{at}_attended", f"{at}_m", weights),
        *_dense(f"{at}_m", f"{at}_wide", _WIDTH, 4 * _WIDTH, weights),
        *_gelu(f"{at}_wide", f"{at}_gelu"),
        *_dense(f"{at}_gelu", f"{at}_narrow", 4 * _WIDTH, _WIDTH, weights),
        _made("Add", [f"{at}_attended", f"{at}_narrow"], after),
    ]


def _norm(given: str, output: str, weights: list[onnx.TensorProto]) -> list[onnx.NodeProto]:
    weights += [weight(f"{output}_gain", _WIDTH), _bias(f"{output}_shift", _WIDTH)]
    inputs = [given, f"{output}_gain", f"{output}_shift"]
    return [_made("LayerNormalization", inputs, output, axis=-1, epsilon=1e-6)]


def _dense(
    given: str, output: str, wide: int, outputs: int, weights: list[onnx.TensorProto]
) -> list[onnx.NodeProto]:
    """Return the layer named like its output, and the addition of its bias."""
    weights += [weight(f"{output}_w", wide, outputs), _bias(f"{output}_b", outputs)]
    return [
        helper.make_node("MatMul", [given, f"{output}_w"], [f"{output}_m"], output),
        _made("Add", [f"{output}_b", f"{output}_m"], output),
    ]


def _bias(name: str, size: int) -> onnx.TensorProto:
    """Return a bias so small that the image decides on the class, not the biases."""
    values = numpy_helper.to_array(weight(name, size)) / 100
    return numpy_helper.from_array(values.astype(np.float32), name)


def _gelu(given: str, output: str) -> list[onnx.NodeProto]:
    return [
        _made("Div", [given, "root_two"], f"{output}_d"),
        _made("Erf", [f"{output}_d"], f"{output}_e"),
        _made("Add", [f"{output}_e", "one"], f"{output}_a"),
        _made("Mul", [given, f"{output}_a"], f"{output}_m"),
        _made("Mul", [f"{output}_m", "half"], output),
    ]


def _class_state(given: str, output: str, weights: list[onnx.TensorProto]) -> onnx.NodeProto:
    """Return the node that takes the class token's state."""
    weights.append(numpy_helper.from_array(np.array(0, np.int64), "class_place"))
    return _made("Gather", [given, "class_place"], output, axis=1)


def _made(op_type: str, inputs: Sequence[str], output: str, **options: object) -> onnx.NodeProto:
    """Return a node with the name of its output."""
    return helper.make_node(op_type, list(inputs), [output], f"{output}_node", **options)
