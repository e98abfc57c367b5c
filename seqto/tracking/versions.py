"""The versions of a registered model in MLflow, and their aliases."""

import datetime
import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass

from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.tracking.context.registry import resolve_tags

from seqto.errors import TrackingError, nearest
from seqto.tracking.leases import ModelClaims, Pace, held
from seqto.tracking.mlflow import MlflowTracker
from seqto.tracking.outages import in_one_go
from seqto.tracking.patience import is_outage
from seqto.tracking.registry import RegistryModel
from seqto.types import Candidate, Model, Trial, TrialState, Version

_ROLLED_BACK = "seqto.rolled_back"

_WAITING = Pace(grace=120.0)
"""Aliases are moved in a moment, so nobody is refused because another one is at it."""


@dataclass(frozen=True)
class MlflowVersions:
    """The registered model of this name in the tracker's MLflow."""

    tracker: MlflowTracker
    name: str

    @property
    def store(self) -> str:
        """The URI of the store."""
        return self.tracker.store

    @in_one_go
    def all(self) -> tuple[Version, ...]:
        """Return the versions, the newest first; raise TrackingError if the model is unknown."""
        client = self.tracker.client
        try:
            held = client.get_registered_model(self.name).aliases
        except MlflowException as error:
            if is_outage(error):
                raise
            raise self._unknown() from error
        aliases: dict[str, list[str]] = {}
        for alias, number in sorted(held.items()):
            aliases.setdefault(str(number), []).append(alias)
        return tuple(
            self._version(each, tuple(aliases.get(str(each.version), ()))) for each in self._found()
        )

    def load(self, version: Version) -> Model:
        """Return the version's model in memory."""
        uri = f"models:/{self.name}/{version.number}"
        return RegistryModel(uri=uri, name=self.name, tracking_uri=self.tracker.store).load()

    def alone(self) -> AbstractContextManager[object]:
        """Let nobody else move aliases within the context; wait for who is about to."""
        return held(ModelClaims(self.tracker.client, self.name), _WAITING)

    @in_one_go
    def move(self, aliases: Mapping[str, Version]) -> None:
        """Point these aliases at these versions."""
        for alias, version in aliases.items():
            self.tracker.client.set_registered_model_alias(self.name, alias, version.number)

    @in_one_go
    def note(self, version: Version, event: str, why: str, figures: Mapping[str, object]) -> None:
        """Record an event of a version: who, when, why and the figures, as tags and in words."""
        user = resolve_tags().get("mlflow.user", "unknown")
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        tags = {
            f"seqto.{event}": now,
            f"seqto.{event}_by": user,
            f"seqto.{event}_why": why,
            f"seqto.{event}_figures": json.dumps(figures, sort_keys=True),
        }
        client = self.tracker.client
        for name, value in tags.items():
            client.set_model_version_tag(self.name, version.number, name, value)
        held = client.get_model_version(self.name, version.number).description or ""
        line = f"{event.replace('_', ' ').capitalize()} by {user} on {now[:10]}: {why}."
        client.update_model_version(self.name, version.number, f"{held}\n\n{line}".strip())

    @in_one_go
    def forgive(self, version: Version) -> None:
        """Allow a version that was rolled back to be promoted again."""
        if version.rolled_back:
            self.tracker.client.delete_model_version_tag(self.name, version.number, _ROLLED_BACK)

    def _found(self) -> Iterator[ModelVersion]:
        # A filter cannot contain a name with a quote.
        condition = "" if "'" in self.name else f"name = '{self.name}'"
        token = None
        while True:
            page = self.tracker.client.search_model_versions(
                condition, order_by=["version_number DESC"], page_token=token
            )
            yield from (each for each in page if each.name == self.name)
            token = page.token
            if not token:
                return

    def _version(self, held: ModelVersion, aliases: tuple[str, ...]) -> Version:
        tags = held.tags
        # Without this tag seqto did not register it: it can be champion, but not a challenger.
        run = held.run_id if "seqto.study" in tags else None
        nobody = Trial("", 0, Candidate(()), TrialState.COMPLETE)
        return Version(
            name=self.name,
            number=str(held.version),
            trial=self.tracker.trial(run) if run else nobody,
            aliases=aliases,
            data=tags.get("seqto.data", ""),
            rolled_back=_ROLLED_BACK in tags,
        )

    def _unknown(self) -> TrackingError:
        known = [each.name for each in self.tracker.client.search_registered_models()]
        own = [name for name in known if name.startswith("seqto-")]
        there = f"It has {', '.join(own)}" if own else "It has no model from seqto"
        return TrackingError(
            f"MLflow at {self.tracker.store} has no registered model {self.name!r}"
            f"{nearest(self.name, own)}. {there}; run a study first, or check model=, device=, "
            "quantization= and tracking.uri."
        )
