"""Models, words and files changed at random, for `scripts/soak.py`."""

import random
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def chain(layers: int, channels: int = 1) -> onnx.ModelProto:
    """Return convolutions in a row and a dense layer, for images of 8 x 8 pixels."""
    drawn, nodes, weights, before, width = np.random.RandomState(0), [], [], "image", channels

    def weight(name: str, *shape: int) -> str:
        values = drawn.randn(*shape) / np.sqrt(np.prod(shape[1:]) / 2)
        weights.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    for at in range(layers):
        inputs = [before, weight(f"w{at}", 8, width, 3, 3)]
        nodes.append(helper.make_node("Conv", inputs, [f"c{at}"], f"conv{at}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{at}"], [f"r{at}"], f"relu{at}"))
        before, width = f"r{at}", 8
    nodes.append(helper.make_node("Flatten", [before], ["flat"], "flatten"))
    nodes.append(helper.make_node("Gemm", ["flat", weight("wf", 10, 512)], ["y"], "fc", transB=1))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", channels, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 10])],
        weights,
    )
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def damaged_bytes(content: bytes, chance: random.Random) -> bytes:
    """Return the content with bytes changed, cut off, added, or gone."""
    held = bytearray(content)
    how = chance.randrange(5)
    if how == 0:
        for _ in range(chance.randint(1, 8)):
            held[chance.randrange(len(held))] ^= 1 << chance.randrange(8)
    elif how == 1:
        del held[chance.randrange(len(held)) :]
    elif how == 2:
        at = chance.randrange(len(held))
        held[at:at] = chance.randbytes(chance.randint(1, 40))
    elif how == 3:
        at = chance.randrange(len(held))
        del held[at : at + chance.randint(1, 40)]
    else:
        return b""
    return bytes(held)


def mutated_model(base: bytes, chance: random.Random) -> tuple[bytes, str]:
    """Return a model with something wrong or strange in it, and what that is."""
    if chance.random() < 0.3:
        return damaged_bytes(base, chance), "bytes"
    model, how = onnx.ModelProto.FromString(base), []
    for change in chance.choices(_CHANGES, k=chance.choice((1, 1, 1, 2, 3))):
        try:
            change(model, chance)
            how.append(change.__name__)
        except Exception as error:  # Of onnx too, where one change meets what another one left.
            how.append(f"{change.__name__} ({error})")
    return model.SerializeToString(), ", ".join(how)


def _op_type(model: onnx.ModelProto, chance: random.Random) -> None:
    kinds = ("Conv", "Sin", "Gemm", "MatMul", "Loop", "If", "NonZero", "Nonsense", "", "Reshape")
    chance.choice(model.graph.node).op_type = chance.choice(kinds)


def _input_name(model: onnx.ModelProto, chance: random.Random) -> None:
    node = chance.choice(model.graph.node)
    names = ["", "nobody", model.graph.output[0].name, model.graph.initializer[0].name]
    node.input[chance.randrange(len(node.input))] = chance.choice(names)


def _output_name(model: onnx.ModelProto, chance: random.Random) -> None:
    node = chance.choice(model.graph.node)
    node.output[0] = chance.choice(["", "x" * 5000, model.graph.input[0].name, "é\n"])


def _node_gone(model: onnx.ModelProto, chance: random.Random) -> None:
    del model.graph.node[chance.randrange(len(model.graph.node))]


def _node_twice(model: onnx.ModelProto, chance: random.Random) -> None:
    model.graph.node.append(chance.choice(model.graph.node))


def _node_names(model: onnx.ModelProto, chance: random.Random) -> None:
    name = chance.choice(["", "same", "a'b\"c", "<script>", "../../x", "${oc.env:HOME}"])
    for node in model.graph.node:
        node.name = name


def _dims(model: onnx.ModelProto, chance: random.Random) -> None:
    tensor = chance.choice(model.graph.initializer)
    tensor.dims[chance.randrange(len(tensor.dims))] = chance.choice([0, -1, 1, 7, 2**40])


def _kind(model: onnx.ModelProto, chance: random.Random) -> None:
    chance.choice(model.graph.initializer).data_type = chance.choice([0, 3, 6, 7, 8, 10, 11, 99])


