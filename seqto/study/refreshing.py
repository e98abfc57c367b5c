"""The front so far, kept up to date in the tracker for those who watch a study there."""

import logging
import time

from seqto.errors import SeqtoError
from seqto.study.conclude import Publish, front_of
from seqto.study.explore import Watch
from seqto.study.plan import Study
from seqto.types import Trial

_PAUSE = 5.0
"""The least seconds between two refreshes: short studies have none."""

_SHARE = 50
"""A refresh takes at most one in so many seconds."""

_log = logging.getLogger(__name__)


class Refreshed:
    """Calls `watch` after each candidate, and now and then brings the tracker up to date."""

    def __init__(self, study: Study, run: str, watch: Watch, show: Publish) -> None:
        self._study, self._run, self._watch, self._show = study, run, watch, show
        self._pause = _PAUSE
        self._last = time.monotonic()

    def __call__(self, trial: Trial, done: int, total: int) -> None:
        """Pass on a candidate that ended."""
        self._watch(trial, done, total)
        # The last one is followed by the whole report.
        if done < total and time.monotonic() - self._last >= self._pause:
            began = time.monotonic()
            self._refresh()
            self._last = time.monotonic()
            self._pause = max(_PAUSE, _SHARE * (self._last - began))

    def _refresh(self) -> None:
        tracker = self._study.tracker
        try:
            record = tracker.read_study(self._run)
            front = front_of(self._study, record)
            tracker.log_front(self._run, front, self._show(record, front))
        except SeqtoError as error:
            # Without a complete candidate there is no front; the end tells what else is wrong.
            _log.debug("The front so far is not shown: %s", error)
