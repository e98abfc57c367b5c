"""Promotion from the command line: the best registered version becomes the champion."""

import argparse
import sys
import textwrap
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from omegaconf import DictConfig
from rich.console import Console

from seqto.cli.ending import end_with
from seqto.cli.pointers import print_lines, stdout_console
from seqto.config.build import build_part, build_parts, build_settings, build_tracker, fetch_model
from seqto.config.complaints import known_keys
from seqto.config.compose import composed
from seqto.errors import ConfigError, ConstraintError, PromotionError, TrackingError, nearest
from seqto.figures import limited
from seqto.measuring.parts import registered_name
from seqto.phases import listening
from seqto.promotion import CHAMPION, PREVIOUS, Bench, Decision, Rules, Verdict, decide
from seqto.report.progress import StepLines, StudyProgress, can_show_bars
from seqto.report.wording import in_words
from seqto.types import Version
from seqto.workspace import Workspace

if TYPE_CHECKING:
    from seqto.tracking.versions import MlflowVersions

SHORT = {
    **{f"max_{name}": f"constraint.max_{name}" for name in limited()},
    "tolerance": "promote.tolerance",
}
"""Short names for the config keys that are common here."""

HELP = """\
NAME
    seqto promote - make the best registered model the champion

SYNOPSIS
    seqto promote [model=...] [device=...] [quantization=...] [limit=...]
                  [--dry-run]
    seqto promote rollback [model=...] [device=...] [quantization=...]
                  [--dry-run]

DESCRIPTION
    Takes the best version of the registered model
    seqto-<model>-<device>-<quantization> that meets the limits: the smallest,
    or with only a limit on size the least lossy; without limits the one with
    the alias `balanced`. It and the present champion are measured again on the
    same evaluation data and device; the figures of their studies are not
    trusted. The alias `champion` moves only if the version is better in one
    objective, and in the others worse by no more than the tolerance. The old
    champion gets the alias `previous`. Who, when, why and the figures of both
    are recorded as tags of the version (seqto.promoted*) and in its
    description.

    rollback brings `previous` back. A version that was rolled back is not
    promoted again.

WORDS
    model= device= dataset= ...   the groups and keys of a study, see
                                  seqto --help
{limits}
    tolerance=0.01                how much worse it may be in other objectives:
                                  0.01 is a point of loss, or 1 % of the float
                                  model's size or latency; 0 by default
    objectives=[...]              what has to be better: accuracy_loss and
                                  size_bytes by default
    --dry-run                     show the decision and change nothing
    --config-dir mine             a folder with your own choices, such as
                                  mine/model/my.yaml

EXAMPLES
    seqto promote
    seqto promote model=resnet50 dataset.path=photos device=mali \\
          max_accuracy_loss=0.01
    seqto promote max_size_ratio=0.4 tolerance=0.005 --dry-run
    seqto promote rollback

EXIT STATUS
    0  promoted, or already the champion
    1  bad input, or nothing that can be measured
    3  no version meets the limits
    4  the version is not better than the champion"""