def _values(model: onnx.ModelProto, chance: random.Random) -> None:
    tensor = chance.choice(model.graph.initializer)
    values = numpy_helper.to_array(tensor).copy()
    values[...] = chance.choice([np.nan, np.inf, 0.0, 1e38, 1e-40])
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def _weight_gone(model: onnx.ModelProto, chance: random.Random) -> None:
    del model.graph.initializer[chance.randrange(len(model.graph.initializer))]


def _external(model: onnx.ModelProto, chance: random.Random) -> None:
    tensor = chance.choice(model.graph.initializer)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    where = chance.choice(["/etc/passwd", "../../etc/passwd", "missing.bin", "", "/dev/zero"])
    tensor.external_data.add(key="location", value=where)


def _attribute(model: onnx.ModelProto, chance: random.Random) -> None:
    node = chance.choice(model.graph.node)
    value = chance.choice([[0, 0], [-1, -1, -1, -1], [2**31] * 4, 0, -5, 2**40, 1.5, "text"])
    name = chance.choice(["pads", "strides", "group", "dilations", "axis", "transB", "alpha"])
    for at in reversed(range(len(node.attribute))):
        if node.attribute[at].name == name:
            del node.attribute[at]
    node.attribute.append(helper.make_attribute(name, value))


def _versions(model: onnx.ModelProto, chance: random.Random) -> None:
    if chance.random() < 0.5:
        model.ir_version = chance.choice([0, 1, 3, 99, 2**40])
    elif model.opset_import:
        model.opset_import[0].version = chance.choice([0, 1, 6, 99, -3])


def _input_shape(model: onnx.ModelProto, chance: random.Random) -> None:
    shape = chance.choice(model.graph.input).type.tensor_type.shape
    if chance.random() < 0.3:
        del shape.dim[:]
    else:
        chance.choice(shape.dim).dim_value = chance.choice([0, -1, 3, 2**40])


def _input_kind(model: onnx.ModelProto, chance: random.Random) -> None:
    chance.choice(model.graph.input).type.tensor_type.elem_type = chance.choice([0, 7, 8, 10, 11])


def _output(model: onnx.ModelProto, chance: random.Random) -> None:
    if chance.random() < 0.5:
        chance.choice(model.graph.output).name = chance.choice(["", "nobody", "c0", "flat"])
    else:
        del model.graph.output[:]


def _domain(model: onnx.ModelProto, chance: random.Random) -> None:
    chance.choice(model.graph.node).domain = chance.choice(
        ["com.microsoft", "nobody", "ai.onnx.ml"]
    )


_CHANGES: Sequence[Callable[[onnx.ModelProto, random.Random], None]] = (
    *(_op_type, _input_name, _output_name, _node_gone, _node_twice, _node_names, _dims, _kind),
    *(_values, _weight_gone, _external, _attribute, _versions, _input_shape, _input_kind),
    *(_output, _domain),
)

_TEXTS = (
    *("", "null", "-1", "0", "1e400", "nan", "[]", "{}", "[a,b]", "{a: 1}", "'", "a=b", "${x}"),
    *(
        "../..",
        "true",
        "99999999999999999999",
        "-0.5",
        "é",
        "${oc.env:NOBODY}",
        "[1,[2,[3]]]",
        "()",
    ),
    *("digits", "static", "/dev/null", "a,b", "$(id)", "\\", "x" * 3000, "1_000", "0x10", "~", "*"),
)


def mutated_words(keys: Sequence[str], chance: random.Random) -> list[str]:
    """Return words of a command line, one or two of them strange."""
    return [_word(keys, chance) for _ in range(chance.choice((1, 1, 2)))]


def _word(keys: Sequence[str], chance: random.Random) -> str:
    key, value = chance.choice(keys), chance.choice(_TEXTS)
    form = chance.random()
    if form < 0.7:
        return f"{key}={value}"
    if form < 0.8:
        return f"{chance.choice(('+', '++', '~'))}{key}={value}"
    if form < 0.9:
        at = chance.randrange(len(key) + 1)
        return f"{key[:at]}{chance.choice('xé=.@/:')}{key[at:]}={value}"
    return chance.choice((value or "-x", f"--{key}", f"{key}", "-x", "--cfg", "=", "key="))


def mutated_samples(folder: Path, chance: random.Random) -> tuple[list[str], str]:
    """Write samples with something wrong, and a model; return words for them, and what it is.

    They are arrays in a file, or images in a folder with a CSV.
    """
    if chance.random() < 0.5:
        return _mutated_arrays(folder, chance)
    return _mutated_images(folder, chance)


