"""seqto: which layers of an ONNX model to leave in higher precision."""

__version__ = "0.1.0"
