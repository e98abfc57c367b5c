"""A genetic search over precisions, seeded with what the integer program finds."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.figures import PREDICTED
from seqto.search.budget import solutions
from seqto.search.options import Menu
from seqto.search.timed import timed_solutions
from seqto.types import Candidate, Goal, LatencyModel, LayerScore, Trial, TrialState

Solve = Callable[[Menu, int], list[list[int]]]
"""Returns so many good choices to begin with."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class Nsga2Search:
    """pymoo's NSGA-II on screened divergence, size and, where asked for, predicted latency."""

    name: str = "nsga2"
    population: Annotated[int, Field(ge=4)] = 16
    generations: Annotated[int, Field(ge=1)] = 6
    seed: Annotated[int, Field(ge=0)] = 0
    evaluations: Annotated[int, Field(ge=3)] = 8
    screens: Annotated[int, Field(ge=1)] = 16

    def __post_init__(self) -> None:
        """Start with nothing to try."""
        self._menu: Menu | None = None
        self._algorithm: Any = None
        self._asked: Any = None
        self._generation = 0
        self._pending: list[Candidate] = []
        self._results: dict[Candidate, tuple[float, ...]] = {}
        self._goal = Goal()

    def start(self, ranking: Sequence[LayerScore]) -> None:
        """Seed the first generation with the solutions of the integer program."""
        self._begin(ranking, Goal(), solutions)

    def start_timed(self, ranking: Sequence[LayerScore], latency: LatencyModel, goal: Goal) -> None:
        """Seed the first generation with the solutions of the program that knows latency."""
        self._begin(ranking, goal, lambda menu, count: timed_solutions(menu, latency, goal, count))

    def _begin(self, ranking: Sequence[LayerScore], goal: Goal, solve: Solve) -> None:
        self._generation, self._pending, self._asked = self.generations, [], None
        self._goal = goal
        if not ranking:
            return
        self._menu = Menu(ranking)
        seeds = _seeds(self._menu, self.population, self.seed, solve)
        self._algorithm = _algorithm(self._menu, seeds, self.seed, len(_figures(goal)))
        self._generation = 0
        self._results = {}
        self._next_generation()

    def ask(self, count: int) -> list[Candidate]:
        """Return the next candidates of this generation that are not measured yet."""
        taken, self._pending = self._pending[:count], self._pending[count:]
        return taken

    def tell(self, trial: Trial) -> None:
        """Record a trial; after the last of a generation, breed the next generation."""
        names, limit = _figures(self._goal), self._goal.max_latency_ms
        metrics = trial.metrics
        slow = limit is not None and metrics.get(PREDICTED, 0.0) > limit
        usable = trial.state is TrialState.COMPLETE and not slow
        self._results[trial.candidate] = tuple(
            metrics[name] if usable else float("inf") for name in names
        )
        while not self._pending and self._asked is not None and self._known():
            self._breed()

    def remaining(self) -> int:
        """Return at most how many candidates are left."""
        return len(self._pending) + self.population * (self.generations - self._generation)

    def _candidates(self) -> list[Candidate]:
        assert self._menu is not None
        return [self._menu.candidate(row) for row in self._asked.get("X").astype(int).tolist()]

    def _known(self) -> bool:
        return all(each in self._results for each in self._candidates())

    def _breed(self) -> None:
        scores = np.array([self._results[each] for each in self._candidates()])
        # Infinite scores would spoil the normalisation of the finite ones.
        scores[~np.isfinite(scores)] = 1e30
        self._asked.set("F", scores)
        self._algorithm.tell(infills=self._asked)
        self._asked = None
        if self._generation < self.generations:
            self._next_generation()

    def _next_generation(self) -> None:
        self._generation += 1
        self._asked = self._algorithm.ask()
        if self._asked is None:
            # Nothing is left to breed: a model with few layers has few candidates.
            self._generation, self._pending = self.generations, []
            return
        fresh = [each for each in self._candidates() if each not in self._results]
        self._pending = list(dict.fromkeys(fresh))


def _figures(goal: Goal) -> list[str]:
    """Return the figures of a screened candidate that are minimised."""
    size = ["size_bytes"] if goal.size or not goal.latency else []
    return ["divergence", *size, *([PREDICTED] if goal.latency else [])]


def _algorithm(menu: Menu, seeds: np.ndarray, seed: int, objectives: int) -> Any:
    # pymoo takes a quarter of a second to import, and only this search needs it here.
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.core.problem import Problem
    from pymoo.operators.crossover.ux import UniformCrossover
    from pymoo.operators.mutation.pm import PolynomialMutation
    from pymoo.operators.repair.rounding import RoundingRepair

    layers, options = menu.costs.shape
    problem = Problem(n_var=layers, n_obj=objectives, xl=0, xu=options - 1, vtype=int)
    algorithm = NSGA2(
        pop_size=len(seeds),
        sampling=seeds,
        crossover=UniformCrossover(prob=0.9),
        mutation=PolynomialMutation(prob=1.0, eta=3, vtype=float, repair=RoundingRepair()),
        eliminate_duplicates=True,
    )
    algorithm.setup(problem, termination=("n_gen", 10**6), seed=seed, verbose=False)
    return algorithm


def _seeds(menu: Menu, population: int, seed: int, solve: Solve) -> np.ndarray:
    """Return the solutions of the integer program, topped up with neighbours of them."""
    found = [list(each) for each in dict.fromkeys(map(tuple, solve(menu, population)))]
    draw = np.random.RandomState(seed)
    while len(found) < population:
        neighbour = list(found[draw.randint(len(found))])
        neighbour[draw.randint(len(neighbour))] = draw.randint(len(menu.precisions))
        found.append(neighbour)
    return np.array(found[:population])
