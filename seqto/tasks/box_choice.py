"""Which layout a detector's outputs have, told by users or by the outputs' shapes."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from seqto.errors import ConfigError, ModelError
from seqto.tasks.box_layouts import (
    ROWS,
    Activation,
    AnchorLayout,
    BoxLayout,
    Column,
    PairLayout,
    RowLayout,
    SeparateLayout,
    YoloLayout,
)
from seqto.tasks.boxes import BoxFormat
from seqto.tasks.output_forms import VARIES, Form, forms_of, listed, the_one
from seqto.types import Outputs

LayoutName = Literal["yolo", "boxes_scores", "nms"]

MOST_ROWS = 1000
"""More rows than this are anchors, not boxes that are left after suppression."""

_WORDS = {
    "boxes": ("box", "loc", "coord"),
    "scores": ("score", "conf", "prob", "logit"),
    "labels": ("label", "class", "cls", "categor"),
    "counts": ("num", "count"),
}
"""What exporters call the outputs."""

_USED = {
    "yolo": {"boxes_output", "channels", "objectness", "classes", "activation"},
    "boxes_scores": {"boxes_output", "scores_output", "activation"},
    "nms": {"boxes_output", "scores_output", "labels_output", "counts_output", "columns"},
}
"""The keys that a layout understands, beside the format of its boxes."""


@dataclass(kw_only=True, config=ConfigDict(extra="forbid"))
class LayoutSettings:
    """What users may say of a detector's outputs; what they do not say is guessed."""

    layout: LayoutName | None = None
    boxes_output: str | None = None
    scores_output: str | None = None
    labels_output: str | None = None
    counts_output: str | None = None
    columns: Sequence[Column] | None = None
    channels: Literal["first", "last"] | None = None
    objectness: bool | None = None
    classes: Annotated[int, Field(ge=1)] | None = None
    activation: Activation | None = None
    box_format: BoxFormat | None = None


def layout_of(settings: LayoutSettings, outputs: Outputs) -> AnchorLayout | BoxLayout:
    """Return the layout of these outputs, or refuse them."""
    forms = forms_of(outputs)
    name = settings.layout or _guess(forms)
    _refuse_unused(settings, name)
    if name == "yolo":
        return _yolo(settings, forms)
    if name == "boxes_scores":
        return _pair(settings, forms)
    if _row_forms(forms) and not settings.scores_output:
        return _rows(settings, forms)
    return _separate(settings, forms)


def _refuse_unused(settings: LayoutSettings, name: LayoutName) -> None:
    for key in sorted(set.union(*_USED.values()) - _USED[name]):
        if getattr(settings, key) is not None:
            users = " and ".join(each for each, keys in _USED.items() if key in keys)
            raise ConfigError(
                f"task.{key} says nothing of task.layout={name}, the layout of these outputs; it "
                f"is for {users}. Leave it out, or choose task.layout."
            )


def _guess(forms: Sequence[Form]) -> LayoutName:
    if len(forms) == 1:
        (form,) = forms
        if _is_rows(form) and form.shape[0] <= MOST_ROWS:
            return "nms"
        if _is_matrix(form) and min(form.shape) >= 5:
            return "yolo"
    partners = [_partners(boxes, forms) for boxes in forms if _is_boxes(boxes)]
    if any(len([form for form in found if len(form.shape) == 1]) >= 2 for found in partners):
        return "nms"
    if any(partners):
        return "boxes_scores"
    raise ModelError(
        f"the model's outputs do not tell how its boxes are written: {listed(forms)}. Choose "
        "task.layout=yolo, boxes_scores or nms, write task.decode=mypkg.module:function, or choose "
        "another task=."
    )


def _yolo(settings: LayoutSettings, forms: Sequence[Form]) -> YoloLayout:
    fitting = [form for form in forms if _is_matrix(form) and min(form.shape) >= 5]
    form = the_one("boxes and scores", "task.boxes_output", settings.boxes_output, fitting, forms)
    if form not in fitting:
        raise _misfit(form, "yolo", "one table of anchors and channels, four for the box")
    first = _channels_first(settings, form)
    channels = form.shape[0 if first else 1]
    objectness = settings.objectness
    if objectness is None:
        # YOLOv8 and later write channels first and have none; v5 and v7 the other way round.
        objectness = not first and channels > 5
    return YoloLayout(
        output=form.name,
        channels_first=first,
        objectness=objectness,
        classes=_class_count(settings, channels - (5 if objectness else 4), form),
        box_format=settings.box_format or "cxcywh",
        activation=settings.activation,
    )


def _channels_first(settings: LayoutSettings, form: Form) -> bool:
    if settings.channels:
        return settings.channels == "first"
    if form.shape[0] == form.shape[1]:
        raise ModelError(
            f"the model's output {form}, as many channels as anchors. Say which axis has the "
            "channels, with task.channels=first or last, or choose another task=."
        )
    return form.shape[0] < form.shape[1]


