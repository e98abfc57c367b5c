"""From any exception to one line that says what is wrong and what to do."""

import contextlib
import errno
import re
from collections.abc import Iterator
from pathlib import Path

import pydantic
import yaml
from hydra.errors import ConfigCompositionException, HydraException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException
from pydantic_core import ErrorDetails

from seqto.config.paths import CONF
from seqto.errors import ConfigError, NeedsError, SeqtoError, nearest
from seqto.secrets import mask_error, masked

_OF_FILES = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENOTDIR, errno.EEXIST, errno.EISDIR),
}
"""What the system says of files and folders that cannot be used."""

_SETTINGS = {
    "Constraint": "constraint",
    "Gate": "gate",
    "StudySettings": "study",
    "Rules": "promote",
}
"""The config keys behind classes that belong to no config group."""


def exit_code(error: BaseException) -> int:
    """Return the exit code for this error."""
    codes = [each.exit_code for each in _causes(error) if isinstance(each, SeqtoError)]
    return codes[0] if codes else 1


def complain(error: BaseException) -> str:
    """Return one line for this error, without secrets."""
    return masked(_complaint(error))


def _complaint(error: BaseException) -> str:
    chain = list(_causes(error))
    for each in chain:
        if isinstance(each, NeedsError):
            return str(each)
        if isinstance(each, SeqtoError):
            return _one_line(str(each))
    for each in chain:
        if isinstance(each, pydantic.ValidationError):
            return _invalid(each)
        if isinstance(each, MissingMandatoryValue):
            return _missing(each)
        if isinstance(each, ModuleNotFoundError) and isinstance(error, HydraException):
            return _not_installed(each, error)
        if isinstance(each, OSError) and each.strerror and each.errno in _OF_FILES:
            return _unusable(each)
    if isinstance(error, OverrideParseException):
        if _is_model(error.override):
            return f"{error.override!r} has no key{_as_model(error.override)}"
        return (
            f"cannot read {error.override!r}: {_one_line(str(error)).partition(' See ')[0]}. Put "
            "quotes around names with special characters: \"key=['/conv/Conv']\"."
        )
    if isinstance(error, ConfigCompositionException):
        return _uncomposable(str(error))
    if isinstance(error, HydraException | OmegaConfBaseException):
        return _one_line(str(error))
    if _raised_in(error) in ("hydra", "omegaconf"):
        # Hydra raises ValueError and others, too: a group's choice that is a number, for one.
        why = _one_line(str(error)).rstrip(".") or type(error).__name__
        return f"these words make no config: {why}. See --help or conf/."
    return (
        f"unexpected {type(error).__name__}: {_one_line(str(error))} "
        "(SEQTO_DEBUG=1 shows the traceback)"
    )


@contextlib.contextmanager
def complaints() -> Iterator[None]:
    """Turn errors of Hydra and pydantic into a SeqtoError with the command line's message.

    No error shows secrets.
    """
    try:
        yield
    except (HydraException, OmegaConfBaseException, pydantic.ValidationError) as error:
        own = next((each for each in _causes(error) if isinstance(each, SeqtoError)), None)
        raise own or ConfigError(complain(error)) from None
    except Exception as error:
        mask_error(error)
        raise


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        yield error
        seen.append(error)
        error = error.__cause__ or error.__context__


def _raised_in(error: BaseException) -> str:
    """Return the package whose code raised an error."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    name = last.tb_frame.f_globals.get("__name__", "") if last else ""
    return str(name).partition(".")[0]


def _unusable(error: OSError) -> str:
    """Say what the system refused; a full disk has no file's name."""
    where = f"{error.filename}: " if error.filename else ""
    return (
        f"{where}{error.strerror}. Check that the folder can be written and has space; the same "
        "command goes on where it stopped."
    )


def _not_installed(absent: ModuleNotFoundError, error: HydraException) -> str:
    """Say which module a part of the config needs; Hydra only says that it cannot locate it."""
    found = re.search(r"target '([^']+)'", str(error))
    wanted = f" for {found[1]}" if found else ""
    return (
        f"the Python module {absent.name!r} is needed{wanted} and cannot be found: install it, or "
        "check _target_ and PYTHONPATH."
    )


def _invalid(error: pydantic.ValidationError) -> str:
    group = _group_of(error.title)
    return "; ".join(_refused(group, each) for each in error.errors())


def _refused(group: str, problem: ErrorDetails) -> str:
    """Say what is wrong with one value, under the key that a user types."""
    name = ".".join(map(str, problem["loc"]))
    key = name if name.partition(".")[0] in _told_alone(group) else f"{group}.{name}"
    given = f"{problem['input']!r}"
    if problem["type"] == "unexpected_keyword_argument":
        return f"{group} does not take {name}={given}{nearest(key, known_keys())}"
    # Drop pydantic's explanation of a failed conversion: the value shows it.
    wanted = problem["msg"].partition(", unable to ")[0]
    wanted = re.sub("^Input should be ", "has to be ", wanted)
    wanted = wanted if wanted.startswith("has to be ") else f"cannot be used: {wanted}"
    return f"{key}={given} {wanted}{_share(problem['input'])}"


