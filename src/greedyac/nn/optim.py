"""How networks learn: a step of Adam, and the moving average of a target network."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
import optax
from jax import Array

Net = TypeVar("Net")


_ADAM = optax.scale_by_adam(b1=0.9, b2=0.999, eps=1e-8)


def init_optimizer(net: Net) -> Any:
    """Adam's moments before the first step."""
    return _ADAM.init(cast(Any, net))


def adam_step(loss: Callable[[Net], Array], net: Net, adam: Any, step_size: float) -> tuple[Net, Any, Array]:
    """One step of Adam downhill: the new network, the new moments, and the loss before the step.

    The step size may be traced, so that lanes can differ in it.
    """
    value, gradient = jax.value_and_grad(loss)(net)
    direction, adam = _ADAM.update(gradient, adam)
    return jax.tree.map(lambda weight, d: weight - step_size * d, net, direction), adam, value


def polyak_update(slow: Net, fast: Net, rate: float) -> Net:
    """(1 − rate)·slow + rate·fast, weight by weight: how target networks move. What else `slow` is, it stays."""
    weights, structure = jax.tree.flatten(slow)
    moved = [(1 - rate) * old + rate * new for old, new in zip(weights, jax.tree.leaves(fast), strict=True)]
    return jax.tree.unflatten(structure, moved)
