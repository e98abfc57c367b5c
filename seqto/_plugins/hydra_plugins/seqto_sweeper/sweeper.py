"""The Hydra sweeper that turns `-m` into studies.

Commas on the command line multiply into studies. Each study asks its search for candidates, and
the configured Hydra launcher runs them as jobs, so any launcher can distribute them.
"""

import sys
from collections.abc import Callable, Sequence, Set
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import MissingMandatoryValue

from seqto.cli.entry import JobFailure
from seqto.cli.hydra_files import save_masked
from seqto.cli.launchers import check_installed, check_store, is_ray
from seqto.cli.leftovers import discard
from seqto.config.complaints import complain, exit_code
from seqto.config.compose import remember_secrets_of
from seqto.config.missing import check_files, check_given
from seqto.config.words import word
from seqto.errors import ConfigError, SeqtoError, StudyError
from seqto.secrets import masked_word

_CONFIG = "multirun.yaml"


class SeqtoSweeper(Sweeper):
    """Runs a study for each point of the grid."""

    def __init__(self) -> None:
        self.config: DictConfig | None = None
        self.hydra_context: HydraContext | None = None
        self.launcher: Launcher | None = None
        self._jobs = 0

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Store what Hydra provides before a sweep."""
        self.config = config
        self.hydra_context = hydra_context
        check_installed(config.hydra.launcher)
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        """Run the studies that these overrides describe; a failed one does not stop the others."""
        assert self.config is not None
        remember_secrets_of(self.config)
        folder = Path(self.config.hydra.sweep.dir)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the folder {folder} cannot be made ({error.strerror}): give another one with "
                "hydra.sweep.dir, or run the command in a folder of your own."
            ) from error
        save_masked(self.config, folder / _CONFIG)
        try:
            self._studies(arguments, folder)
        finally:
            # Remove the folder if no study could begin, so that it holds nothing else.
            discard(folder, [_CONFIG])

    def _studies(self, arguments: list[str], folder: Path) -> None:
        assert self.hydra_context is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        grid = BasicSweeper.split_arguments(parser.parse_overrides(arguments), None)[0]
        if len(grid) == 1:
            self._study(grid[0], folder)
            return
        grid = self._fitted(grid)
        failed = self._fetch(grid)
        codes = {1} if failed else set()
        for number, overrides in enumerate(grid):
            if number in failed:
                continue
            print(f"\nstudy {_place(number, grid)}", flush=True)
            try:
                self._study(overrides, folder / f"study-{number}")
            except Exception as error:
                failed.add(number)
                codes.add(exit_code(error))
                print(f"seqto: error: {complain(error)}", file=sys.stderr)
        self._compare(folder)
        if failed:
            end = StudyError(f"{len(failed)} of {len(grid)} studies failed; see above.")
            # So that a pipeline can distinguish unmet limits from broken studies.
            end.exit_code = codes.pop() if len(codes) == 1 else 1
            raise end

    def _fitted(self, grid: Sequence[list[str]]) -> list[list[str]]:
        """Return the grid with `++group.key=value` only where the study's choice has the key.

        So choices with different keys can be compared. A key that no choice has stays everywhere,
        and is refused as in a single study.
        """
        forced = {word for overrides in grid for word in overrides if word.startswith("++")}
        if not forced:
            return list(grid)
        known = [self._known(overrides, forced) for overrides in grid]
        common = forced - set().union(*known)
        return [
            [word for word in overrides if word not in forced or word in common | has]
            for overrides, has in zip(grid, known, strict=True)
        ]

    def _known(self, overrides: Sequence[str], forced: Set[str]) -> set[str]:
        """Return the forced words whose keys the study's config already has."""
        config = self._composed([word for word in overrides if word not in forced])
        return {word for word in forced if _has(config, word)}

    def _fetch(self, grid: Sequence[Sequence[str]]) -> set[int]:
        """Fetch the models of all studies; return the numbers of studies that cannot begin."""
        # Before the first study, while somebody still watches: studies take long.
        failed: set[int] = set()
        unavailable: dict[str, Exception] = {}
        for number, overrides in enumerate(grid):
            try:
                self._fetch_once(overrides, unavailable)
            except Exception as error:
                failed.add(number)
                print(f"study {_place(number, grid)}", flush=True)
                print(f"seqto: error: {complain(error)}", file=sys.stderr)
        return failed

    def _fetch_once(self, overrides: Sequence[str], unavailable: dict[str, Exception]) -> None:
        """Contact the tracker and fetch the model, unless that failed for another study.

        So nobody waits twice for the same server.
        """
        from seqto.config.build import contact_tracker, fetch_model

        config = self._composed(overrides)
        for group, reach in (("tracking", contact_tracker), ("model", fetch_model)):
            needed = f"{group}: {config[group]}"
            if needed in unavailable:
                raise unavailable[needed]
            try:
                reach(config)
            except Exception as error:
                unavailable[needed] = error
                raise

    def _composed(self, overrides: Sequence[str]) -> DictConfig:
        assert self.config is not None and self.hydra_context is not None
        loader = self.hydra_context.config_loader
        config = loader.load_sweep_config(self.config, list(overrides))
        remember_secrets_of(config)
        return config

    def _compare(self, folder: Path) -> None:
        """Compare the finished studies side by side."""
        from seqto.cli.comparing import compare_files

        compare_files(folder, sorted(folder.glob("study-*/report.json")))

    def _study(self, overrides: list[str], folder: Path) -> None:
        assert self.config is not None
        config = self._composed(overrides)
        try:
            check_given(config)
            check_files(config)
        except (MissingMandatoryValue, SeqtoError):
            if not str(config.device.get("_target_", "")).endswith(".OnnxRuntimeDevice"):
                from seqto.config.needs import check_needs

                # A device that needs more than this has it all told at once.
                check_needs(config)
            raise
        # Heavy: a second in which a missing value is told already.
        from seqto.cli.study_command import run_study_of

        # Hydra's own launcher would compose a config per candidate, only to run it in this process.
        chosen = self.config.hydra.launcher
        in_process = chosen._target_.endswith(".BasicLauncher")
        launch = None if in_process else self._launch_of(config, overrides)
        with open_dict(config):
            del config["hydra"]
        if is_ray(chosen):
            from seqto.measuring.cluster import connected

            options = OmegaConf.to_container(chosen.ray, resolve=True)
            with connected(options["init"]):
                run_study_of(config, None, folder, overrides, options["remote"])
            return
        run_study_of(config, launch, folder, overrides)

    def _launch_of(
        self, config: DictConfig, overrides: Sequence[str]
    ) -> Callable[[str, Sequence[Sequence[Any]]], list[str]]:
        """Return what launches a study's jobs; raise if they could not record what they measure."""
        from seqto.config.build import build_tracker

        assert self.config is not None
        chosen, tracker = self.config.hydra.launcher, build_tracker(config)
        check_store(chosen, tracker)

        def launch(study: str, groups: Sequence[Sequence[Any]]) -> list[str]:
            return self._launch([[*overrides, *job_overrides(study, each)] for each in groups])

        return launch

    def _launch(self, jobs: list[list[str]]) -> list[str]:
        assert self.launcher is not None
        results = self.launcher.launch(jobs, initial_job_idx=self._jobs)
        self._jobs += len(jobs)
        values = [result.return_value for result in results]
        for value in values:
            if isinstance(value, JobFailure):
                raise StudyError(value.reason)
        return [trial for value in values for trial in value]


def _has(config: DictConfig, word: str) -> bool:
    """Return whether the config has the key of this override."""
    parent, _, key = word.removeprefix("++").partition("=")[0].rpartition(".")
    node = OmegaConf.select(config, parent) if parent else config
    # Not `key in node`: that is False for a key that a user has to give.
    return isinstance(node, DictConfig) and key in list(node.keys())


def _place(number: int, grid: Sequence[Sequence[str]]) -> str:
    return f"{number + 1} of {len(grid)}: {' '.join(map(masked_word, grid[number]))}"


def job_overrides(study: str, assignments: Sequence[Any]) -> list[str]:
    """Return the overrides that make a job measure these candidates for this study."""
    return [f"study.run={study}", word("study.assignments", list(map(_described, assignments)))]


def _described(assignment: Any) -> dict[str, Any]:
    return {
        "index": assignment.index,
        "scheme": assignment.candidate.scheme,
        "precisions": dict(sorted(assignment.candidate.by_precision().items())),
    }