_COLUMN, _WIDTH = 34, 80


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Report errors like the rest of seqto."""
        raise ConfigError(f"{message}. See seqto promote --help.")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    try:
        _run(list(sys.argv[1:] if arguments is None else arguments))
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        end_with(error)


def _run(arguments: list[str]) -> None:
    parser = _Parser(prog="seqto promote", add_help=False, allow_abbrev=False)
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--config-dir", "-cd", type=Path)
    parser.add_argument("words", nargs="*")
    given = parser.parse_intermixed_args(arguments)
    if given.help:
        print(_help())
        return
    words = [word for word in given.words if word != "rollback"]
    config = composed([_full(word) for word in words], given.config_dir)
    act = _promote if len(words) == len(given.words) else _roll_back
    act(stdout_console(), config, given.dry_run)


def _help() -> str:
    further = " " * _COLUMN
    lines = [
        line
        for name, limit in limited().items()
        for line in textwrap.wrap(
            limit.words,
            _WIDTH,
            initial_indent=f"    max_{name}={limit.example}".ljust(_COLUMN),
            subsequent_indent=further,
        )
    ]
    return HELP.format(limits="\n".join(lines))


def _full(word: str) -> str:
    name, equals, value = word.partition("=")
    if not equals:
        raise ConfigError(
            f"{word!r} is no word of seqto promote: give rollback, key=value or --dry-run."
        )
    known = [*SHORT, *(key for key in known_keys() if "." not in key)]
    # Hydra's own forms, such as +key and group@package, are left to Hydra.
    if name.isidentifier() and name not in (*known, "hydra"):
        raise ConfigError(
            f"there is no config key {name!r}{nearest(name, known)}. See seqto promote --help."
        )
    return f"{SHORT.get(name, name)}={value}"


def _versions(config: DictConfig) -> "MlflowVersions":
    """Return the registered model that this config names."""
    # MLflow takes more than a second to import, and bad input should fail at once.
    from seqto.tracking.mlflow import MlflowTracker
    from seqto.tracking.versions import MlflowVersions

    named = [build_part(config, group) for group in ("model", "device", "quantization")]
    name, tracker = registered_name(*named), build_tracker(config)
    if not isinstance(tracker, MlflowTracker):
        raise ConfigError("only tracking=mlflow has registered models: leave tracking as it is.")
    return MlflowVersions(tracker, name)


def _promote(console: Console, config: DictConfig, dry_run: bool) -> None:
    settings = build_settings(config, 1)
    rules = Rules(
        limits=settings.constraint,
        objectives=settings.objectives,
        tolerance=config.promote.tolerance,
    )
    registered = _versions(config)
    versions = registered.all()
    fetch_model(config)
    bench = Bench(build_parts(config), Workspace.default(), registered.load)
    progress = StudyProgress(console) if can_show_bars(console) else StepLines(console)
    with progress, listening(progress.say):
        decision = decide(versions, rules, bench)
    if decision.verdict is Verdict.PROMOTED and not dry_run:
        decision = _promoted(registered, decision, rules, bench)
    _show(console, registered.name, decision, bench)
    if back := [each.number for each in versions if each.rolled_back]:
        numbers = f"version {back[0]} was" if len(back) == 1 else f"versions {', '.join(back)} were"
        print_lines(console, {"skipped": f"{numbers} rolled back before"})
    if decision.verdict is Verdict.UNMET:
        raise ConstraintError(f"not promoted: {decision.why}.")
    if decision.verdict is Verdict.NOT_BETTER:
        raise PromotionError(
            f"{decision.challenger} not promoted over {decision.champion}: {decision.why}."
        )
    print_lines(console, {"outcome": _in_words(decision, dry_run)})


def _promoted(
    registered: "MlflowVersions", decision: Decision, rules: Rules, bench: Bench
) -> Decision:
    """Record a promotion; decide again if another process promoted meanwhile."""
    with registered.alone():
        versions = registered.all()
        if _champion(versions) != decision.champion:
            decision = decide(versions, rules, bench)
        if decision.verdict is Verdict.PROMOTED:
            _record(registered, decision, bench)
    return decision


def _champion(versions: Sequence[Version]) -> Version | None:
    return next((each for each in versions if CHAMPION in each.aliases), None)


def _record(registered: "MlflowVersions", decision: Decision, bench: Bench) -> None:
    challenger, champion = decision.challenger, decision.champion
    assert challenger is not None
    figures = {
        "data": bench.subject.fingerprint,
        "device": bench.parts.device.name,
        f"{challenger}": dict(bench.measured[challenger.number].metrics),
    }
    aliases = {CHAMPION: challenger}
    if champion is not None:
        figures[f"{champion}"] = dict(bench.measured[champion.number].metrics)
        aliases = {PREVIOUS: champion, **aliases}
    # The note comes first, so that every champion has its reason.
    registered.note(challenger, "promoted", decision.why, figures)
    registered.move(aliases)


def _show(console: Console, name: str, decision: Decision, bench: Bench) -> None:
    """Print what was measured, and note if the study measured it on other data."""
    console.print(f"[bold]{name}[/]", highlight=False)
    roles = {"present": decision.champion, "version": decision.challenger}
    for label, version in roles.items():
        if version is None or version.number not in bench.measured:
            continue
        metrics = bench.measured[version.number].metrics
        offer = in_words(metrics, bench.subject.baseline, bench.subject.metric.name)
        other = version.data and version.data != bench.subject.fingerprint
        note = " (its study measured it on another data set)" if other else ""
        print_lines(console, {label: f"{version.number}: {offer}{note}"})


def _in_words(decision: Decision, dry_run: bool) -> str:
    if decision.verdict is Verdict.ALREADY:
        return f"{decision.challenger} is champion already: {decision.why}"
    done = "would be promoted" if dry_run else "promoted"
    return f"{decision.challenger} {done}: {decision.why}"


def _roll_back(console: Console, config: DictConfig, dry_run: bool) -> None:
    registered = _versions(config)
    registered.all()  # Raises if there is no such model.
    with nullcontext() if dry_run else registered.alone():
        line = _rolled_back(registered, dry_run)
    print_lines(console, {"outcome": line})


def _rolled_back(registered: "MlflowVersions", dry_run: bool) -> str:
    held: dict[str, Version] = {
        alias: version for version in registered.all() for alias in version.aliases
    }
    if CHAMPION not in held:
        raise TrackingError(
            f"{registered.name} has no champion to roll back: only a promotion sets it."
        )
    if PREVIOUS not in held:
        raise TrackingError(
            f"{registered.name} cannot be rolled back: {held[CHAMPION]} is its first champion, "
            "there is none before it."
        )
    champion, previous = held[CHAMPION], held[PREVIOUS]
    if not dry_run:
        why = f"{champion} was rolled back to {previous}"
        registered.note(champion, "rolled_back", why, {})
        registered.note(previous, "restored", why, {})
        registered.forgive(previous)
        registered.move({CHAMPION: previous, PREVIOUS: champion})
    done, will = ("would be", "would") if dry_run else ("is", "will")
    line = f"{previous} {done} champion again, in the place of {champion}"
    return f"{line}, which {will} be skipped from now on"