def _share(given: object) -> str:
    """Return a hint if the value is a percentage."""
    found = re.fullmatch(r"([0-9.]+) ?%", str(given))
    try:
        return f" (write {float(found[1]) / 100:g} for {given})" if found else ""
    except ValueError:
        return ""


def _group_of(title: str) -> str:
    """Return the config group that this class implements."""
    if title in _SETTINGS:
        return _SETTINGS[title]
    for group in _groups():
        for path in (CONF / group).glob("*.yaml"):
            target = OmegaConf.select(OmegaConf.load(path), "_target_") or ""
            if target.rpartition(".")[2] == title:
                return group
    return title


def _told_alone(group: str) -> set[str]:
    """Return the keys of a group that users set at the top: `precisions`, not `study.precisions`.

    Those of the study's settings that have no group, and what a part takes over as it is.
    """
    if group in _SETTINGS.values():
        return {key for key in known_keys() if "." not in key}
    return {
        str(name)
        for path in (CONF / group).glob("*.yaml")
        for name, value in yaml.safe_load(path.read_text()).items()
        if value == f"${{{name}}}"
    }


def _missing(error: MissingMandatoryValue) -> str:
    key = getattr(error, "full_key", None) or str(error).rpartition(" ")[2]
    # A published model says which data it needs.
    root = OmegaConf.to_container(error.parent_node._get_root()) if error.parent_node else {}
    model = root.get("model") or {} if isinstance(root, dict) else {}
    if key == "dataset.path" and model.get("needs"):
        return f"{key} is not given: {model['name']} needs {model['needs']}, add {key}=<folder>."
    return f"{key} is not given: add {key}=...{_meant(key)}"


def _meant(key: str) -> str:
    """Return what a key that has to be given is for, as its comment says."""
    group, _, name = key.partition(".")
    line = re.compile(rf"^{re.escape(name)}: +\?\?\? +# (.*)$", re.MULTILINE)
    comments = {
        found for path in (CONF / group).glob("*.yaml") for found in line.findall(path.read_text())
    }
    return f" ({comments.pop()})" if len(comments) == 1 else ""


def _uncomposable(message: str) -> str:
    if found := re.search(r"Could not override '([^']+)'", message):
        key = found[1].partition("@")[0]
        if owners := _choices_with(key):
            return (
                f"{key} belongs to {' or '.join(owners)}: choose that as well, or if commas "
                f"choose several at once, write ++{key}=..."
            )
        return f"there is no config key {key!r}{nearest(key, known_keys())}. See --help or conf/."
    found = re.search(r"Could not find 'model/([^']+)'", message)
    if found and _is_model(found[1]):
        return f"model={found[1]} is no choice{_as_model(found[1])}"
    if found := re.search(r"Could not find '([^']+)/([^'/]+)'", message):
        group, choice = found[1], found[2]
        choices = known_choices(group)
        return f"{group}={choice} is no choice{nearest(choice, choices)}: {', '.join(choices)}."
    return _one_line(message)


def _is_model(word: str) -> bool:
    """Return whether a word is a model's file rather than part of an override."""
    return (word.endswith(".onnx") and "=" not in word) or Path(word).is_file()


def _as_model(path: str) -> str:
    return f": for a model of your own write model=local model.path={path}"


def known_keys() -> list[str]:
    """Return the keys of all configs, as they are written in overrides."""
    keys = {*_keys(OmegaConf.load(CONF / "config.yaml"), ""), *_groups()}
    for group in _groups():
        for path in (CONF / group).glob("*.yaml"):
            keys |= set(_keys(OmegaConf.load(path), f"{group}."))
    return sorted(keys)


def known_choices(group: str) -> list[str]:
    """Return the choices of a config group."""
    return sorted(path.stem for path in (CONF / group).glob("*.yaml"))


def _choices_with(key: str) -> list[str]:
    """Return the choices of the key's group that have this key."""
    group = key.partition(".")[0]
    found = sorted((CONF / group).glob("*.yaml")) if group in _groups() else []
    return [
        f"{group}={path.stem}" for path in found if key in _keys(OmegaConf.load(path), f"{group}.")
    ]


def _groups() -> list[str]:
    return [path.name for path in CONF.iterdir() if path.is_dir() and path.name != "hydra"]


def _keys(config: object, prefix: str) -> Iterator[str]:
    if OmegaConf.is_dict(config):
        for key in config:  # type: ignore[attr-defined]
            if key not in ("defaults", "hydra"):
                yield f"{prefix}{key}"
                node = config._get_node(key)  # type: ignore[attr-defined]
                yield from _keys(node, f"{prefix}{key}.")


def _one_line(text: str) -> str:
    return " ".join(text.split())
