"""The definition of a session's program, as plain data: every turn rebuilds the registered program from it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from tenuto.codec import JSON
from tenuto.errors import InvalidInput
from tenuto.quote import quote


class HasName(Protocol):
    """Something that is known by a name."""

    @property
    def name(self) -> str:
        """Its name."""
        ...


NamedT = TypeVar("NamedT", bound=HasName)

MOST_TASKS = 20
_TASK_STATUSES = ("pending", "in_progress", "completed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One item of a session's task list; `active_form` is its wording while it is in progress."""

    content: str
    status: str = "pending"
    active_form: str | None = None

    @classmethod
    def given(cls, task: Any) -> "Task":
        """Return a task from a task, its content, or a mapping with its fields."""
        if isinstance(task, Task):
            return task
        if isinstance(task, str):
            return cls(content=task)
        if not isinstance(task, Mapping) or not task.keys() <= {"content", "status", "active_form"}:
            raise InvalidInput(f"A task has `content`, `status` and `active_form`, got {quote(task)}.")
        if "content" not in task:
            raise InvalidInput("A task needs `content`.")
        return cls(**task)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Name and version of the program, and its configuration: prompt, model, tools, tasks.

    The label is shown to people; it defaults to the name.
    """

    name: str
    version: str = "1"
    label: str = ""
    system_prompt: str | None = None
    model: JSON = None
    tools: tuple[str, ...] | None = None
    tasks: tuple[Task, ...] = ()
    options: Mapping[str, JSON] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (_is_text(self.name) and _is_text(self.version)):
            raise InvalidInput("A definition needs the name and the version of its program.")
        if not self.label:
            object.__setattr__(self, "label", self.name)
        if not (_is_text(self.label) and isinstance(self.system_prompt, str | None)):
            raise InvalidInput("The label and the prompt of a definition must be texts.")
        if self.tools is not None:
            object.__setattr__(self, "tools", _names(self.tools))
        object.__setattr__(self, "tasks", tuple(self.tasks))
        check_tasks(self.tasks)

    def changed(self, **changes: Any) -> "Definition":
        """Return a copy of the definition with these parts changed."""
        return replace(self, **changes)

    def offered(self, tools: Iterable[NamedT]) -> list[NamedT]:
        """Return those of these tools that the definition allows, by their names: all of them, if `tools` is None."""
        return [each for each in tools if self.tools is None or each.name in self.tools]

    def record(self) -> JSON:
        """Return the definition as plain data; parts that are not set are left out."""
        found: dict[str, Any] = {"name": self.name, "version": self.version, "label": self.label}
        if self.system_prompt is not None:
            found["system_prompt"] = self.system_prompt
        if self.model is not None:
            found["model"] = self.model
        if self.tools is not None:
            found["tools"] = list(self.tools)
        if self.tasks:
            found["tasks"] = [[task.content, task.status, task.active_form] for task in self.tasks]
        if self.options:
            found["options"] = dict(self.options)
        return found

    @classmethod
    def read(cls, record: Any) -> "Definition | None":
        """Return the definition in a record; None if it is not a definition, since a store does not validate it."""
        try:
            return cls(
                name=record["name"],
                version=record["version"],
                label=record.get("label", ""),
                system_prompt=record.get("system_prompt"),
                model=record.get("model"),
                tools=record.get("tools"),
                tasks=tuple(Task(content=c, status=s, active_form=a) for c, s, a in record.get("tasks", ())),
                options=record.get("options", {}),
            )
        except (InvalidInput, AttributeError, KeyError, TypeError, ValueError):
            return None


def check_tasks(tasks: tuple[Task, ...]) -> None:
    """Refuse a task list that is too long, has an unknown status, or has two tasks in progress."""
    if len(tasks) > MOST_TASKS:
        raise InvalidInput(f"A task list has at most {MOST_TASKS} items, got {len(tasks)}.")
    for task in tasks:
        if not (_is_text(task.content) and isinstance(task.active_form, str | None)):
            raise InvalidInput(f"A task's content must be a text, got {quote(task)}.")
        if task.status not in _TASK_STATUSES:
            raise InvalidInput(
                f"Unknown task status {quote(task.status)}; expected one of {', '.join(_TASK_STATUSES)}."
            )
    if sum(task.status == "in_progress" for task in tasks) > 1:
        raise InvalidInput("Only one task can be in progress.")


def _names(tools: Any) -> tuple[str, ...]:
    if not isinstance(tools, list | tuple) or not all(_is_text(tool) for tool in tools):
        raise InvalidInput(f"The tools of a definition must be a list of names, got {quote(tools)}.")
    return tuple(tools)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
