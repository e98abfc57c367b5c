"""Loads ONNX files, and tells which inputs a model needs."""

from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from seqto.errors import ModelError
from seqto.graph.files import read_weights
from seqto.types import Model, TensorSpec


def load_model(path: Path, name: str) -> Model:
    """Return the ONNX model of this file, external data included."""
    proto = _parsed(path)
    _require_types(proto)
    _read_external_data(proto, path)
    return Model(name, proto)


def model_from(content: bytes | onnx.ModelProto, name: str) -> Model:
    """Return the ONNX model of these bytes, or a copy of the one in memory.

    Without a name it is called as its graph is.
    """
    proto = onnx.ModelProto()
    try:
        proto.CopyFrom(onnx.load_from_string(content) if isinstance(content, bytes) else content)
    except (DecodeError, TypeError) as error:
        raise _no_model(content) from error
    if not _has_content(proto):
        raise _no_model(content)
    _require_types(proto)
    return Model(name or proto.graph.name or "model", proto)


def load_graph(path: Path) -> onnx.GraphProto:
    """Return the graph of an ONNX file; tensors stored in other files have no values."""
    return _parsed(path).graph


def input_specs(model: Model) -> tuple[TensorSpec, ...]:
    """Return the inputs that the model must be given: those that are not initializers."""
    graph = model.proto.graph
    constants = {each.name for each in graph.initializer}
    constants.update(each.values.name for each in graph.sparse_initializer)
    return tuple(spec_of(each) for each in graph.input if each.name not in constants)


def first_line(error: object) -> str:
    """Return the first line of a message, short enough to be part of another one."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0] if len(lines[0]) <= 300 else f"{lines[0][:300]}..."


def _parsed(path: Path) -> onnx.ModelProto:
    """Return the model in the file, without tensors that are stored elsewhere."""
    if path.is_dir():
        raise ModelError(f"{path} is a folder: name the .onnx file in it.")
    if not path.is_file():
        raise ModelError(f"{path} does not exist: check the path of the model.")
    try:
        # Without a format, onnx would guess it from the file's extension.
        proto = onnx.load(path, format="protobuf", load_external_data=False)
    except DecodeError as error:
        raise _unreadable(path) from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
    if not _has_content(proto):
        raise _unreadable(path)
    return proto


def _has_content(proto: onnx.ModelProto) -> bool:
    """Tell whether this is a model: an empty file and some text are valid protobuf too."""
    return bool(proto.graph.node and proto.opset_import)


def _require_types(proto: onnx.ModelProto) -> None:
    """Raise if a tensor is of a type that ONNX does not know, of which nobody knows the size."""
    known = set(onnx.helper.get_all_tensor_dtypes())
    for tensor in proto.graph.initializer:
        if tensor.data_type not in known:
            raise ModelError(
                f"the tensor {tensor.name!r} has the type {tensor.data_type}, which onnx "
                f"{onnx.__version__} does not know: export the model again, or update onnx."
            )


def _unreadable(path: Path) -> ModelError:
    return ModelError(
        f"{path} is no ONNX model, or is cut short ({path.stat().st_size} bytes): "
        "download or export it again."
    )


def _read_external_data(proto: onnx.ModelProto, path: Path) -> None:
    """Load the tensors that are stored in files beside the model."""
    try:
        read_weights(proto, path.parent)
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(
            f"{path} keeps weights in files beside it, which cannot be read "
            f"({first_line(error).rstrip('.')}): put them into the same folder as the model."
        ) from error


def spec_of(value: onnx.ValueInfoProto) -> TensorSpec:
    """Return an input or output as the graph declares it."""
    if value.type.WhichOneof("value") != "tensor_type":
        raise ModelError(f"Input {value.name!r} of the model is no tensor: seqto cannot feed it.")
    tensor = value.type.tensor_type
    shape = tuple(
        each.dim_value if each.HasField("dim_value") and each.dim_value > 0 else None
        for each in tensor.shape.dim
    )
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return TensorSpec(value.name, shape, dtype.name)


def _no_model(content: object) -> ModelError:
    return ModelError(
        f"this is no ONNX model but {type(content).__name__}: give the path of an .onnx file, its "
        "bytes, or an onnx.ModelProto with nodes and an opset."
    )
