"""Installed packages and their versions; ONNX Runtime's package has a name for each provider."""

import functools
from importlib.metadata import PackageNotFoundError, packages_distributions, version

_RUNTIME = "onnxruntime"


@functools.cache
def installed_name(package: str) -> str:
    """Return the name of the installed package, such as onnxruntime-openvino for onnxruntime."""
    try:
        version(package)
    except PackageNotFoundError:
        if package != _RUNTIME:
            raise
        found = packages_distributions().get(package, [])
        if not found:
            raise
        return found[0]
    return package


def installed_version(package: str) -> str:
    """Return the version of an installed package, whatever its name is."""
    return version(installed_name(package))


def requirement(package: str) -> str:
    """Return what pip installs to have the same again."""
    return f"{installed_name(package)}=={installed_version(package)}"
