"""Numbers of things: one of them is not called several."""

import greedyac
from greedyac.core.counting import counted
from greedyac.execution.seeds import named_seeds


def test_numbers_and_their_words() -> None:
    assert [counted(number, "run") for number in (0, 1, 2, 2000)] == ["0 runs", "1 run", "2 runs", "2,000 runs"]
    assert [counted(number, "process") for number in (1, 2)] == ["1 process", "2 processes"]
    assert [named_seeds(seeds) for seeds in ([4], [0, 1, 2, 7])] == ["seed 4", "seeds 0-2,7"]


def test_a_model_after_one_step() -> None:
    model = greedyac.Random("Pendulum-CA").learn(1)
    assert repr(model).endswith("after 1 step")
    assert repr(model.policy).endswith("after 1 step)")
    assert repr(model.learn(1)).endswith("after 2 steps")
