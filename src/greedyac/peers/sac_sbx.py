"""SAC of SBX on Gymnasium's Pendulum: one run, one update per step."""

import gymnasium
from measured import arguments, steps_per_second, tell
from sbx import SAC

WARM_UP, CHUNK = 500, 100


def main() -> None:
    """Measure it."""
    seconds = arguments(__doc__).seconds
    model = SAC(
        "MlpPolicy",
        gymnasium.make("Pendulum-v1", disable_env_checker=True),
        batch_size=32,
        buffer_size=100_000,
        train_freq=1,
        gradient_steps=1,
        policy_delay=1,
        ent_coef=1e-3,
        policy_kwargs={"net_arch": [64, 64]},
        seed=0,
    )
    model.learn(WARM_UP)

    def train() -> int:
        model.learn(CHUNK, reset_num_timesteps=False)
        return CHUNK

    tell(steps_per_second(seconds, train), ("sbx-rl", "jax", "gymnasium"))


if __name__ == "__main__":
    main()
