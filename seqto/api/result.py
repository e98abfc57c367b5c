"""What a study found, in Python."""

import io
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from seqto.errors import ConfigError, ConstraintError, StudyError
from seqto.graph.files import save_model
from seqto.graph.sessions import open_session
from seqto.graph.unpacking import unpacked
from seqto.pareto.limits import ANSWER, constraint_of
from seqto.pareto.lost import lost
from seqto.protocols import Quantizer
from seqto.report.answer import answer, with_basis
from seqto.report.terminal import print_front
from seqto.report.wording import in_words
from seqto.report.writing import PAGE, write_files
from seqto.types import SAMPLES, Front, Model, Ranges, StudyRecord, Trial

if TYPE_CHECKING:
    import onnx
    import onnxruntime
    import pandas

_CPU = "CPUExecutionProvider"
_WIDTH = 100
_OPTION = "option."


@dataclass(frozen=True)
class Rebuild:
    """Builds the models of a study's candidates again."""

    quantizer: Quantizer
    model: Model
    ranges: Ranges

    def __call__(self, trial: Trial) -> Model:
        """Return the model of a trial."""
        return self.quantizer.quantize(self.model, self.ranges, trial.candidate)


@dataclass(frozen=True, repr=False)
class TunedCandidate:
    """One candidate with its figures and its model.

    Figures that were not measured are None: `accuracy` needs labels, and a failed candidate has no
    figures; its `failure` says why.
    """

    index: int
    """Its number in the study."""
    loss: float | None
    """The accuracy loss against the float model, a fraction in [0, 1]."""
    loss_interval: tuple[float, float] | None
    """The 95 % confidence interval of the loss."""
    size_bytes: float | None
    size_ratio: float | None
    """The share of the original file's size."""
    latency_ms: float | None
    accuracy: float | None
    accuracy_drop: float | None
    precisions: Mapping[str, str]
    """The precision of each layer, by its name."""
    excluded: tuple[str, ...]
    """The layers that are left in float32."""
    scheme: str
    """How its layers are quantized, if the quantization has several schemes."""
    on_front: bool
    aliases: tuple[str, ...]
    """The names under which it is recommended."""
    state: str
    failure: str
    run_id: str | None
    """Its MLflow run."""
    metrics: Mapping[str, float] = field(repr=False)
    """All measured figures, by the names that MLflow shows."""
    session_options: Mapping[str, str] = field(repr=False)
    """The ONNX Runtime session options that it was measured with, and needs."""
    _trial: Trial = field(repr=False, compare=False)
    _setup: "Setup" = field(repr=False, compare=False)

    def model(self) -> "onnx.ModelProto":
        """Return the ONNX model."""
        return self._model().proto

    def save(self, path: str | Path) -> Path:
        """Write the ONNX model to a file, and return its path."""
        return _saved(self._model, path)

    def unpack(self, path: str | Path) -> Path:
        """Write the ONNX model with its stored weights unpacked, and return the file's path.

        ONNX Runtime decodes coded, int4, int8 and float16 weights whenever it loads a model. Here
        they are plain float ones: the outputs are the same, bit for bit, the file is about as large
        as the float model's, and loads as fast. Weights that run as integers stay integers, and
        rows of tables that are not coded are still unpacked when they are looked up.
        """
        return _saved(lambda: unpacked(self._model()), path)

    def session(self) -> "onnxruntime.InferenceSession":
        """Return an ONNX Runtime session of the model, with the options it was measured with."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._setup.threads
        options.inter_op_num_threads = 1
        for name, value in self.session_options.items():
            options.add_session_config_entry(name, value)
        provider = (self._setup.provider, self._setup.provider_options)
        return open_session(self._model(), options, [provider])

    def _model(self) -> Model:
        if self.failure or not self.metrics:
            raise StudyError(f"candidate {self.index} has no model: {self.failure or self.state}.")
        return self._setup.rebuild(self._trial)

    def __hash__(self) -> int:
        return hash((self.index, self.run_id, self._trial.candidate))

    def __repr__(self) -> str:
        named = f" ({', '.join(self.aliases)})" if self.aliases else ""
        return f"<candidate {self}{named}>"

    def __str__(self) -> str:
        offer = in_words(self.metrics, self._setup.baseline, self._setup.metric)
        return f"#{self.index}: {self.failure or offer or self.state}"


def _saved(make: Callable[[], Model], path: str | Path) -> Path:
    """Write a model to a file; it is made only if there can be one."""
    path = Path(path).expanduser()
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: give the path of the file, {path}/small.onnx.")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_model(make(), path)
    return path


@dataclass(frozen=True)
class Setup:
    """What the candidates of a result have in common."""

    rebuild: Callable[[Trial], Model]
    baseline: Mapping[str, float]
    metric: str
    facts: Mapping[str, str]
    """How the device describes itself."""

    @property
    def threads(self) -> int:
        """The number of threads per inference."""
        return int(self.facts.get("threads", "1"))

    @property
    def provider(self) -> str:
        """The execution provider, if ONNX Runtime ran the candidates."""
        return self.facts.get("provider", _CPU)

    @property
    def provider_options(self) -> dict[str, str]:
        """The options of the execution provider."""
        return {
            name.removeprefix(_OPTION): value
            for name, value in self.facts.items()
            if name.startswith(_OPTION)
        }

    def candidate(self, trial: Trial, recorded: bool, front: Front | None = None) -> TunedCandidate:
        """Return a trial in the form that users see."""
        metrics = dict(trial.metrics)
        low, high = (metrics.get(f"accuracy_loss_{end}") for end in ("low", "high"))
        members = front.members if front else ()
        return TunedCandidate(
            index=trial.index,
            loss=metrics.get("accuracy_loss"),
            loss_interval=None if low is None or high is None else (low, high),
            size_bytes=metrics.get("size_bytes"),
            size_ratio=metrics.get("size_ratio"),
            latency_ms=metrics.get("latency_ms"),
            accuracy=metrics.get("accuracy"),
            accuracy_drop=metrics.get("accuracy_drop"),
            precisions=dict(trial.candidate.precisions),
            excluded=trial.candidate.excluded,
            scheme=trial.candidate.scheme,
            on_front=any(each.id == trial.id for each in members),
            aliases=front.aliases(trial) if front else (),
            state=trial.state.value,
            failure=trial.failure,
            run_id=trial.id if recorded else None,
            metrics=metrics,
            session_options=dict(trial.session),
            _trial=trial,
            _setup=self,
        )


@dataclass(frozen=True)
class Result:
    """What a study found: its front, its recommendations, and all its candidates.

    A notebook displays it as the answer, the front and a picture of it.
    """

    front: tuple[TunedCandidate, ...]
    """The Pareto-optimal candidates, by the first objective."""
    candidates: tuple[TunedCandidate, ...]
    """All candidates, failed ones included, by index."""
    recommended: Mapping[str, TunedCandidate]
    """The recommended candidates, by alias."""
    baseline: Mapping[str, float]
    """The float model's own figures."""
    hypervolume: float
    run_id: str | None
    """The study's MLflow run; None if nothing was recorded."""
    url: str | None
    """The study's page in MLflow."""
    _record: StudyRecord = field(repr=False, compare=False)
    _front: Front = field(repr=False, compare=False)
    _environment: Mapping[str, str] = field(repr=False, compare=False)
    _exclusions: Mapping[str, Any] | None = field(repr=False, compare=False)

    @property
    def best(self) -> TunedCandidate:
        """The answer: the best candidate that meets the limits; without limits, the balanced one.

        Raises ConstraintError if no candidate meets the limits.
        """
        constraint = constraint_of(self._record)
        if constraint.limits() and ANSWER not in self.recommended:
            raise ConstraintError(answer(self._record, self._front))
        return next(iter(self.recommended.values()))

    @property
    def answer(self) -> TunedCandidate | None:
        """The best candidate that meets the limits; None without limits, or if none does."""
        return self.recommended.get(ANSWER)

    @property
    def balanced(self) -> TunedCandidate | None:
        """The smallest that cannot be told from the least lossy one, by a paired test."""
        return self.recommended.get("balanced")

    @property
    def accurate(self) -> TunedCandidate | None:
        """The least lossy one that saves a fifth of the size or more."""
        return self.recommended.get("accurate")

    @property
    def small(self) -> TunedCandidate | None:
        """The member of the front with the smallest file."""
        return self.recommended.get("small")

    @property
    def lost(self) -> tuple[TunedCandidate, ...]:
        """The candidates that nobody measured because their device got lost.

        They say nothing of the candidate, and with them the answer might be another one. The same
        call measures them if the study was recorded.
        """
        missing = {each.id for each in lost(self._record.trials)}
        return tuple(each for each in self.candidates if each._trial.id in missing)

    def to_frame(self) -> "pandas.DataFrame":
        """Return all candidates as a pandas DataFrame, one row per candidate."""
        import pandas

        rows = [
            {
                "index": each.index,
                **each.metrics,
                "on_front": each.on_front,
                "aliases": ", ".join(each.aliases),
                "excluded_count": len(each.excluded),
                "excluded": list(each.excluded),
                "precisions": dict(each.precisions),
                "scheme": each.scheme,
                "state": each.state,
                "failure": each.failure,
                "run_id": each.run_id,
            }
            for each in self.candidates
        ]
        return pandas.DataFrame(rows).set_index("index")

    def report(self, folder: str | Path | None = None) -> Path:
        """Write report.html, report.json and the pictures, and return the path of the page.

        Without a folder, they are written into a new temporary one.
        """
        place = Path(folder) if folder else Path(tempfile.mkdtemp(prefix="seqto-report-"))
        place.mkdir(parents=True, exist_ok=True)
        write_files(place, self._record, self._front, self._environment, self._exclusions)
        return place / PAGE

    @property
    def samples(self) -> int | None:
        """How many samples the candidates were evaluated on, if the study recorded that."""
        count = self._record.tags.get(SAMPLES)
        return None if count is None else int(count)

    def __str__(self) -> str:
        stream = io.StringIO()
        # A notebook's console would display it at once.
        console = Console(
            file=stream, width=_WIDTH, color_system=None, force_jupyter=False, force_terminal=False
        )
        print_front(console, self._record, self._front)
        return f"{with_basis(self._record, self._front)}\n\n{stream.getvalue().rstrip()}"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from seqto.report.notebook import result_html

        return result_html(self._record, self._front)

    @classmethod
    def of(
        cls,
        record: StudyRecord,
        front: Front,
        rebuild: Callable[[Trial], Model],
        environment: Mapping[str, str],
        exclusions: Mapping[str, Any] | None,
        url: str | None,
    ) -> "Result":
        """Return what a study found; `url` is None if nothing was recorded."""
        facts = {
            name.removeprefix("seqto.device."): fact
            for name, fact in record.tags.items()
            if name.startswith("seqto.device.")
        }
        metric = record.tags.get("seqto.metric", "top1")
        setup = Setup(rebuild, record.baseline, metric, facts)
        trials = sorted(record.trials, key=lambda trial: trial.index)
        found = {each.id: setup.candidate(each, url is not None, front) for each in trials}
        return cls(
            front=tuple(found[each.id] for each in front.members),
            candidates=tuple(found.values()),
            recommended={each.alias: found[each.trial.id] for each in front.recommended},
            baseline=dict(record.baseline),
            hypervolume=front.hypervolume,
            run_id=record.id if url is not None else None,
            url=url,
            _record=record,
            _front=front,
            _environment=environment,
            _exclusions=exclusions,
        )
