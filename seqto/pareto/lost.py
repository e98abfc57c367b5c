"""Candidates of a study that were lost with the connection to their device: nobody measured them.

They say nothing of the candidate, and the study's answer might be another one with them.
"""

from collections.abc import Sequence

from seqto.errors import DeviceTransportError, DeviceUnreachableError
from seqto.types import Trial, TrialState

_KINDS = tuple(f"{kind.__name__}: " for kind in (DeviceTransportError, DeviceUnreachableError))


def lost(trials: Sequence[Trial]) -> list[Trial]:
    """Return the lost trials of candidates that no other trial measured, one of each candidate."""
    known = {each.candidate.key for each in trials if each.state.is_settled}
    missing = {
        each.candidate.key: each
        for each in trials
        if each.state is TrialState.FAILED and each.failure.startswith(_KINDS)
    }
    return [each for key, each in missing.items() if key not in known]


def lost_in_words(trials: Sequence[Trial]) -> str:
    """Say how many candidates were lost, why, and what to do; "" if none was."""
    missing = lost(trials)
    if not missing:
        return ""
    total = len({each.candidate.key for each in trials})
    was = "was" if len(missing) == 1 else "were"
    why = missing[-1].failure.partition(": ")[2].rstrip(".")
    return (
        f"{len(missing)} of {total} candidates {was} not measured because the device got lost "
        f"({why}). The same command measures them"
    )
