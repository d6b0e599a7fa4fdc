"""Hyperparameters as dataclass fields: each has a default, a range, one line of help, and is traced or static.

A *traced* field is an input of the compiled program, so that runs side by side may differ in it; a *static* one fixes
the program. Studies can sweep both.
Agents and environments declare their options with `traced` and `static`; the command line, validation,
hashing and JSON all read those same fields. Nothing here knows JAX.
"""

import dataclasses
import math
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, TypeVar, cast

import numpy as np

from greedyac.core.errors import InputError, unknown_name

T = TypeVar("T")
FLOAT32_TINY, FLOAT32_MAX = 1.2e-38, 3.4e38
Value = float | int | bool | str | tuple[int, ...]

_NEVER = object()
"""The `absent` value of a field that was there from the start: it always enters the hash."""


@dataclass(frozen=True)
class Hyper:
    """What is known of one hyperparameter (or environment option)."""

    name: str
    type: Any
    default: Value
    kind: Literal["traced", "static"]
    help: str
    choices: tuple[str, ...] = ()
    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    below: float | None = None
    empty: bool = False
    """Whether a list may have no elements."""
    absent: object = _NEVER

    @property
    def option(self) -> str:
        """The name on the command line, `--critic-step-size`."""
        return "--" + self.name.replace("_", "-")

    @property
    def range(self) -> str:
        """The allowed values in words: `(0, 1]`, `> 0`, `score | exact`."""
        if self.choices:
            return " | ".join(self.choices)
        if self.type is bool:
            return "true | false"
        low = "" if self.above is self.at_least is None else _bound(self.above, self.at_least, ">", "≥")
        high = "" if self.below is self.at_most is None else _bound(self.below, self.at_most, "<", "≤")
        words = " and ".join(part for part in (low, high) if part)
        if self.type == tuple[int, ...]:
            return f"whole numbers {words}, as in {show(self.default)}"
        return f"whole number {words}".rstrip() if self.type is int else words or "any number"

    def to_json(self) -> dict[str, Any]:
        """All that a user may want to know, as plain JSON values."""
        about = {"default": self.default, "allowed": self.range, "meaning": self.help}
        return {"name": self.name, "kind": self.kind, **about}

    def check(self, value: object) -> Value:
        """`value` in the field's own type, or an `InputError` that names the value and what is allowed."""
        if self.choices:
            if not isinstance(value, str) or value not in self.choices:
                raise unknown_name(self.name, str(value), self.choices)
            return value
        if self.type is bool:
            if not isinstance(value, bool):
                raise self._refused(value)
            return value
        if self.type == tuple[int, ...]:
            return self._check_numbers(value)
        return self._check_number(value)

    def parse(self, text: str) -> Value:
        """The value that `text` from a command line stands for."""
        if self.choices:
            return self.check(text)
        if self.type is bool:
            words = {"true": True, "false": False}
            if text.casefold() not in words:
                raise self._complaint(show(text))
            return words[text.casefold()]
        try:
            if self.type == tuple[int, ...]:
                return self.check(tuple(int(part) for part in text.split(",")))
            return self.check(int(text) if self.type is int else float(text))
        except InputError:
            raise
        except ValueError:
            raise self._complaint(show(text)) from None

    def _check_number(self, value: object) -> float | int:
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
            raise self._refused(value)
        try:
            number = float(value) + 0.0  # −0 becomes 0: one setting, one id
        except OverflowError:
            raise self._refused(value) from None
        if self.type is int and not (number.is_integer() and abs(number) < 2**53):
            raise self._refused(value)
        inside = (
            math.isfinite(number)
            and (self.above is None or number > self.above)
            and (self.at_least is None or number >= self.at_least)
            and (self.at_most is None or number <= self.at_most)
            and (self.below is None or number < self.below)
        )
        if not inside:
            raise self._refused(value)
        if self.kind == "traced" and number and not FLOAT32_TINY <= abs(number) <= FLOAT32_MAX:
            raise InputError(f"{self.name} = {show(value)} is not allowed: beyond the range of float32")
        return int(number) if self.type is int else number

    def _check_numbers(self, value: object) -> tuple[int, ...]:
        if not isinstance(value, (tuple, list)) or not (value or self.empty):
            raise self._refused(value)
        try:
            element = dataclasses.replace(self, type=int)
            return tuple(int(element._check_number(part)) for part in value)
        except InputError:
            raise self._refused(value) from None

    def _refused(self, value: object) -> InputError:
        """A complaint that shows a text, or a list where none should be, as such."""
        plain = not isinstance(value, (str, list, tuple, dict)) or (value and self.type == tuple[int, ...])
        return self._complaint(show(value) if plain and not isinstance(value, str) else repr(value))

    def _complaint(self, shown: str) -> InputError:
        return InputError(f"{self.name} = {shown} is not allowed; allowed: {self.range}")


