"""What a result was made with: versions of software, the processor."""

import platform
from contextlib import suppress
from functools import cache
from importlib import metadata

import jax

from greedyac.core import xla
from greedyac.core.processor import processor

ENGINE_DISTRIBUTIONS = {"mujoco": "mujoco-core"}
"""What has the engine itself, where several distributions share a package."""


@cache
def versions() -> dict[str, str]:
    """The software that a result depends on."""
    packages = ("greedyac", "jax", "jaxlib", "equinox", "optax", "numpy")
    return {"python": platform.python_version(), **{name: metadata.version(name) for name in packages}}


def software(packages: frozenset[str]) -> dict[str, str]:
    """All that a result depends on whose environment needs these packages, the processor aside."""
    return versions() | package_versions(packages) | xla.deviation()


@cache
def package_versions(packages: frozenset[str]) -> dict[str, str]:
    """The versions of packages, as far as they are known, by the names under which they were installed."""
    known = {name for package in packages - {"greedyac", ""} if (name := _distribution(package))}
    return {name: metadata.version(name) for name in sorted(known)}


def _distribution(package: str) -> str | None:
    """The name under which a package was installed: mostly its own; else looked for among all, which takes a second."""
    for name in (ENGINE_DISTRIBUTIONS.get(package), package):
        with suppress(metadata.PackageNotFoundError):
            if name is not None:
                return metadata.distribution(name).metadata["Name"]
    return next(iter(_distributions().get(package, [])), None)


_distributions = cache(metadata.packages_distributions)


def on_accelerator() -> bool:
    """Whether JAX computes on something else than the processor."""
    return jax.default_backend() != "cpu"


def cpu() -> str:
    """The type of processor, or of the accelerator that is used in its place."""
    return f"{jax.default_backend()} {jax.devices()[0].device_kind}" if on_accelerator() else processor()
