"""`greedyac play`: watch a trained policy, in a window or as a film."""

from pathlib import Path
from typing import Any

from greedyac.cli.parser import Parser, file, whole_number


def add_arguments(parser: Parser, given: list[str]) -> None:
    """Options of the command."""
    parser.add_argument(
        "checkpoint", metavar="CHECKPOINT", type=Path, help="a file that training wrote, seed-0.safetensors"
    )
    parser.add_argument(
        "--out", type=file, metavar="FILM", help="write a film, .gif or .mp4 (default: show it in a window)"
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="show beside it the critic's values, the policies, their samples and the elite at every step",
    )
    parser.add_argument("--steps", type=whole_number, default=1000, metavar="N", help="at most so many (default 1000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the start state (default 0)")
    parser.add_argument("--stochastic", action="store_true", help="sample actions instead of taking the most likely")


def run(options: Any) -> int:
    """Play one episode."""
    from greedyac.training.checkpoint import load_policy
    from greedyac.training.config import check_seeds
    from greedyac.video.play import drawn_env, frames_per_second, play
    from greedyac.video.record import check_film, show_window, write_film

    [seed] = check_seeds([options.seed])
    if options.out is not None:
        check_film(options.out)
    policy = load_policy(options.checkpoint)
    env = drawn_env(policy)
    fps = frames_per_second(env)
    frames = play(env, policy, seed, options.steps, not options.stochastic, options.explain)
    if options.out is None:
        config = policy.run.config
        show_window(frames, fps, f"{config.agent} on {config.env_label}, seed {policy.run.seed}")
        return 0
    write_film(frames, options.out, fps)
    print(f"written: {options.out}")
    return 0