def _bound(strict: float | None, loose: float | None, strict_sign: str, loose_sign: str) -> str:
    return f"{strict_sign} {show(strict)}" if strict is not None else f"{loose_sign} {show(loose)}"


def show(value: object) -> str:
    """A value as a user would write it on the command line."""
    if isinstance(value, (tuple, list)):
        return ",".join(show(part) for part in value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if float(f"{value:g}") == value else repr(float(value))
    return repr(value) if isinstance(value, str) and not value.isprintable() else str(value)


def check_int(name: str, value: object, low: int, high: int) -> int:
    """`value` as a whole number from `low` to `high`, or an `InputError`."""
    number = Hyper(name, int, low, "static", "", at_least=low, at_most=high).check(value)
    assert isinstance(number, int)
    return number


def traced(default: float, *, help: str, absent: object = _NEVER, **limits: float) -> Any:
    """A dataclass field that may differ between the lanes of one compiled program."""
    return _field(default, "traced", help, absent, (), limits)


def static(default: Value, *, help: str, choices: Sequence[str] = (), absent: object = _NEVER, **limits: float) -> Any:
    """A dataclass field that fixes the compiled program."""
    return _field(default, "static", help, absent, choices, limits)


def _field(
    default: Value, kind: str, help: str, absent: object, choices: Sequence[str], limits: Mapping[str, float]
) -> Any:
    about = {"kind": kind, "help": help, "absent": absent, "choices": tuple(choices), **limits}
    return dataclasses.field(default=default, metadata={"hyper": about})


def hypers_of(owner: type[Any]) -> Mapping[str, Hyper]:
    """The declared hyperparameters of a dataclass, in order."""
    return _declared(owner)  # type: ignore[arg-type]  # every class is hashable


@cache
def _declared(owner: type[Any]) -> Mapping[str, Hyper]:
    types = typing.get_type_hints(owner)
    declared = {
        field.name: Hyper(field.name, types[field.name], cast(Value, field.default), **field.metadata["hyper"])
        for field in dataclasses.fields(owner)
        if "hyper" in field.metadata
    }
    return MappingProxyType(declared)


def checked(owner: type[T], kind: str, values: Mapping[str, object], **fixed: object) -> T:
    """An `owner` made of `values`, each known and in range. `kind` says in errors what they are."""
    return owner(**fixed, **check_values(owner, kind, values))


def check_values(owner: type[Any], kind: str, values: Mapping[str, object]) -> dict[str, Any]:
    """These values of an owner's hyperparameters, each by itself known and in range."""
    known = hypers_of(owner)
    for name in values:
        if name not in known:
            raise unknown_name(kind, name, known)
    return {name: known[name].check(value) for name, value in values.items()}


def values_of(owner: Any) -> dict[str, Value]:
    """The hyperparameters of an agent or the options of an environment, ready for JSON."""
    return {name: getattr(owner, name) for name in hypers_of(type(owner))}


def hashed_values(owner: Any) -> dict[str, Value]:
    """`values_of` without the fields that equal their permanent "absent" value.

    So an option that is added later keeps the old ids, and a changed default never aliases.
    """
    known = hypers_of(type(owner))
    return {name: value for name, value in values_of(owner).items() if value != known[name].absent}


def traced_names(owner: Any) -> Iterator[str]:
    """The names of the traced fields of an agent."""
    return (name for name, hyper in hypers_of(type(owner)).items() if hyper.kind == "traced")


def stack(lanes: Sequence[Any]) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """The traced fields of the lanes' agents, each as one float32 array `[lanes]`."""
    return {name: np.array([getattr(agent, name) for agent in lanes], np.float32) for name in traced_names(lanes[0])}
