"""Arrays in a .npz archive, which holds no Python objects."""

from collections.abc import Mapping
from typing import IO, Any

import numpy as np


def write_arrays(file: IO[bytes], arrays: Mapping[str, np.ndarray], compressed: bool) -> None:
    """Write arrays to an archive; raise if one has Python objects, which would run when read."""
    # Not by numpy's `allow_pickle`, which numpy before 2.1 takes for one more array.
    objects = [name for name, each in arrays.items() if each.dtype.hasobject]
    if objects:
        raise ValueError(f"the array {objects[0]!r} has Python objects")
    # Typed, because numpy's own types take any keyword for `allow_pickle`.
    save: Any = np.savez_compressed if compressed else np.savez
    save(file, **arrays)
