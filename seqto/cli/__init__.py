"""The commands: what a user types."""

import atexit
import gc
import os
import signal
import sys
from importlib import import_module
from types import FrameType
from typing import NoReturn

from seqto import __version__
from seqto.cli.completion import COMMANDS, prepared
from seqto.cli.ending import end_with
from seqto.cli.shorthand import expanded, model_alone
from seqto.errors import ConfigError

_TERMINATED = 128 + signal.SIGTERM
_SWEEP = ("-m", "--multirun")
_MODULES = {
    "promote": "seqto.cli.promoting",
    "report": "seqto.cli.reporting",
    "compare": "seqto.cli.comparing",
}
"""The commands that do not run anything by Hydra, and their modules."""
_HYDRA_INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


def main() -> None:
    """Run the command line; bad input prints one line and exits with code 1."""
    # Else Python looks at each of half a million objects when it ends: one to two seconds.
    atexit.register(gc.freeze)
    # Makes Hydra raise exceptions instead of printing parts of their tracebacks.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # As `python -m seqto` does it: configs may name classes and functions in the current folder.
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
    # SIGTERM ends a study like Ctrl-C, so that nothing is left marked as running.
    signal.signal(signal.SIGTERM, _terminate)

    try:
        alone = sys.argv[1:2] == ["candidate"]
        if not _commanded(sys.argv[1:]) and not _told(sys.argv[1:]):
            words = expanded(sys.argv[1:])
            # `seqto candidate my.onnx photos/` is one candidate of that file.
            sys.argv[1:] = [each for each in words if not (alone and each in _SWEEP)]
            from seqto.cli.entry import entry
            from seqto.cli.hydra_prints import masked_prints

            # Hydra accepts no further words after a flag.
            words = sorted(prepared(sys.argv[1:]), key=lambda word: word in _SWEEP)
            sys.argv[1:] = words
            _check_options(words)
            with masked_prints(words):
                entry()
    except BrokenPipeError:
        # Whoever reads the output has seen enough: `seqto --help | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except KeyboardInterrupt:
        print("\nInterrupted. The same command goes on where it stopped.", file=sys.stderr)
        sys.exit(130)
    except SystemExit as end:
        if end.code == _TERMINATED:
            print("\nTerminated. The same command goes on where it stopped.", file=sys.stderr)
        raise
    except Exception as error:
        end_with(error)


def _commanded(words: list[str]) -> bool:
    """Handle `seqto promote`, `report` and `compare`; turn `study` and `candidate` into words.

    Return whether it was one of the former.
    """
    if not words or words[0] not in COMMANDS:
        return False
    command, *rest = words
    if command in _MODULES:
        import_module(_MODULES[command]).main(rest)
        return True
    if command == "candidate" and set(_SWEEP) & set(rest):
        raise ConfigError("seqto candidate measures one candidate: leave out -m, or write study.")
    more = [] if command == "candidate" or {*_SWEEP, "-h", "--help"} & set(rest) else ["-m"]
    sys.argv[1:] = [*rest, *more]
    return False


def _told(words: list[str]) -> bool:
    """Handle --help, --version, --info and a model alone; return whether one of them was given.

    Hydra's own --info is recognised by the word that follows it.
    """
    if {"-h", "--help"} & set(words):
        from seqto.cli.manual import page

        print(page(words), flush=True)
        return True
    if "--version" in words:
        print(f"seqto {__version__}")
        return True
    if (model := model_alone(words)) is not None:
        from seqto.cli.describing import print_model

        print_model(model)
        return True
    if "--info" not in words or set(_HYDRA_INFO) & set(words):
        return False
    from seqto.cli.information import print_information

    print_information([word for word in words if word != "--info"])
    return True


def _check_options(words: list[str]) -> None:
    """Raise if Hydra does not know an option, because it would print its own usage."""
    from hydra._internal.utils import get_args_parser

    parser = get_args_parser()

    def error(message: str) -> NoReturn:
        raise ConfigError(f"{message}. See seqto --help.")

    parser.error = error  # type: ignore[method-assign]
    parser.parse_args(words)


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(_TERMINATED)
