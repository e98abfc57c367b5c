"""Studies, rankings and candidates, called from Python."""

import logging
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from omegaconf import DictConfig

from seqto.api.alone import measure_alone
from seqto.api.call import Call, call_of, checked_part
from seqto.api.display import Bar, Quiet
from seqto.api.held import Download, held_study
from seqto.api.result import Rebuild, Result, Setup, TunedCandidate
from seqto.api.running import run_config
from seqto.config.build import (
    Context,
    build_context,
    build_settings,
    contact_tracker,
    fetch_model,
)
from seqto.config.complaints import complaints
from seqto.errors import ConfigError, TrackingError
from seqto.measuring.choice import checked, excluding, mixed
from seqto.measuring.subject import rank_layers
from seqto.pareto.lost import lost_in_words
from seqto.protocols import Device, Metric, Quantizer, Search, Sensitivity, Task, Tracker
from seqto.report.commands import root
from seqto.study.device_limits import DOCUMENT
from seqto.tracking.memory import MemoryTracker

if TYPE_CHECKING:
    import pandas

MLFLOW = "mlflow"
"""MLflow as this process has set it up."""

_log = logging.getLogger(__name__)


def tune(
    model: Any,
    samples: Any = None,
    *,
    labels: Any = None,
    outputs: Sequence[str] | None = None,
    batch_axes: Mapping[str, int | None] | None = None,
    constants: Mapping[str, Any] | None = None,
    preprocess: str | None = None,
    device: str | Device | None = None,
    quantization: str | Quantizer | None = None,
    sensitivity: str | Sensitivity | None = None,
    search: str | Search | None = None,
    task: str | Task | None = None,
    metric: Any | Metric | None = None,
    precisions: Sequence[str] | None = None,
    objectives: Sequence[str] | None = None,
    evaluations: int | None = None,
    max_accuracy_loss: float | None = None,
    max_size_ratio: float | None = None,
    max_latency_ms: float | None = None,
    max_float_share: float | None = None,
    calibration_size: int | None = None,
    evaluation_size: int | None = None,
    name: str | None = None,
    overrides: Sequence[str] = (),
    tracking: str | Tracker | None = MLFLOW,
    progress: bool = True,
    **unknown: Any,
) -> Result:
    """Find which layers of a model to leave in higher precision.

    This runs the same study as `seqto -m`: with the same settings, both have the same key and
    resume each other. A wrong value raises the error that the command line prints.

    Args:
        model: The path of an ONNX file, its bytes, an `onnx.ModelProto`, or a name such as
            `"resnet50"` of the config group `model`.
        samples: What to calibrate and to evaluate on: an array, a dict of arrays by input name, an
            iterable of samples, batches or (sample, label) pairs such as a torch DataLoader, the
            path of a folder of images or of a .npz file. Of 400 or more samples, 100 are used to
            calibrate and 300 others to evaluate. None: the dataset that `overrides` choose, by
            default that of the embedded model.
        labels: What is right for each sample, for arrays: its class index, or what the task wants.
        outputs: The outputs to compare, by name; by default all but states.
        batch_axes: The axes that count samples, where the names and the order of axes do not tell,
            such as `{"state": 1}`; None is for an input or output without such an axis.
        constants: Inputs that are the same in every inference, such as `{"sr": 16000}`.
        preprocess: How images become inputs, by name: `"imagenet"`, `"efficientnet_lite"`, ...
        device: What candidates run on: a name such as `"cpu"`, or a `seqto.protocols.Device`.
        quantization: How layers are quantized: `"static"`, `"dynamic"`, `"weight_only"`, `"auto"`,
            or a `Quantizer`.
        sensitivity: How layers are ranked: a name, or a `Sensitivity`.
        search: Which candidates are tried: a name such as `"budget"`, or a `Search`.
        task: What the model's outputs mean: a name such as `"detection"`, or a `Task` such as
            `seqto.tasks.detection.Detection(layout="yolo")`. None: it is told from the outputs,
            where they are clear.
        metric: What accuracy loss means, if not what the task says: a name, a `Metric`, or a
            function of the float model's outputs and the candidate's, both by name with one entry
            per sample, that returns a loss in [0, 1] for each sample.
        precisions: The precisions to choose from, such as `["int4", "int8", "float16", "float32"]`.
        objectives: What the front trades off, such as `["accuracy_loss", "latency_ms"]`.
        evaluations: At most how many candidates are evaluated in full.
        max_accuracy_loss: The most loss that you accept; the answer is then the smallest model that
            meets it.
        max_size_ratio: The largest share of the original file's size that you accept.
        max_latency_ms: The longest inference that you accept, in milliseconds.
        max_float_share: The largest share of the layers' weights, by bytes, to leave in float.
        calibration_size: How many samples to calibrate on.
        evaluation_size: How many samples to evaluate on.
        name: The model's name in MLflow and its registry; by default that of its file or graph.
        overrides: Words of the command line for any other config key, such as
            `["sensitivity.samples=64"]`.
        tracking: Where results are recorded. By default MLflow as this process has set it up: its
            tracking URI and experiment, nested in the active run if there is one. Or another URI, a
            `seqto.protocols.Tracker`, or None to record nothing.
        progress: Whether a progress bar is shown.
        **unknown: No other keyword is accepted; the error suggests the nearest one.

    Returns:
        The front, the recommended candidates and all others.

    Raises:
        SeqtoError: One line that says what is wrong, the valid choices and the remedy.

    Example:
        >>> import seqto
        >>> result = seqto.tune("digits", max_accuracy_loss=0.01, tracking=None, progress=False)
        >>> result.best.loss <= 0.01 and result.best.size_ratio < 0.5
        True
        >>> path = result.best.save("small.onnx")
        >>> session = result.best.session()
        >>> [each.name for each in session.get_inputs()]
        ['image']

    """
    keywords = {
        **{"outputs": outputs, "batch_axes": batch_axes, "constants": constants},
        **{"preprocess": preprocess, "device": device, "quantization": quantization},
        **{"sensitivity": sensitivity, "search": search, "task": task, "metric": metric},
        **{"precisions": precisions, "objectives": objectives, "evaluations": evaluations},
        "max_accuracy_loss": max_accuracy_loss,
        "max_size_ratio": max_size_ratio,
        "max_latency_ms": max_latency_ms,
        "max_float_share": max_float_share,
        **{"calibration_size": calibration_size, "evaluation_size": evaluation_size, "name": name},
    }
    with complaints(), ExitStack() as stack:
        call = call_of(tune, model, samples, labels, keywords, overrides, unknown)
        config = call.config()
        _refuse_keys(config, tracking)
        tracker = _tracker(tracking, call)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="seqto-")))
        finished = run_config(
            config,
            Bar(stack) if progress else Quiet(),
            None if tracking is None else folder,
            given=call.given(config, tracker),
            overrides=call.words if call.is_typed else None,
        )
    study, record = finished.study, finished.outcome.record
    if study.incomplete(record):
        _log.warning("%s. Nothing was registered.", lost_in_words(record.trials))
    return Result.of(
        record,
        finished.outcome.front,
        Rebuild(study.parts.quantizer, study.subject.model, study.subject.ranges),
        finished.environment,
        study.tracker.read_document(record.id, DOCUMENT),
        None if tracking is None else study.tracker.address(record.id).url,
    )


