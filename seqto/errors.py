"""The errors a user may meet; each message names the cause, the valid choices and the remedy.

SeqtoError
├── ConfigError       a config value, key or override that cannot be used
│   └── NeedsError    things that a study needs and that are missing, a line for each
├── ModelError        a model that is missing, broken or cannot be prepared
│   └── LayerError    a layer name that the model does not have
├── DatasetError      samples that are missing, too few, unreadable or of the wrong shape
├── QuantizationError a model that cannot be quantized as asked
├── DeviceError       a candidate that cannot be loaded or run on its device
│   ├── DeviceImportError     the device's compiler does not take the model
│   ├── DeviceCompileError    the compiler takes the model, but makes no code
│   ├── DeviceRunError        the code ends with an error, or crashes its process
│   ├── DeviceTimeoutError    the code does not end in time
│   ├── NotFiniteError        the code ends with NaN or infinite values
│   └── DeviceTransportError  the connection is broken: says nothing about the candidate
│       └── DeviceUnreachableError  the device is not there, and was waited for
├── MetricError       a metric that raises, or gives no loss: never the fault of a candidate
├── CacheError        a cache folder that cannot be used
├── TrackingError     a run that cannot be found, read or written
├── PromotionError    a registered version that is not better than the champion
└── StudyError        a study that cannot give an answer
    └── ConstraintError   limits that no candidate of a study, or no registered version, meets
"""

import difflib
from collections.abc import Iterable

from seqto.secrets import masked


class SeqtoError(Exception):
    """Base of all errors that seqto raises on purpose."""

    exit_code = 1

    def __str__(self) -> str:
        # Messages quote addresses and values that users give.
        return masked(super().__str__())


class ConfigError(SeqtoError):
    """A config value, key or override that cannot be used."""


class NeedsError(ConfigError):
    """Things that a study needs and that are missing: a line for each."""


class ModelError(SeqtoError):
    """A model that is missing, broken or cannot be prepared."""


class LayerError(ModelError):
    """A layer name that the model does not have."""

    def __init__(
        self,
        unknown: Iterable[str],
        known: Iterable[str],
        where: str,
        other_words: Iterable[str] = (),
    ) -> None:
        known = list(known)
        words = [*known, *other_words]
        parts = [f"{name!r}{nearest(name, words)}" for name in unknown]
        super().__init__(
            f"{where} names layers that the model does not have: {', '.join(parts)}. "
            f"The model has {len(known)} quantizable layers, from {known[0]!r} to {known[-1]!r}."
            if known
            else f"{where} names layers, but the model has no quantizable layer."
        )


class DatasetError(SeqtoError):
    """Samples that are missing, too few, unreadable or of the wrong shape."""


class QuantizationError(SeqtoError):
    """A model that cannot be quantized as asked."""


class DeviceError(SeqtoError):
    """A candidate that cannot be loaded or run on its device."""


class DeviceImportError(DeviceError):
    """A model that the device's compiler or runtime does not take."""


class DeviceCompileError(DeviceError):
    """A model that the device's compiler takes, but cannot make code of."""


class DeviceRunError(DeviceError):
    """A candidate that ends with an error, or crashes its process."""


class DeviceTimeoutError(DeviceError):
    """A candidate that does not end in time."""


class NotFiniteError(DeviceError):
    """A candidate whose outputs have NaN or infinite values."""


class DeviceTransportError(DeviceError):
    """A device that cannot be reached, which says nothing about the candidate."""


class DeviceUnreachableError(DeviceTransportError):
    """A device that is not there, and that it does not help to try again at once."""


class MetricError(SeqtoError):
    """A metric that raises, or gives no loss."""


class CacheError(SeqtoError):
    """A cache folder that cannot be used."""


class TrackingError(SeqtoError):
    """A run that cannot be found, read or written."""


class PromotionError(SeqtoError):
    """A registered version that is not better than the champion."""

    exit_code = 4


class StudyError(SeqtoError):
    """A study that cannot give an answer."""


class ConstraintError(StudyError):
    """Limits that no candidate of a finished study, or no registered version, meets."""

    exit_code = 3


def reason(error: BaseException) -> str:
    """Return why something failed, for the record."""
    return masked(f"{type(error).__name__}: {error}")


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'a' or 'b'?)` for the most similar names, or ""."""
    known = list(known)
    # difflib misses a part of a long name, such as 'fc' of '/classifier/fc/Gemm'.
    holding = [each for each in known if name.lower() in each.lower()]
    alike = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    found = list(dict.fromkeys([*alike, *holding]))[:3]
    return f" (did you mean {' or '.join(repr(match) for match in found)}?)" if found else ""
