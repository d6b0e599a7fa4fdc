"""Functions of one action: some with a name, or a formula in `a`."""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from greedyac.core.errors import InputError, unknown_name
from greedyac.core.xla import configured

FUNCTIONS: Mapping[str, str] = {
    "two-peaks": "max(0.7*exp(-((a+0.45)/0.35)**2), exp(-((a-0.5)/0.25)**2))",
    "three-peaks": "max(0.7*exp(-((a+0.7)/0.2)**2), 0.8*exp(-(a/0.3)**2), exp(-((a-0.7)/0.1)**2))",
    "ripples": "cos(12*a) - (a-0.3)**2",
    "needle": "max(0.8-abs(a+0.3), 1-20*abs(a-0.8))",
    "slope": "a",
}
"""For actions from −1 to 1: name → formula."""
_OPERATORS: Mapping[type[Any], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: jnp.divide,
    ast.Pow: jnp.power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
CALLS: Mapping[str, Callable[..., Any]] = {
    name: getattr(jnp, name) for name in ("abs", "cos", "exp", "log", "sin", "sqrt", "tanh")
} | {"max": lambda *values: jnp.stack(values).max(0), "min": lambda *values: jnp.stack(values).min(0)}
_NAMES: Mapping[str, float] = {"pi": float(jnp.pi)}


def function_of(text: str) -> Callable[[Any], Array]:
    """The function that a name or a formula in `a` stands for, over any shape of actions."""
    formula = FUNCTIONS.get(text, text)
    try:
        tree = ast.parse(formula.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise _refused(text) from None
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    if "a" not in names:
        raise _refused(text)

    @configured
    def function(action: Any) -> Array:
        action = jnp.asarray(action)
        return jnp.broadcast_to(jnp.asarray(_value(tree, action, text), jnp.float32), action.shape)

    try:
        function(np.zeros(2, np.float32))  # refuses what it does not know
    except (OverflowError, RecursionError):
        raise _refused(text) from None
    return function


def _value(node: ast.AST, action: Array, text: str) -> Any:
    """The value of one part of a formula."""
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return jnp.float32(number)
        case ast.Name(id="a"):
            return action
        case ast.Name(id=name) if name in _NAMES:
            return jnp.float32(_NAMES[name])
        case ast.UnaryOp(op=op, operand=inner) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(inner, action, text))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, action, text), _value(right, action, text))
        case ast.Call(func=ast.Name(id=name), args=inner, keywords=[]) if name in CALLS and inner:
            return _called(name, [_value(part, action, text) for part in inner], text)
    raise _refused(text)


def _called(name: str, values: list[Any], text: str) -> Any:
    if name in ("max", "min"):
        return CALLS[name](*jnp.broadcast_arrays(*values))
    if len(values) != 1:
        raise _refused(text)
    return CALLS[name](*values)


def _refused(text: str) -> InputError:
    if all(letter.isalpha() or letter in "-_" for letter in text):
        return unknown_name("function", text, [*FUNCTIONS, "or a formula in a"])
    allowed = f"{', '.join(FUNCTIONS)}, or a formula in a with numbers, pi, + - * / **, {', '.join(CALLS)}"
    return InputError(f"function {text[:80]!r} is not allowed; allowed: {allowed}")
