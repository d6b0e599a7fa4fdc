"""Numbers of few bits, several in one word of 32: how a replay keeps observations that are bits or bytes."""

import jax.numpy as jnp
from jax import Array

from greedyac.core.spaces import Box

WIDTHS = {"float32": 32, "uint8": 8, "bool": 1}
"""Bits of a number, by how it is stored."""


def words(box: Box) -> int:
    """How many words the numbers of one vector take."""
    return -(-box.size * WIDTHS[box.stored] // 32)


def pack(numbers: Array, box: Box) -> Array:
    """`numbers: [..., size]` → `[..., words]` of uint32; real numbers stay as they are."""
    if box.stored == "float32":
        return numbers
    shifts, most = _shifts(box), 2 ** WIDTHS[box.stored] - 1
    whole = jnp.clip(jnp.round(numbers / box.unit), 0, most).astype(jnp.uint32)  # none spills into the next
    missing = words(box) * len(shifts) - box.size
    padded = jnp.pad(whole, [(0, 0)] * (whole.ndim - 1) + [(0, missing)])
    return (padded.reshape(*whole.shape[:-1], -1, len(shifts)) << shifts).sum(-1, dtype=jnp.uint32)


def unpack(packed: Array, box: Box) -> Array:
    """The inverse of `pack`, in float32."""
    if box.stored == "float32":
        return packed
    shifts, mask = _shifts(box), jnp.uint32(2 ** WIDTHS[box.stored] - 1)
    whole = (packed[..., None] >> shifts & mask).reshape(*packed.shape[:-1], -1)[..., : box.size]
    return whole.astype(jnp.float32) * box.unit


def _shifts(box: Box) -> Array:
    """Where in a word each of its numbers begins."""
    return jnp.arange(0, 32, WIDTHS[box.stored], dtype=jnp.uint32)
