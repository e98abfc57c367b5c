"""Constants of TVM modules: computed by numpy, since TVM would compile a library for each."""

from collections.abc import Callable
from typing import Any

import numpy as np


def folding_pass() -> Any:
    """Return the pass that computes what the importer leaves of reshaped biases and limits."""
    import tvm
    from tvm import relax

    @relax.expr_functor.mutator
    class Folder(relax.PyExprMutator):
        def visit_call_(self, call: Any) -> Any:
            return _folded(self, self.visit_expr_post_order(call))

    return tvm.transform.module_pass(
        lambda module, _: mutated(Folder, module), opt_level=0, name="FoldByNumpy"
    )


def mutated(mutator: Any, module: Any) -> Any:
    """Return the module with all its functions of operations changed by a class of mutators."""
    from tvm import relax

    change = mutator(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            change.builder_.update_func(variable, change.visit_expr(function))
    return change.builder_.get()


def constant(mutator: Any, value: Any) -> np.ndarray | None:
    """Return a constant's values, also if a variable has them; None if it is no constant."""
    from tvm import relax
    from tvm.ir import GenericConst

    source = mutator.lookup_binding(value) if isinstance(value, relax.Var) else value
    return source.value.numpy() if isinstance(source, GenericConst) else None


def static_shape(value: Any) -> Any:
    """Return the lengths of a tensor's axes, or None if some are only known at run time."""
    shape = getattr(value.ty, "shape", None)
    if shape is None:
        return None
    sizes = tuple(getattr(size, "value", None) for size in shape)
    return None if None in sizes else sizes


def _folded(mutator: Any, call: Any) -> Any:
    """Return the values of a call with constant arguments, if numpy has the operation."""
    from tvm import relax
    from tvm.ir import Op

    compute = _OPERATIONS.get(call.op.name) if isinstance(call.op, Op) else None
    if compute is None:
        return call
    # The shape in a call to reshape is no tensor.
    tensors = [each for each in call.args if isinstance(each.ty, relax.TensorType)]
    values = [constant(mutator, each) for each in tensors]
    if any(each is None for each in values) or static_shape(call) is None:
        return call
    # Not ascontiguousarray, which makes a list of a single value.
    return relax.const(np.array(compute(call, *values), order="C"))


_OPERATIONS: dict[str, Callable[..., np.ndarray]] = {
    "relax.reshape": lambda call, values: values.reshape(static_shape(call)),
    "relax.permute_dims": lambda call, values: values.transpose(
        None if call.attrs.axes is None else [int(axis) for axis in call.attrs.axes]
    ),
    "relax.isnan": lambda call, values: np.isnan(values),
    "relax.where": lambda call, *values: np.where(*values).astype(values[1].dtype),
}
