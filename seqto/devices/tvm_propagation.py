"""What follows a convolution with packed channels, computed in its layout.

Functions that compute each value by itself, or that reduce all values to one, do so in any layout.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from seqto.devices.tvm_constants import constant, mutated, static_shape
from seqto.devices.tvm_packing import LAYOUT, relaid

if TYPE_CHECKING:
    from tvm import s_tir

_ELEMENTWISE = (0, 1)
"""TVM's numbers for functions that compute each value by itself, and those that also broadcast."""


def propagating_pass() -> Any:
    """Return the pass that computes what follows a packed convolution in its layout."""
    import tvm
    from tvm import relax

    @relax.expr_functor.mutator
    class Propagator(relax.PyExprMutator):
        def __init__(self, module: Any) -> None:
            super().__init__(module)
            self.changed: dict[Any, Any] = {}

        def visit_call_(self, call: Any) -> Any:
            return _propagated(self, self.visit_expr_post_order(call))

    steps = [
        tvm.transform.module_pass(
            lambda module, _: mutated(Propagator, module), opt_level=0, name="PropagatePacking"
        ),
        relax.transform.CanonicalizeBindings(),
        relax.transform.DeadCodeElimination(),
    ]
    return tvm.transform.Sequential(steps)


def _propagated(mutator: Any, call: Any) -> Any:
    """Return what computes the same in the packed layout, if that is possible."""
    function = _function(mutator, call)
    if function is None:
        return call
    packed = [_packed_form(mutator, each) for each in call.args[1]]
    blocks = [static_shape(each)[-1] for each in packed if each is not None]
    if not blocks:
        return call
    if _attribute(function, LAYOUT) == "pack":
        return packed[0]
    shape = static_shape(call)
    if shape == ():
        return _reduction(mutator, call, function, packed, blocks[0])
    pattern = _attribute(function, "op_pattern")
    if pattern not in _ELEMENTWISE or shape is None or len(shape) != 4 or shape[1] % blocks[0]:
        return call
    return _elementwise(mutator, call, function, packed, blocks[0])


def _function(mutator: Any, call: Any) -> Any | None:
    """Return the function of loops that is called, or None if it is none."""
    from tvm.ir import Call, Op

    if not isinstance(call, Call) or not isinstance(call.op, Op):
        return None
    if call.op.name != "relax.call_tir":
        return None
    return mutator.builder_.get()[call.args[0]]


def _attribute(function: Any, name: str) -> Any:
    value = function.attrs.get(name) if function.attrs is not None else None
    return getattr(value, "value", value)


def _packed_form(mutator: Any, value: Any) -> Any | None:
    """Return the packed pictures that a value was unpacked from, or None if it was not."""
    from tvm import relax

    source = mutator.lookup_binding(value) if isinstance(value, relax.Var) else None
    function = None if source is None else _function(mutator, source)
    if source is None or function is None or _attribute(function, LAYOUT) != "unpack":
        return None
    return source.args[1][0]


def _elementwise(mutator: Any, call: Any, function: Any, packed: list[Any], block: int) -> Any:
    """Return the same function of packed pictures, unpacked, or the call if that has no form."""
    from tvm import relax

    n, c, h, w = static_shape(call)
    for at, argument in enumerate(call.args[1]):
        values = constant(mutator, argument) if packed[at] is None else None
        if values is not None and values.ndim == 4 and values.shape[1] == c:
            packed[at] = relax.const(_packed_values(values, block))
    name = _with_layout(mutator, call, function, packed, block)
    if name is None:
        return call
    result = relax.TensorType((n, c // block, h, w, block), call.ty.dtype)
    found = mutator.builder_.emit(relax.call_tir(name, _arguments(call, packed), result))
    return relaid(mutator.builder_, found, block, "unpack")


def _reduction(mutator: Any, call: Any, function: Any, packed: list[Any], block: int) -> Any:
    """Return the same single value, such as a maximum, of packed pictures."""
    from tvm import relax

    name = _with_layout(mutator, call, function, packed, block)
    return call if name is None else relax.call_tir(name, _arguments(call, packed), call.ty)


def _arguments(call: Any, packed: list[Any]) -> list[Any]:
    return [old if new is None else new for old, new in zip(call.args[1], packed, strict=True)]


def _packed_values(values: np.ndarray, block: int) -> np.ndarray:
    n, c, h, w = values.shape
    split = values.reshape(n, c // block, block, h, w)
    return np.ascontiguousarray(split.transpose(0, 1, 3, 4, 2))


def _with_layout(
    mutator: Any, call: Any, function: Any, packed: list[Any], block: int
) -> Any | None:
    """Return the name of a function that reads some arguments packed, and writes packed.

    None if the function's form is not known.
    """
    from tvm import s_tir

    which = tuple(each is not None for each in packed)
    name = call.args[0].name_hint
    if (name, which) not in mutator.changed:
        schedule = s_tir.Schedule(function.with_attr("global_symbol", "main"))
        try:
            _change_layout(schedule, function, which, block)
            made = schedule.mod["main"].without_attr("global_symbol")
            mutator.changed[name, which] = mutator.builder_.add_func(made, name)
        except s_tir.ScheduleError:
            mutator.changed[name, which] = None
    return mutator.changed[name, which]


def _change_layout(
    schedule: "s_tir.Schedule", function: Any, packed: tuple[bool, ...], block: int
) -> None:
    *others, last = schedule.get_child_blocks(schedule.get_sblock("root"))
    for other in others:
        schedule.compute_inline(other)
    chosen = [each for each, yes in zip(function.params, packed, strict=False) if yes]

    def split(n: Any, c: Any, y: Any, x: Any) -> tuple[Any, ...]:
        return n, c // block, y, x, c % block

    for at, read in enumerate(schedule.get(last).reads):
        if any(read.source.same_as(each) for each in chosen):
            schedule.transform_layout(last, ("read", at), split)
    if len(function.params[-1].shape):
        schedule.transform_layout(last, ("write", 0), split)
    schedule.transform_block_layout(last, split)
