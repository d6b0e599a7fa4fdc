"""The built-in environments in Gymnasium's registry, as `greedyac/<name>-v0`. Nothing here imports JAX.

Gymnasium looks for no plugins, so importing greedyac registers them.
"""

import gymnasium

NAMES = tuple(f"{name}-{actions}" for name in ("MountainCar", "Pendulum", "Acrobot") for actions in ("CA", "DA"))
NAMES += ("MinAtar-Breakout", "MinAtar-Freeway")
"""Those of `greedyac.envs.ENVS`."""


def register() -> None:
    """Register what is not yet registered."""
    for name in NAMES:
        if f"greedyac/{name}-v0" not in gymnasium.registry:
            gymnasium.register(
                f"greedyac/{name}-v0", entry_point="greedyac.envs.gym.wrapper:GymnasiumWrapper", kwargs={"name": name}
            )