def _class_count(settings: LayoutSettings, most: int, form: Form) -> int:
    count = settings.classes or most
    if not 1 <= count <= most:
        raise ConfigError(
            f"the model's output {form}, with room for {max(most, 0)} classes behind the box, not "
            f"for {max(count, 1)}: change task.classes, task.objectness or task.channels."
        )
    return count


def _pair(settings: LayoutSettings, forms: Sequence[Form]) -> PairLayout:
    boxes = _boxes_form(settings, forms)
    fitting = _partners(boxes, forms)
    scores = _found("scores", settings.scores_output, fitting, forms)
    if scores not in fitting:
        raise _misfit(scores, "boxes_scores", f"a row of scores for each box of {boxes.name!r}")
    count = scores.shape[1] if len(scores.shape) == 2 else 1
    return PairLayout(
        boxes=boxes.name,
        scores=scores.name,
        classes=count,
        box_format=settings.box_format or "xyxy",
        activation=settings.activation,
    )


def _rows(settings: LayoutSettings, forms: Sequence[Form]) -> RowLayout:
    form = the_one("boxes", "task.boxes_output", settings.boxes_output, _row_forms(forms), forms)
    if not _is_rows(form):
        raise _misfit(form, "nms", "rows of 6 or 7 columns")
    columns = tuple(settings.columns or ROWS[form.shape[1]])
    missing = set(ROWS[6]) - set(columns)
    if missing or len(columns) != form.shape[1]:
        raise ConfigError(
            f"task.columns={list(columns)} does not fit: the model's output {form}. Name each of "
            f"its {form.shape[1]} columns, with {', '.join(ROWS[6])} among them."
        )
    return RowLayout(form.name, columns, settings.box_format or "xyxy")


def _separate(settings: LayoutSettings, forms: Sequence[Form]) -> SeparateLayout:
    boxes = _boxes_form(settings, forms)
    vectors = [form for form in _partners(boxes, forms) if len(form.shape) == 1]
    labels = _labels_form(settings, vectors, forms)
    rest = [form for form in vectors if form != labels]
    scores = _found("scores", settings.scores_output, rest, forms)
    return SeparateLayout(
        corners=boxes.name,
        scores=scores.name,
        labels=labels.name,
        counts=_counts_name(settings, [form for form in forms if form not in (labels, scores)]),
        box_format=settings.box_format or "xyxy",
    )


def _labels_form(settings: LayoutSettings, vectors: Sequence[Form], forms: Sequence[Form]) -> Form:
    """Return the classes' output: integers among numbers, or called so."""
    integers = [form for form in vectors if form.is_integer]
    fitting = integers if len(integers) == 1 else vectors
    if not settings.labels_output and settings.scores_output:
        fitting = [form for form in fitting if form.name != settings.scores_output]
    return _found("labels", settings.labels_output, fitting, forms)


def _counts_name(settings: LayoutSettings, forms: Sequence[Form]) -> str | None:
    """Return the output that counts a sample's boxes, if there is one."""
    single = [form for form in forms if form.shape in ((), (1,))]
    if settings.counts_output or single:
        return _found("counts", settings.counts_output, single, forms).name
    return None


def _boxes_form(settings: LayoutSettings, forms: Sequence[Form]) -> Form:
    found = _found(
        "boxes", settings.boxes_output, [form for form in forms if _is_boxes(form)], forms
    )
    if not _is_boxes(found):
        raise _misfit(found, settings.layout or "boxes_scores", "four numbers for each box")
    return found


def _found(
    role: Literal["boxes", "scores", "labels", "counts"],
    chosen: str | None,
    fitting: Sequence[Form],
    forms: Sequence[Form],
) -> Form:
    """Return the output with this role by its shape, and where several fit, by its name."""
    called = [form for form in fitting if any(word in form.name.lower() for word in _WORDS[role])]
    only = called if len(fitting) > 1 else fitting
    return the_one(role, f"task.{role}_output", chosen, only, forms)


def _row_forms(forms: Sequence[Form]) -> list[Form]:
    return [form for form in forms if _is_rows(form)]


def _is_rows(form: Form) -> bool:
    return _is_matrix(form) and form.shape[1] in ROWS


def _is_boxes(form: Form) -> bool:
    return len(form.shape) == 2 and form.shape[1] == 4


def _is_matrix(form: Form) -> bool:
    return len(form.shape) == 2 and form.shape[1] != VARIES


def _partners(boxes: Form, forms: Sequence[Form]) -> list[Form]:
    """Return the outputs that have a value, or a row of values, for each of these boxes."""
    return [
        form
        for form in forms
        if form != boxes and len(form.shape) in (1, 2) and form.shape[0] == boxes.shape[0]
    ]


def _misfit(form: Form, layout: str, wanted: str) -> ModelError:
    return ModelError(
        f"the model's output {form}, but task.layout={layout} expects {wanted}. Choose another "
        "task.layout (yolo, boxes_scores, nms), write task.decode=mypkg.module:function, or choose "
        "another task=."
    )