def _mutated_arrays(folder: Path, chance: random.Random) -> tuple[list[str], str]:
    drawn = np.random.RandomState(chance.randrange(2**31))
    arrays: dict[str, Any] = {
        "image": drawn.rand(100, 1, 8, 8).astype(np.float32),
        "labels": drawn.randint(0, 10, 100),
    }
    path, how = folder / "samples.npz", "bytes"
    if chance.random() < 0.7:
        how = chance.choice(sorted(_ARRAYS))
        name = chance.choice(sorted(arrays))
        arrays[name] = _ARRAYS[how](arrays[name])
        how = f"{name}: {how}"
        np.savez(path, **arrays)
    else:
        np.savez(path, **arrays)
        path.write_bytes(damaged_bytes(path.read_bytes(), chance))
    (folder / "model.onnx").write_bytes(chain(3).SerializeToString())
    return ["dataset=npz", "dataset.path=samples.npz"], how


_ARRAYS: dict[str, Callable[[Any], Any]] = {
    "not finite": lambda held: np.where(np.arange(len(held)) % 7 == 0, np.nan, held.T).T,
    "huge": lambda held: held.astype(np.float64) * 1e300,
    "negative": lambda held: -held,
    "text": lambda held: held.astype(str),
    "objects": lambda held: np.array([{"a": 1}] * len(held), object),
    "none": lambda held: held[:0],
    "one": lambda held: held[:1],
    "fewer": lambda held: held[:60],
    "no axis": lambda held: held.ravel()[0],
    "more axes": lambda held: held[..., None, None],
    "other kind": lambda held: held.astype(np.complex64),
    "bits": lambda held: held > 0,
    "all the same": lambda held: np.zeros_like(held),
    "columns": lambda held: np.zeros(len(held), [("a", "f4"), ("b", "i4")]),
    "large numbers": lambda held: np.full(len(held), 2**62),
}


def _mutated_images(folder: Path, chance: random.Random) -> tuple[list[str], str]:
    from PIL import Image

    place = folder / "photos"
    place.mkdir()
    drawn, rows = np.random.RandomState(chance.randrange(2**31)), ["file,label"]
    for at in range(100):
        pixels = drawn.randint(0, 255, (8, 8, 3), np.uint8)
        Image.fromarray(pixels).save(place / f"{at}.png")
        rows.append(f"{at}.png,{at % 10}")
    how = chance.choice(("damaged", "strange", "table", "table"))
    table = "\n".join(rows).encode()
    if how == "damaged":
        for path in chance.sample(sorted(place.glob("*.png")), chance.choice((1, 5, 100))):
            path.write_bytes(damaged_bytes(path.read_bytes(), chance))
    elif how == "strange":
        how = chance.choice(sorted(_IMAGES))
        _IMAGES[how](place / "0.png")
    else:
        old, new = chance.choice(_ROWS)
        how = f"table: {old!r} -> {new!r}"
        table = table.replace(old, new)
    (place / "labels.csv").write_bytes(table)
    (folder / "model.onnx").write_bytes(chain(3, 3).SerializeToString())
    return ["dataset=images", "dataset.path=photos", "preprocess=imagenet"], how


def _no_image(path: Path) -> None:
    path.write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")


def _a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _a_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _nobody_may_read(path: Path) -> None:
    path.unlink()
    path.symlink_to("/proc/1/mem")


def _a_bomb(path: Path) -> None:
    from PIL import Image

    Image.new("1", (30_000, 30_000)).save(path)


_IMAGES = {
    each.__name__: each for each in (_no_image, _a_folder, _a_loop, _nobody_may_read, _a_bomb)
}
_ROWS = (
    *((b"5.png,", b"missing.png,"), (b"5.png,", b"../../etc/passwd,"), (b",3", b",99999999999999")),
    *((b",3", b",-3"), (b",3", b","), (b",3", b",x"), (b"file,label", b"a,b"), (b",", b";")),
    *((b"\n", b"\r"), (b"7.png", b"\x007.png"), (b"7", b"\xff"), (b"file,label\n", b"")),
    *((b"5.png,5", b"5.png,5\n5.png,6"), (b"5.png,5", b'"5.png,5')),
)
