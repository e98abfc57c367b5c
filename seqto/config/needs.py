"""What a study needs before it begins, looked at all at once where a device needs a lot."""

from collections.abc import Callable, Iterator

from omegaconf import DictConfig

from seqto.config.build import Given, build_part, contact_tracker, fetch_model
from seqto.config.complaints import complain
from seqto.config.missing import check_files, check_given
from seqto.errors import NeedsError
from seqto.protocols import Device, HasNeeds


def check_needs(config: DictConfig, given: Given | None = None) -> None:
    """Raise if something is missing: all of it in one list, if the device has needs of its own."""
    device: Device = build_part(config, "device", given)
    if not isinstance(device, HasNeeds):
        if not given:
            check_given(config)
        contact_tracker(config, given)
        fetch_model(config, given)
        return
    others = list(_others(config, given))
    lacks = [f"it needs {each}" for each in device.needs(wait=not others).values() if each]
    missing = [*lacks, *map(complain, others)]
    if len(missing) == 1 and others:
        raise others[0]
    if missing:
        lines = "\n".join(f"  - {each.rstrip('.')}." for each in missing)
        raise NeedsError(f"device={device.name} cannot begin yet:\n{lines}")


def device_needs(config: DictConfig) -> dict[str, str]:
    """Return what the device, the model and the data need, and what is missing, if anything."""
    device: Device = build_part(config, "device")
    needs = dict(device.needs()) if isinstance(device, HasNeeds) else {}
    for name, check in _CHECKS.items():
        needs[name] = next((complain(error) for error in _failures(check, config, None)), "")
    return needs


def _others(config: DictConfig, given: Given | None) -> Iterator[Exception]:
    """Yield what is wrong with the rest of the study: with each check, why it fails."""
    for check in _CHECKS.values():
        yield from _failures(check, config, given)


def _failures(check: "Check", config: DictConfig, given: Given | None) -> Iterator[Exception]:
    try:
        check(config, given)
    except Exception as error:  # Errors of seqto, and of Hydra and pydantic.
        yield error


def _check_model(config: DictConfig, given: Given | None) -> None:
    if "model" not in (given or {}):
        check_given(config, "model")
        check_files(config, "model")
    fetch_model(config, given)


def _check_data(config: DictConfig, given: Given | None) -> None:
    if "dataset" not in (given or {}):
        check_given(config, "dataset")
        check_files(config, "dataset")


Check = Callable[[DictConfig, Given | None], None]

_CHECKS: dict[str, Check] = {
    "tracking": contact_tracker,
    "model": _check_model,
    "data": _check_data,
}
"""What is looked at besides the device, by name."""