def rank(
    model: Any,
    samples: Any = None,
    *,
    labels: Any = None,
    outputs: Sequence[str] | None = None,
    batch_axes: Mapping[str, int | None] | None = None,
    constants: Mapping[str, Any] | None = None,
    preprocess: str | None = None,
    device: str | Device | None = None,
    quantization: str | Quantizer | None = None,
    sensitivity: str | Sensitivity | None = None,
    task: str | Task | None = None,
    precisions: Sequence[str] | None = None,
    calibration_size: int | None = None,
    evaluation_size: int | None = None,
    overrides: Sequence[str] = (),
    **unknown: Any,
) -> "pandas.DataFrame":
    """Rank the layers of a model by how much quantization hurts them.

    Args:
        model: As for `tune`.
        samples: As for `tune`.
        labels: As for `tune`.
        outputs: As for `tune`.
        batch_axes: As for `tune`.
        constants: As for `tune`.
        preprocess: As for `tune`.
        device: As for `tune`.
        quantization: As for `tune`.
        sensitivity: As for `tune`.
        task: As for `tune`; layers are ranked by the harm that it defines.
        precisions: The precisions to choose from; the frame has the bytes of each.
        calibration_size: As for `tune`.
        evaluation_size: As for `tune`.
        overrides: As for `tune`.
        **unknown: Nothing else.

    Returns:
        One row per layer, the most sensitive first: `layer`, `op_type`, `weight_bytes`, `score`,
        the predicted harm of each precision (`cost_int8`, ...) and its bytes (`bytes_int8`, ...).

    Example:
        >>> import seqto
        >>> frame = seqto.rank("digits")
        >>> list(frame.columns[:4]), len(frame)
        (['layer', 'op_type', 'weight_bytes', 'score'], 24)

    """
    import pandas

    keywords = {
        **{"outputs": outputs, "batch_axes": batch_axes, "constants": constants},
        **{"preprocess": preprocess, "device": device, "quantization": quantization},
        **{"sensitivity": sensitivity, "task": task, "precisions": precisions},
        **{"calibration_size": calibration_size, "evaluation_size": evaluation_size},
    }
    with complaints():
        call = call_of(rank, model, samples, labels, keywords, overrides, unknown)
        context = _context(call, call.config(), MemoryTracker())
        scores = rank_layers(context.parts, context.subject, context.workspace)
    rows = [
        {
            "layer": each.layer.name,
            "op_type": each.layer.op_type,
            "weight_bytes": each.layer.weight_bytes,
            "score": each.score,
            **{f"cost_{precision}": cost for precision, cost in each.costs.items()},
            **{f"bytes_{precision}": size for precision, size in each.sizes.items()},
        }
        for each in scores
    ]
    return pandas.DataFrame(rows, index=pandas.RangeIndex(1, len(rows) + 1, name="rank"))


