"""The tasks of the monitor: which values it observes, and how files and events name them."""

from __future__ import annotations

from enum import Enum, IntEnum

OPERATIONS = ("norm", "min", "max", "mean", "zeros", "nans")
"""Operations that a configuration may name; shape and dtype are written in addition."""


class Stage(IntEnum):
    """The part of a training step, in the order in which events are sorted."""

    UNKNOWN = -1
    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2


class Task(Enum):
    """A kind of observed value; its value is the first part of the names of its files."""

    PARAMETER_BEFORE = "param_origin"
    FIRST_MOMENT = "exp_avg"
    SECOND_MOMENT = "exp_avg_sq"
    ACTIVATION = "actv"
    ATTENTION = "attention_hook"
    LINEAR = "linear_hook"
    ACTIVATION_GRADIENT = "actv_grad"
    GRADIENT_UNREDUCED = "grad_unreduced"
    GRADIENT_REDUCED = "grad_reduced"
    OTHER = "other"
    PARAMETER_AFTER = "param_updated"

    @property
    def stage(self) -> Stage:
        """The part of a step that the value belongs to."""
        return _STAGES_BY_TASK.get(self, Stage.UNKNOWN)

    @property
    def operations(self) -> tuple[str, ...] | None:
        """The columns of a task with fixed columns; None if the configuration names the columns."""
        return _OPERATIONS_BY_TASK.get(self)

    @property
    def tag(self) -> str:
        """The last part of a tag, such as ``post_grad``, which differs from the name of the files."""
        return _TAGS_BY_TASK.get(self, self.value)


_STAGES_BY_TASK = {
    Task.ACTIVATION: Stage.FORWARD,
    Task.ACTIVATION_GRADIENT: Stage.BACKWARD,
    Task.GRADIENT_UNREDUCED: Stage.BACKWARD,
    Task.GRADIENT_REDUCED: Stage.BACKWARD,
    Task.FIRST_MOMENT: Stage.OPTIMIZER,
    Task.SECOND_MOMENT: Stage.OPTIMIZER,
}
_OPERATIONS_BY_TASK = {Task.ATTENTION: ("entropy", "softmax_max"), Task.LINEAR: ("sr", "kernel_norm")}
_TAGS_BY_TASK = {
    Task.ATTENTION: "qkt",
    Task.LINEAR: "sr",
    Task.GRADIENT_UNREDUCED: "acc_grad",
    Task.GRADIENT_REDUCED: "post_grad",
}
STAGES_BY_TAG = {
    **{task.tag: stage for task, stage in _STAGES_BY_TASK.items()},
    "pre_grad": Stage.BACKWARD,
}
"""The stage of the last part of a tag; ``pre_grad`` is a tag of msprobe for unreduced gradients."""
