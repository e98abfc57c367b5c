"""One candidate, measured and recorded without a study."""

from seqto.config.build import Context
from seqto.errors import StudyError
from seqto.measuring.pool import Pool
from seqto.measuring.record import Assignment
from seqto.types import Candidate, Trial, TrialState


def measure_alone(context: Context, candidate: Candidate) -> Trial:
    """Measure a candidate without a study and return its trial; raise if it failed."""
    pool = Pool(context.parts, context.subject, context.tracker)
    (run,) = pool.launch(None, [Assignment(0, candidate)])
    trial = context.tracker.trial(run)
    if trial.state is not TrialState.COMPLETE:
        raise StudyError(f"the candidate failed: {trial.failure}")
    return trial
