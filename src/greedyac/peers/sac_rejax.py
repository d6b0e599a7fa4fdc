"""SAC of rejax on gymnax' Pendulum: any number of runs at once, one update per step, compiled, without evaluation."""

import jax
from measured import arguments, steps_per_second, tell
from rejax import SAC

BATCH, STEPS = 32, 2000


def main() -> None:
    """Measure whole short trainings; the replay has its full size from the start, so later steps cost the same."""
    options = arguments(__doc__, runs=True)
    algorithm = SAC.create(
        env="Pendulum-v1",
        hidden_layer_sizes=(64, 64),
        num_envs=1,
        num_epochs=1,
        batch_size=BATCH,
        buffer_size=100_000,
        fill_buffer=BATCH,
        total_timesteps=STEPS,
        eval_freq=STEPS,
        skip_initial_evaluation=True,
    ).replace(eval_callback=lambda *_: None)
    keys = jax.random.split(jax.random.key(0), options.runs)
    compiled = jax.jit(jax.vmap(algorithm.train)).lower(keys).compile()

    def train() -> int:
        state, _ = compiled(keys)
        state.global_step.block_until_ready()
        return STEPS * options.runs

    train()
    tell(steps_per_second(options.seconds, train), ("rejax", "jax", "gymnax"))


if __name__ == "__main__":
    main()
