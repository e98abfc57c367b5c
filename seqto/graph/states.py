"""Which inputs are recurrent states or caches, and which outputs continue them."""

import re
from collections.abc import Mapping, Sequence

from seqto.graph.tensors import Tensor

_WORDS = {"state", "hidden", "h", "c", "cell", "past", "cache", "cached", "mem", "mems", "memory"}
"""Words in the names of states; a name without one is no state, however alike an output's is."""

_BEFORE = {"in", "input", "prev", "previous", "old", "last", "init", "initial"}
_AFTER = {"out", "output", "new", "next", "n", "updated", "cur", "current", "final"}
_PRESENT = {"present": "past", "states": "state", "cn": "c", "hn": "h", "caches": "cache"}

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_INITIAL = re.compile(
    r"(\w*[_.])?([hc]_?0|(init|initial)_(h|c|\w*states?|\w*hidden))", re.IGNORECASE
)
"""States that no output has to continue: a sequence starts with them."""


def continued_states(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Mapping[str, str]:
    """Return the inputs that are states, each with the output that continues it, or "".

    Names alone do not make a state: `past_values` of a forecast are samples, and so is the `state`
    of a game. An output has to continue it, and other inputs and outputs have to be left.
    """
    after = {_stem(each.name): each for each in outputs if _may_continue(each)}
    found: dict[str, str] = {}
    for each in inputs:
        output = after.get(_stem(each.name))
        if output and _is_continued(each, output):
            found[each.name] = output.name
        elif _INITIAL.fullmatch(each.name) and each.shape:
            found[each.name] = ""
    none_left = len(found) == len(inputs) or set(found.values()) >= {each.name for each in outputs}
    return {} if none_left else found


def _is_continued(state: Tensor, output: Tensor) -> bool:
    """Tell whether the output is the next value of a state, by their types and axes."""
    same_axes = not output.has_shape or len(output.shape) == len(state.shape)
    is_state = bool(_WORDS & set(_stem(state.name)))
    return is_state and bool(state.shape) and same_axes and _same_type(state, output)


def _same_type(state: Tensor, output: Tensor) -> bool:
    return state.spec.dtype == output.spec.dtype


def _may_continue(output: Tensor) -> bool:
    return bool(_WORDS & set(_stem(output.name)))


def _stem(name: str) -> tuple[str, ...]:
    """Return the words of a name, without those that say before or after.

    `past_key_values.0.key` and `present.0.key` have the same stem, and so have `state` and
    `stateN`, `h0` and `hn`.
    """
    name = re.sub(r"(past|present)_key_values", r"\1", name)
    words = [_PRESENT.get(each.lower(), each.lower()) for each in _WORD.findall(name)]
    if words[-2:] in (["h", "0"], ["c", "0"]):
        words = words[:-1]
    return tuple(each for each in words if each not in _BEFORE | _AFTER)
