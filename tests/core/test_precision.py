"""Runs with `jax_enable_x64` give the same numbers as without: all is computed in float32."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import hashlib, pathlib, sys
import gymnasium, jax, jax.numpy as jnp, numpy as np
import greedyac
from greedyac.agents import make_agent
from greedyac.envs import make_world
from greedyac.training.blocks import make_lanes

folder = pathlib.Path(sys.argv[1])
print("64 bits:", jax.config.jax_enable_x64, file=sys.stderr)

def show(name, *trees):
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(jax.device_get(trees)):
        digest.update(f"{np.asarray(leaf).dtype}".encode() + np.ascontiguousarray(leaf).tobytes())
    print(name, digest.hexdigest())

small = {"hidden": (4,), "batch_size": 2, "replay_capacity": 50}
for agent, env, more in (
    ("greedy-ac", "Pendulum-CA", {"normalise_observations": True}),
    ("vanilla-ac", "Acrobot-DA", {"warm_up_steps": 3}),
    ("sac", "MinAtar-Freeway", {"automatic_entropy": True}),
    ("sac", "Pendulum-v1", {"updates_per_step": 2, "normalise_rewards": True}),
):
    lanes = make_lanes([make_agent(agent, small | more)], make_world(env), [3], 20)
    lanes.advance(20)
    lanes.evaluate(1)
    show(f"{agent} on {env}", lanes.state.agent, lanes.state.curve, lanes.state.scales, lanes.evaluations)
    lanes.close()

class Double(gymnasium.Env):  # which needs the 64 bits that its user asked for
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, *, seed=None, options=None):
        self.kind = str(jnp.ones(1).dtype)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        assert str(jnp.ones(1).dtype) == self.kind == ("float64" if jax.config.jax_enable_x64 else "float32")
        return self.observation_space.low, 0.0, False, True, {}

model = greedyac.GreedyAC(Double(), **small).learn(10)
model.save(folder / "model.safetensors", everything=True)
loaded = greedyac.load(folder / "model.safetensors", env=Double).learn(10)
show("model", model.learn(10).policy.state, loaded.policy.state, model.predict([0.5, 0.5]), loaded.evaluate(1).returns)
trained = greedyac.train("sac", "Acrobot-CA", steps=20, seeds=[0, 1], **small)  # in other processes
show("train", [policy.state for policy in trained.policies], trained.policies[0].predict([0.0] * 4, False))

env = gymnasium.make("greedyac/MinAtar-Breakout-v0")
show("Gymnasium", env.reset(seed=3)[0], *(env.step(1)[:2] for _ in range(5)))

from greedyac.ccem.illustration import Illustration, gaussian_updates
show("illustration", gaussian_updates(lambda a: -a * a, -1.0, 2.0, Illustration(), 3, 0)._asdict())
scale = jnp.asarray(np.float64(2))
found = greedyac.ccem.maximize(lambda x, a: -scale * (a - x) ** 2, [0.1, 0.5], -1.0, 1.0, steps=5)
show("maximize", found.actions, found.values, found.predict([0.3]))
"""


def numbers(folder: Path, **environment: str) -> tuple[str, str]:
    call = [sys.executable, "-c", SCRIPT, str(folder)]
    done = subprocess.run(call, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.slow
def test_64_bits_change_nothing_but_a_users_own_code(tmp_path: Path) -> None:
    plain, _ = numbers(tmp_path, JAX_ENABLE_X64="0")
    wide, said = numbers(tmp_path, JAX_ENABLE_X64="1")
    assert "64 bits: True" in said
    assert len(plain.splitlines()) == 9
    assert wide == plain
