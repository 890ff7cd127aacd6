"""The declared state of a program: which fields its sessions' documents have, and how they are checked."""

import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache
from inspect import getattr_static
from typing import Any

from pydantic import BaseModel, RootModel, ValidationError

from tenuto.codec import JSON, dumps, encode
from tenuto.errors import InvalidInput, NotJson, StateInvalid, StateMigrationError, TenutoError
from tenuto.migration import Migrate, MigrationRegistry
from tenuto.plain_data import difference, steps
from tenuto.quote import quote
from tenuto.runtime.session.frozen_value import thawed
from tenuto.writing.error_record import text_of

_log = logging.getLogger("tenuto.runtime")

_RESERVED = "messages"

_REFUSED = "nothing of it was written"
_STORED = "it is stored so: set it by an action, or migrate it to another `schema_version`"


class StateShape:
    """What a program declares with `state=`: a model, the version it is stored under, and the migrations to it.

    A document may have fields that the model lacks; they are kept, and reported once. Nothing else reads them.
    """

    def __init__(self, model: type[BaseModel], migrations: Mapping[tuple[str, str], Migrate] | None = None) -> None:
        _check_model(model)
        self.model: Any = model
        self.fields = frozenset(model.model_fields)
        self.made_fields = frozenset(n for n, info in model.model_fields.items() if info.default_factory is not None)
        self.version: str = version_of(model)
        self.migrations = MigrationRegistry("session")
        for pair, migrate in (migrations or {}).items():
            if not (isinstance(pair, tuple) and len(pair) == 2):
                raise InvalidInput(f"`migrations` maps pairs of versions to functions, got the key {quote(pair)}.")
            self.migrations.add(*pair, migrate)
        self.migrations.check(self.version)
        self._reported: set[str] = set()

    def load(self, document: Mapping[str, JSON], whose: str = "the session") -> Any:
        """Return the model that a document has; raise `StateInvalid`."""
        if unnamed := self.unnamed(document) - self._reported:
            self._reported |= unnamed
            _log.warning(
                "%s has fields that %s does not declare: %s. They are kept unchanged.",
                whose,
                self.model.__name__,
                ", ".join(sorted(unnamed)),
            )
        return self.read(document)

    def read(self, document: Mapping[str, JSON]) -> Any:
        """Return the model that a document has, and report nothing; raise `StateInvalid`."""
        return self._read({name: value for name, value in document.items() if name in self.fields}, _STORED)

    def unnamed(self, document: Mapping[str, JSON]) -> set[str]:
        """Return the fields of a document that the model does not declare."""
        return {name for name in document if name not in self.fields}

    def changed(
        self, before: Any, document: Mapping[str, JSON], given: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Any]]:
        """Return the model with these fields set, and what of its document differs; raise `StateInvalid`.

        What is returned equals what a later load of the document returns; fields that did not change keep their values.
        """
        self.check_declared(given)
        plain = {name: thawed(value) for name, value in given.items()}
        values = self._checked({**vars(before), **plain})
        names = {n for n, v in vars(values).items() if n in plain or not _equal(v, vars(before).get(n))}
        data = self.dump(values, names)
        after = self._read({n: v for n, v in document.items() if n in self.fields} | data)
        for name in names:
            if lost := difference(vars(values)[name], vars(after).get(name), f"state.{name}"):
                raise StateInvalid(lost[1], path=lost[0])
        vars(after).update({name: vars(before)[name] for name in self.fields - names})
        return after, data

    def check_declared(self, names: Mapping[str, Any]) -> None:
        """Refuse fields that the model does not declare."""
        if unknown := sorted(map(str, self.unnamed(names))):
            known = ", ".join(sorted(self.fields)) or "no field"
            raise StateInvalid(
                f"state.{unknown[0]} is not a field of {self.model.__name__}, which declares {known}.",
                path=f"state.{unknown[0]}",
            )

    def seeded(self, fields: Mapping[str, Any]) -> dict[str, JSON]:
        """Return the whole document of a new session: these fields, and the defaults of the others."""
        self.check_declared(fields)
        values = self._checked({name: thawed(value) for name, value in fields.items()})
        data = self.dump(values, self.fields)
        back = self._read(data)
        for name in self.fields:
            if lost := difference(vars(values)[name], vars(back).get(name), f"state.{name}"):
                raise StateInvalid(lost[1], path=lost[0])
        return data

    def blank(self) -> dict[str, JSON]:
        """Return the defaults of the fields that have one."""
        infos = self.model.model_fields
        return self.dump(self.model.model_construct(), {n for n, info in infos.items() if not info.is_required()})

    def settled(self, before: Mapping[str, JSON], after: Mapping[str, JSON]) -> dict[str, JSON]:
        """Return a document that others than the program have changed, in the form the program stores.

        Raise `StateInvalid` if it does not fit, or has a new field that the model does not declare.
        """
        self.check_declared({name: value for name, value in after.items() if name not in before})
        data = self.dump(self._read({n: v for n, v in after.items() if n in self.fields}), self.fields & after.keys())
        return {name: value if data.get(name, value) == value else data[name] for name, value in after.items()}

    def lacking(self, document: Mapping[str, JSON]) -> dict[str, JSON]:
        """Return the fields that a document lacks and whose default is another one at each load, with one of them."""
        lacks = self.made_fields - document.keys()
        return self.dump(self.load(document), lacks) if lacks else {}

    def whole(self, document: Mapping[str, JSON]) -> dict[str, JSON]:
        """Return a document with every field in the form the program stores, and the defaults of those it lacks."""
        read = self._read({name: value for name, value in document.items() if name in self.fields})
        return {**document, **self.dump(read, self.fields)}

    def migrate(self, document: Mapping[str, JSON], version: str) -> dict[str, JSON]:
        """Return a document of another version as its migrations leave it; raise `StateMigrationError`."""
        fields = self.migrations.apply(version, self.version, [dict(document)])[0]
        try:
            found = self.whole(fields)
            dumps(found, "state")
        except InvalidInput as error:
            raise StateMigrationError(
                "session_state_migration_failed",
                f"What the migrations from {version!r} to {self.version!r} leave does not fit {self.model.__name__}: "
                f"{error}",
                from_version=version,
                to_version=self.version,
            ) from error
        return {n: document[n] if n in document and document[n] == value else value for n, value in found.items()}

    def check(self, document: Mapping[str, JSON], version: str, logs: Iterable[str] = ()) -> None:
        """Refuse a document, beside these logs, that a turn could not begin with.

        Raise `StateMigrationError` or `StateInvalid`.
        """
        self.check_logs(logs)
        if version == self.version:
            self.load(document)
        else:
            self.migrate(document, version)

    def check_logs(self, logs: Iterable[str]) -> None:
        """Refuse the logs of a session of which one has the name of a field: an earlier program made it a log."""
        if clash := sorted(self.fields.intersection(logs)):
            raise StateMigrationError(
                "session_state_migration_failed",
                f"{clash[0]!r} is a log of the session, but a field of {self.model.__name__}, and cannot be both; give "
                "the field another name, and read the log by turn.log().",
                field=clash[0],
            )

    def check_version(self, version: str) -> None:
        """Refuse a document of a version from which no migration leads to this one."""
        if version != self.version:
            self.migrations.chain(version, self.version)

    def dump(self, values: Any, names: set[str] | frozenset[str]) -> dict[str, JSON]:
        """Return these fields of a model as plain data."""
        if not names:
            return {}
        try:
            found = self._dump(values, set(names))
        except Exception as error:
            path = next((f"state.{name}" for name in sorted(names) if self._fails(values, name)), "state")
            raise _invalid(f"{path} cannot be written as JSON: {text_of(error)}", path) from error
        if absent := sorted(names - found.keys()):
            raise _invalid(f"state.{absent[0]} is left out when the state is written", f"state.{absent[0]}")
        return {name: found[name] for name in names}

    def _dump(self, values: Any, names: set[str]) -> dict[str, JSON]:
        write = self.model.__pydantic_serializer__.to_python
        found: dict[str, JSON] = write(values, mode="json", include=names, by_alias=False, warnings=False)
        return found

    def _fails(self, values: Any, name: str) -> bool:
        try:
            self._dump(values, {name})
        except Exception:
            return True
        return False

    def _checked(self, values: Mapping[str, Any]) -> Any:
        validate = self.model.__pydantic_validator__.validate_python
        return self._valid(lambda: validate(dict(values), by_alias=False, by_name=True))

    def _read(self, document: Mapping[str, JSON], advice: str = _REFUSED) -> Any:
        try:
            text = encode(document)
        except ValueError:
            text = _dumped(document)
        validate = self.model.__pydantic_validator__.validate_json
        return self._valid(lambda: validate(text, by_alias=False, by_name=True), advice)

    def _valid(self, validate: Any, advice: str = _REFUSED) -> Any:
        try:
            return validate()
        except ValidationError as error:
            (first, *more) = error.errors(include_url=False, include_context=False, include_input=False)
            path = f"state{steps(first['loc'])}"
            others = f" ({len(more)} more)" if more else ""
            what = f"{path} does not fit {self.model.__name__}: {first['msg']}{others}"
            raise StateInvalid(f"{what}; {advice}.", path=path) from error
        except TenutoError:
            raise
        except Exception as error:
            what = f"{self.model.__name__} could not check the state: {text_of(error)}"
            raise StateInvalid(f"{what}; {advice}.", path="state") from error


