"""The commands: what a user types."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from seqto import __version__
from seqto.cli.ending import end_with
from seqto.errors import ConfigError

_HYDRA_INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")


def main() -> None:
    """Run the command line; bad input prints one line and exits with code 1."""
    # Makes Hydra raise exceptions instead of printing parts of their tracebacks.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    # As `python -m seqto` does it: configs may name classes and functions in the current folder.
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
    # SIGTERM ends a study like Ctrl-C, so that nothing is left marked as running.
    signal.signal(signal.SIGTERM, _terminate)

    try:
        if not _told(sys.argv[1:]):
            from seqto.cli.entry import entry

            # Hydra accepts no further words after a flag.
            sys.argv[1:] = sorted(sys.argv[1:], key=lambda word: word in ("-m", "--multirun"))
            _check_options(sys.argv[1:])
            entry()
    except BrokenPipeError:
        # Whoever reads the output has seen enough: `seqto --help | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except KeyboardInterrupt:
        print("\nInterrupted. The same command goes on where it stopped.", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        end_with(error)


def _told(words: list[str]) -> bool:
    """Handle --help, --version and --info; return whether one of them was given.

    Hydra's own --info is recognised by the word that follows it.
    """
    if {"-h", "--help"} & set(words):
        from seqto.cli.manual import page

        print(page(words), flush=True)
        return True
    if "--version" in words:
        print(f"seqto {__version__}")
        return True
    if "--info" not in words or set(_HYDRA_INFO) & set(words):
        return False
    from seqto.cli.information import print_information

    print_information()
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
    sys.exit(128 + number)
