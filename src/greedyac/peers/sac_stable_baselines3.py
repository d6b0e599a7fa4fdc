"""SAC of Stable-Baselines3 on Gymnasium's Pendulum: one run, one update per step."""

import gymnasium
import torch
from measured import arguments, steps_per_second, tell
from stable_baselines3 import SAC

WARM_UP, CHUNK = 500, 100


def main() -> None:
    """Measure it."""
    seconds = arguments(__doc__).seconds
    torch.set_num_threads(1)
    model = SAC(
        "MlpPolicy",
        gymnasium.make("Pendulum-v1", disable_env_checker=True),
        batch_size=32,
        buffer_size=100_000,
        train_freq=1,
        gradient_steps=1,
        ent_coef=1e-3,
        policy_kwargs={"net_arch": [64, 64]},
        device="cpu",
        seed=0,
    )
    model.learn(WARM_UP)

    def train() -> int:
        model.learn(CHUNK, reset_num_timesteps=False)
        return CHUNK

    tell(steps_per_second(seconds, train), ("stable-baselines3", "torch", "gymnasium"))


if __name__ == "__main__":
    main()