@lru_cache(maxsize=256)
def shape_of(model: type[BaseModel]) -> StateShape:
    """Return the shape of a model without migrations, made once."""
    return StateShape(model)


def version_of(model: Any) -> str:
    """Return the version that states of a model are stored under; a model that names none has the first, `""`."""
    found = getattr_static(model, "schema_version", "")
    if not isinstance(found, str):
        raise InvalidInput(
            f"schema_version of {model.__name__} must be a text of the class: `schema_version: ClassVar[str] = '2'`."
        )
    return found


def _check_model(model: Any) -> None:
    if not (isinstance(model, type) and issubclass(model, BaseModel)) or issubclass(model, RootModel):
        raise InvalidInput(f"`state` must be a Pydantic model with fields, got {quote(model)}.")
    fields = model.model_fields
    if "schema_version" in fields:
        raise InvalidInput(f"schema_version of {model.__name__} is a field; declare it as ClassVar[str].")
    if _RESERVED in fields:
        raise InvalidInput(f"{model.__name__} has a field {_RESERVED!r}, which is the name of the conversation's log.")
    if hidden := [name for name, info in fields.items() if info.exclude]:
        raise InvalidInput(f"{hidden[0]!r} of {model.__name__} is excluded when it is written, so it cannot be kept.")


def _dumped(document: Mapping[str, JSON]) -> str:
    try:
        return dumps(dict(document), "state")
    except NotJson as error:
        raise StateInvalid(error.message, path=error.path) from error


def _invalid(what: str, path: str) -> StateInvalid:
    return StateInvalid(f"{what}; {_REFUSED}.", path=path)


def _equal(one: Any, other: Any) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:  # a class of the user's own may not be comparable
        return False
