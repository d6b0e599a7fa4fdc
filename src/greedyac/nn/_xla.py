"""Products and means in forms that XLA:CPU computes fast, and rounds alike at every width."""

import jax
import jax.numpy as jnp
from jax import Array

LARGE = 2**16
"""Weights of more numbers than this have a gradient of their own."""


def product(x: Array, weight: Array) -> Array:
    """`x: [..., inputs]` times `weight: [inputs, outputs]`."""
    return large_product(x, weight) if weight.size > LARGE else x @ weight


@jax.custom_vjp
def large_product(x: Array, weight: Array) -> Array:
    """With a gradient laid out as the weights are. JAX's is transposed, and XLA would turn all that Adam has."""
    return x @ weight


def _forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ weight, (x, weight)


def _backward(given: tuple[Array, Array], pull: Array) -> tuple[Array, Array]:
    x, weight = given
    return jnp.einsum("...o,io->...i", pull, weight), jnp.einsum("bi,bo->io", _rows(x), _rows(pull))


def _rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


large_product.defvjp(_forward, _backward)


def steady_mean(values: Array) -> Array:
    """The mean over the leading axis, as a matrix product: XLA rounds a reduction differently at different widths."""
    return jnp.full(len(values), 1 / len(values), values.dtype) @ values