def quantize(
    model: Any,
    samples: Any = None,
    *,
    excluded: Sequence[str] | None = None,
    precisions: Mapping[str, Any] | None = None,
    labels: Any = None,
    outputs: Sequence[str] | None = None,
    batch_axes: Mapping[str, int | None] | None = None,
    constants: Mapping[str, Any] | None = None,
    preprocess: str | None = None,
    device: str | Device | None = None,
    quantization: str | Quantizer | None = None,
    task: str | Task | None = None,
    metric: Any | Metric | None = None,
    calibration_size: int | None = None,
    evaluation_size: int | None = None,
    scheme: str | None = None,
    name: str | None = None,
    overrides: Sequence[str] = (),
    tracking: str | Tracker | None = MLFLOW,
    **unknown: Any,
) -> TunedCandidate:
    """Build and measure one candidate, chosen by hand.

    Args:
        model: As for `tune`.
        samples: As for `tune`.
        excluded: The layers to leave in float32, by name; the others are int8.
        precisions: A precision for each layer name, like `TunedCandidate.precisions`, or a list of
            layers for each precision, such as `{"float16": ["conv1"]}`; other layers are int8.
        labels: As for `tune`.
        outputs: As for `tune`.
        batch_axes: As for `tune`.
        constants: As for `tune`.
        preprocess: As for `tune`.
        device: As for `tune`.
        quantization: As for `tune`.
        task: As for `tune`.
        metric: As for `tune`.
        calibration_size: As for `tune`.
        evaluation_size: As for `tune`.
        scheme: How the layers are quantized, by name, with `quantization="auto"`.
        name: As for `tune`.
        overrides: As for `tune`.
        tracking: As for `tune`; the candidate is one MLflow run.
        **unknown: Nothing else.

    Returns:
        The candidate with its figures and its model.

    Example:
        >>> import seqto
        >>> candidate = seqto.quantize("digits", excluded=["/dense/Gemm"], tracking=None)
        >>> candidate.excluded, candidate.size_ratio < 0.5
        (('/dense/Gemm',), True)

    """
    if excluded is not None and precisions is not None:
        raise ConfigError("excluded and precisions exclude each other: give one.")
    keywords = {
        **{"outputs": outputs, "batch_axes": batch_axes, "constants": constants},
        **{"preprocess": preprocess, "device": device, "quantization": quantization},
        **{"task": task, "metric": metric, "name": name},
        **{"calibration_size": calibration_size, "evaluation_size": evaluation_size},
    }
    with complaints():
        call = call_of(quantize, model, samples, labels, keywords, overrides, unknown)
        config = call.config()
        _refuse_keys(config, tracking)
        context = _context(call, config, _tracker(tracking, call))
        parts, subject = context.parts, context.subject
        if precisions is None:
            chosen = excluding([] if excluded is None else excluded, subject)
        else:
            chosen = mixed(_by_precision(precisions), subject)
        trial = measure_alone(context, checked(chosen, scheme, parts, subject))
    rebuild = Rebuild(parts.quantizer, subject.model, subject.ranges)
    setup = Setup(rebuild, subject.baseline, subject.metric.name, parts.device.describe())
    return setup.candidate(trial, tracking is not None)


