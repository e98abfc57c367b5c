"""ONNX graph surgery: small named functions, each says what it expects and leaves."""
