"""A lease in the store itself: at most one process at a time runs a study, on whatever machine.

Whoever wants a study writes a claim of its own into the tags of the experiment (to move aliases,
into those of the registered model) and then reads all claims: it holds the study once it sees no
other that lives. So of two at once at least one sees the other, in any store that lets read what
was written. A claim lives as long as its beat rises; no two clocks are compared. On this machine
the system knows whether its process runs, so what was killed here is followed at once.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from seqto.errors import StudyError
from seqto.interrupts import put_off
from seqto.tracking.claims import Claim

PREFIX = "seqto.lease."

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pace:
    """How often a holder shows that it lives, when others take it for dead, and how they look.

    Who was killed takes a moment to die: nobody is refused before `grace` is over.
    """

    beat: float = 10.0
    stale: float = 60.0
    look: float = 0.5
    grace: float = 2.0


@dataclass(frozen=True)
class Claims:
    """The claims on the study of this key, in the tags of an experiment."""

    client: MlflowClient
    place: str
    """The experiment."""
    key: str

    taken: ClassVar[str] = "is running this very study"
    remedy: ClassVar[str] = (
        "Wait for it to end, or change the model, data or options to make it another study."
    )

    def all(self) -> dict[str, Claim]:
        """Return all claims, by their tokens."""
        start = f"{PREFIX}{self.key}."
        with put_off():
            tags = self._tags()
        found = (Claim.of(text) for name, text in tags.items() if name.startswith(start))
        return {each.token: each for each in found if each is not None}

    def write(self, claim: Claim) -> None:
        """Write a claim, or its new beat."""
        with put_off():
            self._set(self._name(claim), str(claim))

    def withdraw(self, claim: Claim) -> None:
        """Remove a claim, if it is there."""
        with put_off(), contextlib.suppress(MlflowException):
            self._delete(self._name(claim))

    def _name(self, claim: Claim) -> str:
        return f"{PREFIX}{self.key}.{claim.token}"

    def _tags(self) -> Mapping[str, str]:
        return dict(self.client.get_experiment(self.place).tags)

    def _set(self, name: str, text: str) -> None:
        self.client.set_experiment_tag(self.place, name, text)

    def _delete(self, name: str) -> None:
        self.client.delete_experiment_tag(self.place, name)


@dataclass(frozen=True)
class ModelClaims(Claims):
    """The claims on the aliases of a registered model, in its own tags: `place` is its name."""

    key: str = "aliases"

    taken: ClassVar[str] = "is moving the aliases of this very model"
    remedy: ClassVar[str] = "Try again when it has ended."

    def _tags(self) -> Mapping[str, str]:
        return dict(self.client.get_registered_model(self.place).tags)

    def _set(self, name: str, text: str) -> None:
        self.client.set_registered_model_tag(self.place, name, text)

    def _delete(self, name: str) -> None:
        self.client.delete_registered_model_tag(self.place, name)


@contextlib.contextmanager
def held(claims: Claims, pace: Pace | None = None) -> Iterator[Callable[[], None]]:
    """Hold the study within the block; raise StudyError if somebody else does.

    What is yielded raises StudyError once the study was lost to somebody who took this process for
    dead.
    """
    pace = pace or Pace()
    lease = Lease(claims, _acquired(claims, Claim(), pace), pace)
    lease.start()
    try:
        yield lease.check
    finally:
        lease.release()


class Lease:
    """A study that is held: a thread shows that this process lives."""

    def __init__(self, claims: Claims, claim: Claim, pace: Pace) -> None:
        self._claims, self._claim, self._pace = claims, claim, pace
        self._writing = threading.Lock()
        self._ended = threading.Event()
        self._lost_to = ""

    def start(self) -> None:
        """Start to show that this process lives."""
        threading.Thread(target=self._beat, name="seqto lease", daemon=True).start()

    def check(self) -> None:
        """Raise if somebody else took over."""
        if self._lost_to:
            raise StudyError(
                f"{self._lost_to} took over this study, because this process gave no sign of life "
                "for a while. What was recorded is kept: the same command goes on with it."
            )

    def release(self) -> None:
        """Let others have the study."""
        self._ended.set()
        with self._writing, contextlib.suppress(Exception):  # The store may be gone by now.
            self._claims.withdraw(self._claim)

    def _beat(self) -> None:
        while not self._ended.wait(self._pace.beat) and not self._lost_to:
            with self._writing:
                if self._ended.is_set():
                    return
                try:
                    self._beat_once()
                except Exception as error:  # From MLflow, SQLAlchemy or the network: it may return.
                    _log.info("The study's lease could not be renewed: %s", error)

    def _beat_once(self) -> None:
        found = self._claims.all()
        others = [each for token, each in found.items() if token != self._claim.token]
        later = [each for each in others if each.holds and each.turn > self._claim.turn]
        if later or self._claim.token not in found:
            try:
                self._claims.withdraw(self._claim)
            finally:
                # Who took over may have ended since.
                self._lost_to = later[0].who if later else "another process"
            return
        self._claim = self._claim.later()
        self._claims.write(self._claim)


def _acquired(claims: Claims, mine: Claim, pace: Pace) -> Claim:
    """Return the claim once it holds; withdraw it if it does not get that far."""
    watch = _Watch(pace)
    try:
        while True:
            claims.write(mine)
            found = claims.all()
            others = [each for token, each in found.items() if token != mine.token]
            rivals = [each for each in others if not watch.is_dead(each)]
            if not rivals:
                return _begun(claims, mine, others)
            _refuse(rivals, watch, claims)
            if any(watch.is_alive(each) and each.token < mine.token for each in rivals):
                # Of two that ask at the same time, one has to step back, for several looks.
                claims.withdraw(mine)
                time.sleep(3 * pace.look)
            watch.tell(rivals)
            time.sleep(pace.look)
            mine = mine.later()
    except BaseException:
        claims.withdraw(mine)
        raise


def _begun(claims: Claims, mine: Claim, dead: list[Claim]) -> Claim:
    """Hold the study from now on, after those that are dead."""
    mine = mine.later(holds=True, turn=1 + max((each.turn for each in dead), default=0))
    claims.write(mine)
    for each in dead:
        _log.info("The study is taken over from %s, which ended without a word.", each.who)
        claims.withdraw(each)
    return mine


def _refuse(rivals: list[Claim], watch: "_Watch", claims: Claims) -> None:
    for each in rivals:
        if each.holds and watch.is_alive(each) and watch.is_lasting(each):
            raise StudyError(
                f"another process or thread {claims.taken}: {each.who}, since {each.since}. "
                f"{claims.remedy}"
            )


@dataclass
class _Watch:
    """Tells whether others live: by the system on this machine, else by their beats."""

    pace: Pace
    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)
    _moved: set[str] = field(default_factory=set)
    _first: dict[str, float] = field(default_factory=dict)
    _told: bool = False

    def is_dead(self, claim: Claim) -> bool:
        self._look_at(claim)
        if claim.is_alive is not None:
            return not claim.is_alive
        return time.monotonic() - self._seen[claim.token][1] > self.pace.stale

    def is_alive(self, claim: Claim) -> bool:
        return bool(claim.is_alive) or claim.token in self._moved

    def is_lasting(self, claim: Claim) -> bool:
        """Tell whether it was there for a while."""
        return time.monotonic() - self._first[claim.token] >= self.pace.grace

    def tell(self, rivals: list[Claim]) -> None:
        """Say once whom it is waited for."""
        unsure = [each for each in rivals if not self.is_alive(each)]
        if unsure and not self._told:
            self._told = True
            _log.warning(
                "%s has this study since %s: waiting up to %.0f s for a sign of life.",
                *(unsure[0].who, unsure[0].since, self.pace.stale),
            )

    def _look_at(self, claim: Claim) -> None:
        self._first.setdefault(claim.token, time.monotonic())
        before = self._seen.get(claim.token)
        if before is None or before[0] != claim.beat:
            self._seen[claim.token] = claim.beat, time.monotonic()
            if before is not None:
                self._moved.add(claim.token)
