"""Models from MLflow: from its registry, or from a run."""

import tempfile
from dataclasses import field
from pathlib import Path
from typing import Annotated

import yaml
from mlflow.artifacts import download_artifacts
from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import ModelError
from seqto.graph.load import first_line, load_model
from seqto.tracking.stores import global_uri, quiet, store_uri
from seqto.types import Model


@dataclass(config=ConfigDict(extra="forbid"), kw_only=True)
class RegistryModel:
    """The ONNX model at an MLflow URI, named after the URI unless `name` is given."""

    uri: Annotated[str, Field(pattern=r"^(models|runs):/[^/]+(/.*)?$")]
    name: Annotated[str, BeforeValidator(lambda name: name or "")] = field(
        default="", compare=False
    )
    tracking_uri: str | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self.name = self.name or _name_of(self.uri)

    def load(self) -> Model:
        """Return the model in memory."""
        with tempfile.TemporaryDirectory(prefix="seqto-") as folder:
            return load_model(_onnx_file(self._downloaded(folder), self.uri), self.name)

    def _downloaded(self, folder: str) -> Path:
        store = store_uri(self.tracking_uri)
        try:
            # MLflow resolves aliases through its global URI.
            with quiet(), global_uri(store):
                found = download_artifacts(
                    artifact_uri=self.uri, dst_path=folder, tracking_uri=store
                )
        except Exception as error:  # Errors of MLflow, SQLAlchemy or an artifact store.
            raise ModelError(
                f"MLflow at {store} has no {self.uri} ({first_line(error).rstrip('.')}): check "
                "model.uri, such as models:/<name>@<alias> or runs:/<run id>/<path>, and "
                "tracking.uri."
            ) from error
        return Path(found)


def _onnx_file(found: Path, uri: str) -> Path:
    """Return the ONNX file of the download."""
    if found.is_file():
        return found
    description = found / "MLmodel"
    flavors = yaml.safe_load(description.read_text())["flavors"] if description.is_file() else {}
    if "onnx" in flavors:
        return found / str(flavors["onnx"]["data"])
    files = sorted(found.glob("*.onnx"))
    if len(files) == 1:
        return files[0]
    kinds = f"a model of the flavors {', '.join(flavors)}" if flavors else "a folder"
    raise ModelError(
        f"{uri} is {kinds} with {len(files)} ONNX files: model.uri takes a model logged with "
        "mlflow.onnx, or the path of one .onnx file."
    )


def _name_of(uri: str) -> str:
    """Return the registered model's name, or its name in the run."""
    kind, _, rest = uri.partition(":/")
    if kind == "models":
        return rest.partition("/")[0].partition("@")[0]
    return Path(rest).stem
