"""The precisions of layers, by name. Coded weights have one for each step of their integers."""

from collections.abc import Collection, Iterable

FLOAT32 = "float32"
FLOAT16 = "float16"
INT4 = "int4"
INT8 = "int8"
INT16 = "int16"
CODED = "coded"

SHORT = {CODED: "c", INT4: "i4", INT8: "i8", INT16: "i16", FLOAT16: "f16", FLOAT32: "f32"}
"""The precisions' short names in tables."""

_STEPS = (
    *(2, 1.4, 1, 0.7, 0.5, 0.35, 0.25, 0.18, 0.125, 0.09),
    *(0.06, 0.045, 0.03, 0.02, 0.015, 0.01, 0.007, 0.005, 0.0035),
)
"""Half a bit apart, in units of the RMS of a row of weights: from about 1 bit a weight to 10."""

CODED_STEPS = {f"{CODED}_{step:g}": float(step) for step in _STEPS}
"""The precisions of coded weights, and the step of each; the first one takes the fewest bits."""


def family(precision: str) -> str:
    """Return what users call a precision: coded weights have the same name with every step."""
    return CODED if precision in CODED_STEPS else precision


def expanded(wanted: Iterable[str], offered: Collection[str]) -> tuple[str, ...]:
    """Return the offered precisions that are meant: by their own name, or by their family's."""
    names = {*wanted}
    return tuple(each for each in offered if names & {each, family(each)})


def listed(precisions: Iterable[str]) -> str:
    """Return the precisions for an error message: a family by its first and last one."""
    families: dict[str, list[str]] = {}
    for each in precisions:
        families.setdefault(family(each), []).append(each)
    return ", ".join(
        name if [name] == members else f"{name} ({members[0]} to {members[-1]})"
        for name, members in families.items()
    )
