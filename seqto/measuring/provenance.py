"""What a study measures and on what kind of machine, so that its jobs measure the same."""

from collections.abc import Mapping
from typing import Any

from seqto import __version__
from seqto.errors import StudyError
from seqto.identity import identity
from seqto.measuring.parts import Parts
from seqto.measuring.subject import Subject
from seqto.packages import installed_version
from seqto.protocols import Device
from seqto.types import content_key

PROVENANCE = "provenance.json"
"""The study's document of what it measures: its jobs refuse to measure anything else."""

FLOAT_TIMES = "float_times.json"
"""The study's document of what the float model takes: the latencies of candidates are shares of it.

It stays as it is, whatever is measured later: so a resumed study asks for the same candidates.
"""

MACHINE = "machine"
"""The fact that may differ from job to job: what latencies depend on, and nothing else."""

_TITLES = {
    "model": "the model's sha256",
    "data": "the data's fingerprint",
    "quantization": "how it is quantized",
    "task": "the task",
    "runtime": "the runtime",
    "kernels": "the kernels",
}


def provenance_of(parts: Parts, subject: Subject) -> dict[str, str]:
    """Return what is measured here, as short facts by name."""
    return {
        "model": subject.original_sha256,
        "data": subject.fingerprint,
        "quantization": content_key(identity(parts.quantizer)),
        "task": content_key([identity(subject.task), identity(subject.metric)]),
        **surroundings_of(parts.device),
        MACHINE: machine_of(parts.device),
    }


def surroundings_of(device: Device) -> dict[str, str]:
    """Return the versions and kernels here, on which what is measured depends."""
    facts = device.describe()
    return {
        "seqto": __version__,
        **{name: installed_version(name) for name in ("onnx", "onnxruntime")},
        "runtime": facts.get("runtime", ""),
        "kernels": facts.get("kernels", ""),
    }


def machine_of(device: Device) -> str:
    """Return the kind of machine that a device's latencies are of."""
    facts = device.describe()
    # A remote device is the same, whichever machine measures on it.
    names = ("cpu", "target", "key", "provider", "threads", "kernels")
    return ", ".join(f"{name} {facts[name]}" for name in names if facts.get(name))


def check_provenance(recorded: Mapping[str, Any], own: Mapping[str, str]) -> None:
    """Raise StudyError if another thing would be measured here than the study has recorded."""
    different = [
        f"{_TITLES.get(name, name)} is {own[name]} here and {recorded[name]} in the study"
        for name in own
        if name != MACHINE and name in recorded and recorded[name] != own[name]
    ]
    if different:
        raise StudyError(
            f"this machine would measure something else than the study: {'; '.join(different)}. "
            "Give its jobs the same files and versions, or machines with the same kernels."
        )


def check_timed_alike(recorded: Mapping[str, Any], device: Device, counts: bool) -> None:
    """Raise StudyError if latency counts in the study, and is that of another kind of machine."""
    own = machine_of(device)
    if counts and recorded.get(MACHINE, own) != own:
        raise StudyError(
            f"latency counts in this study and is that of {recorded[MACHINE]}: this machine is "
            f"{own}. Run it on machines of one kind, or leave latency out of objectives, "
            "constraint and gate."
        )
