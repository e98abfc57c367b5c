"""What quantizers keep from one candidate to the next of the same model."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import onnx

from seqto.graph.links import Links
from seqto.graph.packing import PackedWeights
from seqto.graph.plain_weights import store_plainly
from seqto.graph.weights import INT4_OPSET, at_opset, store_into
from seqto.quantizers.learned_weights import LearnedWeights
from seqto.types import CODED_STEPS, INT4, Model

Value = TypeVar("Value")


@dataclass(eq=False)
class Known:
    """What was computed from one model so far, under the settings of one quantizer."""

    model: Model
    settings: str
    packed: PackedWeights = field(default_factory=dict)
    values: dict[Hashable, object] = field(default_factory=dict)

    def once(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        """Return the result of `compute` for this key, computed only the first time."""
        if key not in self.values:
            self.values[key] = compute()
        return self.values[key]  # type: ignore[return-value]

    def raised(self, mark: Callable[[Model], Model]) -> Model:
        """Return the model in the opset that 4-bit and 16-bit tensors need, marked."""
        return self.once("raised", lambda: mark(at_opset(self.model, INT4_OPSET)))

    def weights(
        self, block: int, learn: bool, stored: Sequence[str] = (*CODED_STEPS, INT4)
    ) -> LearnedWeights:
        """Return the weights as samples taught to store them in these precisions.

        Without int8, since most layers of that precision run in integers.
        """
        return self.once("weights", lambda: LearnedWeights(self.model, block, stored, learn))

    def store(
        self,
        proto: onnx.ModelProto,
        precisions: Mapping[str, str],
        weights: LearnedWeights,
        plainly: bool,
        nbits: Collection[str] = (),
    ) -> None:
        """Change the weights of these layers to these precisions, or plainly to their values in it.

        The layers in `nbits` become MatMulNBits where they can.
        """
        if plainly:
            store_plainly(proto, precisions, weights.block, weights.integers)
        else:
            store_into(
                proto, precisions, weights.block, self.packed, nbits, choose=weights.integers
            )

    def links(self, model: Model) -> Links:
        """Return the links of this model: the known one, or its raised form."""
        # Both models are held here, so no other object can get their ids.
        return self.once(("links", id(model)), lambda: Links(model.proto.graph))


class Memory:
    """Holds what is known of the last model, and forgets it when another one comes."""

    def __init__(self) -> None:
        self._known: Known | None = None

    def of(self, model: Model, settings: str) -> Known:
        """Return what is known of this very model under these settings."""
        known = self._known
        # The model is held here, so no other object can get its identity.
        if known is None or known.model is not model or known.settings != settings:
            known = self._known = Known(model, settings)
        return known

    def __reduce__(self) -> tuple[type["Memory"], tuple[()]]:
        # Another process starts empty: models are large, and it may never see this one.
        return Memory, ()