def load_study(run_id: str, tracking: str = MLFLOW) -> Result:
    """Return what a finished study found, from MLflow.

    Args:
        run_id: The id of the study's MLflow run.
        tracking: The URI of the MLflow that has it; by default the one set up in this process.

    Returns:
        The same result as `tune` returned. MLflow holds only the models of the front's members.

    Example:
        >>> import seqto
        >>> done = seqto.tune("digits", overrides=["search=ladder", "search.step=12"],
        ...                   progress=False)
        >>> again = seqto.load_study(done.run_id)
        >>> [each.index for each in again.front] == [each.index for each in done.front]
        True

    """
    from seqto.tracking.mlflow import open_existing

    if not isinstance(run_id, str):
        raise TrackingError(
            f"run_id={run_id!r} is no run: a study that was recorded nowhere (tracking=None) "
            "cannot be loaded."
        )
    tracker = open_existing(None if tracking == MLFLOW else tracking)
    held = held_study(tracker, run_id)
    stored = frozenset(trial.id for trial in held.front.members)
    download = Download(tracker.store, stored)
    url = tracker.address(run_id).url
    return Result.of(held.record, held.front, download, held.environment, held.exclusions, url)


def _tracker(tracking: str | Tracker | None, call: Call) -> Tracker | None:
    """Return where results are recorded; None if the overrides choose the tracker."""
    if tracking is None:
        return MemoryTracker(keeps_models=False)
    if not isinstance(tracking, str):
        return cast(Tracker, checked_part(tracking, Tracker, "tracking"))
    if tracking != MLFLOW:
        from seqto.tracking.mlflow import MlflowTracker

        return MlflowTracker(uri=tracking)
    if any(root(word) == "tracking" for word in call.words):
        return None
    from seqto.tracking.ambient import ambient_tracker

    return ambient_tracker()


def _context(call: Call, config: DictConfig, tracker: Tracker | None) -> Context:
    given = call.given(config, tracker)
    contact_tracker(config, given)
    fetch_model(config, given)
    return build_context(config, given)


def _by_precision(precisions: Any) -> Mapping[str, Any]:
    """Return lists of layers by precision, given that or the precision of each layer."""
    if not isinstance(precisions, Mapping) or any(
        not isinstance(each, str) for each in precisions.values()
    ):
        return precisions  # type: ignore[no-any-return]
    groups: dict[str, list[str]] = {}
    for layer, precision in precisions.items():
        groups.setdefault(str(precision), []).append(layer)
    return groups


def _refuse_keys(config: DictConfig, tracking: object) -> None:
    """Raise where words ask for what only the command line does, or what has no effect."""
    build_settings(config, 1)
    if config.candidate.unpack:
        raise ConfigError(
            "candidate.unpack is for commands: in Python write result.best.unpack('plain.onnx')."
        )
    choices = (name for name in config.candidate if name != "unpack")
    chosen = [name for name in choices if config.candidate[name] is not None]
    if chosen:
        raise ConfigError(
            f"candidate.{chosen[0]} chooses one candidate: write seqto.quantize(model, samples, "
            "excluded=[...]) or precisions={...}."
        )
    if any(value is not None for value in config.gate.values()):
        raise ConfigError(
            "gate.* decides the exit code of a command: in Python look at the result, or give a "
            "limit such as max_accuracy_loss=."
        )
    if tracking is None and any(value is not None for value in _tracking_keys(config)):
        raise ConfigError("tracking.* has no effect with tracking=None: leave out one of the two.")


def _tracking_keys(config: DictConfig) -> list[object]:
    return [value for name, value in config.tracking.items() if name != "_target_"]
