"""The data that flows through a study: frozen, plain, one way."""

from seqto.types.candidates import CODED, FLOAT16, FLOAT32, INT4, INT8, INT16, SHORT, Candidate
from seqto.types.fronts import Front, Recommendation, Version
from seqto.types.keys import content_key, sha256
from seqto.types.layer_scores import NEGLIGIBLE, RUINED, Layer, LayerScore
from seqto.types.model_outputs import Estimate, Outputs, Targets
from seqto.types.observed import Entry, Observed, together
from seqto.types.onnx_model import Kernel, Latency, Learned, Model, Ranges, TensorSpec
from seqto.types.reading import BatchAxes, Interface, Reading
from seqto.types.samples import Arrays, DataSplit, Samples, Splits
from seqto.types.study_record import (
    COMMAND,
    CONSTRAINT,
    OVERRIDES,
    REGISTERED,
    SAMPLES,
    SCHEMES,
    SCREENING,
    TABLES,
    Address,
    StudyPlan,
    StudyRecord,
    Table,
)
from seqto.types.trials import Measurement, Trial, TrialState, trial_name

__all__ = [
    "CODED",
    "COMMAND",
    "CONSTRAINT",
    "FLOAT16",
    "FLOAT32",
    "INT4",
    "INT8",
    "INT16",
    "NEGLIGIBLE",
    "OVERRIDES",
    "REGISTERED",
    "RUINED",
    "SAMPLES",
    "SCHEMES",
    "SCREENING",
    "SHORT",
    "TABLES",
    "Address",
    "Arrays",
    "BatchAxes",
    "Candidate",
    "DataSplit",
    "Entry",
    "Estimate",
    "Front",
    "Interface",
    "Kernel",
    "Latency",
    "Layer",
    "LayerScore",
    "Learned",
    "Measurement",
    "Model",
    "Observed",
    "Outputs",
    "Ranges",
    "Reading",
    "Recommendation",
    "Samples",
    "Splits",
    "StudyPlan",
    "StudyRecord",
    "Table",
    "Targets",
    "TensorSpec",
    "Trial",
    "TrialState",
    "Version",
    "content_key",
    "sha256",
    "together",
    "trial_name",
]
