"""A study's models in MLflow: logged to candidates' runs, and registered as versions."""

from collections.abc import Mapping, Sequence
from typing import Any

import mlflow.onnx
import onnx
from mlflow.models import Model as MlflowModel
from mlflow.models import ModelSignature, infer_signature
from mlflow.types import Schema, TensorSpec
from onnx import helper

from seqto.graph.sessions import single_session
from seqto.packages import requirement
from seqto.tracking.records import KINDS
from seqto.tracking.runs import Runs
from seqto.tracking.stores import global_uri, quiet, unless_it_exists
from seqto.tracking.ui import described
from seqto.types import Arrays, Model, Recommendation, Trial

_URI = "seqto.model_uri"
_LARGEST_EXAMPLE = 10_000


def log_model(
    runs: Runs, trial: Trial, model: Model, example: Arrays, facts: Mapping[str, str]
) -> None:
    """Log the ONNX model to the trial's run, unless it is already there."""
    run = runs.get(trial.id)
    if _URI in run.data.tags:
        return
    session = {name: value for name, value in facts.items() if name.startswith("session.")}
    # MLflow logs models through its global URI.
    with quiet(), global_uri(runs.store.uri):
        _discard_unfinished(runs, run.info.experiment_id, trial.id)
        # Created here, because MLflow itself would use the active experiment.
        logged = runs.client.create_logged_model(
            run.info.experiment_id, "model", source_run_id=trial.id, params=run.data.params
        )
        info = MlflowModel.log(
            artifact_path=None,
            name="model",
            model_id=logged.model_id,
            flavor=mlflow.onnx,
            run_id=trial.id,
            # A copy, because writing external data empties the model in memory.
            onnx_model=model.copy_proto() if model.is_large else model.proto,
            signature=_signature(model, example),
            input_example=_small(example),
            onnx_execution_providers=[facts.get("provider", "CPUExecutionProvider")],
            onnx_session_options={"extra_session_config": dict(session)} if session else None,
            metadata={"seqto.key": trial.candidate.key, **session},
            pip_requirements=_requirements(),
            save_as_external_data=model.is_large,
        )
    runs.write(trial.id, tags={_URI: info.model_uri})


def _discard_unfinished(runs: Runs, experiment: str, run_id: str) -> None:
    """Remove models that a process which was killed had begun to log to this run."""
    for each in runs.client.search_logged_models([experiment], f"source_run_id = '{run_id}'"):
        runs.client.delete_logged_model(each.model_id)


def register(runs: Runs, study: str, name: str, recommended: Sequence[Recommendation]) -> None:
    """Register each recommended model once, and move the aliases to their versions."""
    with unless_it_exists():
        held = runs.get(study).data.tags
        tags = {kind: held[kind] for kind in KINDS if kind in held}
        runs.client.create_registered_model(name, tags, _about(name))
    for each in recommended:
        number = _version(runs, study, name, each.trial)
        runs.client.set_registered_model_alias(name, each.alias, number)


def _version(runs: Runs, study: str, name: str, trial: Trial) -> str:
    """Return the number of the trial's version; create it if there is none."""
    # Not filtered by name, because a name may contain a quote.
    for each in runs.client.search_model_versions(f"run_id = '{trial.id}'"):
        if each.name == name:
            return str(each.version)
    uri = runs.get(trial.id).data.tags[_URI]
    data = runs.get(study).data.tags.get("seqto.data", "")
    with quiet(), global_uri(runs.store.uri):
        made = runs.client.create_model_version(
            name,
            uri,
            run_id=trial.id,
            model_id=uri.removeprefix("models:/"),
            tags={
                "seqto.key": trial.candidate.key,
                "seqto.study": study,
                "seqto.sha256": trial.model_sha256,
                "seqto.data": data,
            },
            description=described(trial),
        )
    return str(made.version)


def _small(example: Arrays) -> Any:
    """Return the example for MLflow, or None if JSON has no place for it.

    Large ones would take seconds to write, and of an empty cache it would lose the shape.
    """
    sizes = [array.size for array in example.values()]
    if sum(sizes) > _LARGEST_EXAMPLE or not all(sizes):
        return None
    return dict(example) if len(example) > 1 else next(iter(example.values()))


def _signature(model: Model, example: Arrays) -> ModelSignature:
    """Return what the model takes and makes; it runs only if its graph does not tell."""
    graph = model.proto.graph
    takes = [_spec(each) for each in graph.input if each.name in example]
    makes = [_spec(each) for each in graph.output]
    if len(takes) < len(example) or None in (*takes, *makes):
        return _signature_by_running(model, example)
    return ModelSignature(Schema(takes), Schema(makes))


def _spec(value: onnx.ValueInfoProto) -> Any:
    """Return a declared tensor, with -1 where no size is fixed; None if not all is declared."""
    tensor = value.type.tensor_type
    if not tensor.elem_type or not tensor.HasField("shape"):
        return None
    shape = [each.dim_value if each.HasField("dim_value") else -1 for each in tensor.shape.dim]
    return TensorSpec(helper.tensor_dtype_to_np_dtype(tensor.elem_type), shape, value.name)


def _signature_by_running(model: Model, example: Arrays) -> ModelSignature:
    session = single_session(model)
    names = [output.name for output in session.get_outputs()]
    outputs = dict(zip(names, session.run(None, dict(example)), strict=True))
    found = infer_signature(dict(example), outputs)
    return ModelSignature(
        _with_free_axes(found.inputs, session.get_inputs()),
        _with_free_axes(found.outputs, session.get_outputs()),
    )


def _with_free_axes(schema: Any, values: Sequence[Any]) -> Schema:
    """Return the schema with -1 where the graph fixes no size: MLflow refuses any other."""
    sizes = {each.name: each.shape for each in values}
    return Schema([_with_free(each, sizes.get(each.name, ())) for each in schema])


def _with_free(spec: Any, sizes: Sequence[Any]) -> Any:
    if len(sizes) != len(spec.shape):
        return spec
    shape = [
        size if isinstance(graph, int) else -1
        for size, graph in zip(spec.shape, sizes, strict=True)
    ]
    return TensorSpec(spec.type, shape, spec.name)


def _requirements() -> list[str]:
    # Given explicitly, because MLflow would need seconds to infer them.
    return [requirement(name) for name in ("mlflow", "onnx", "onnxruntime", "numpy")]


def _about(name: str) -> str:
    """Return the description of a registered model."""
    return (
        "Selectively quantized by seqto. Its aliases: **balanced** is the smallest whose loss "
        "cannot be told from the least, **accurate** has the least loss of those that save a "
        "fifth, "
        "**small** is the smallest that still works, **champion** was promoted.\n\n"
        f'    mlflow.onnx.load_model("models:/{name}@balanced")'
    )
