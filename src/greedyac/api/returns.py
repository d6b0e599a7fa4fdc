"""Why runs have no returns, in words: only episodes that ended have one."""

from collections.abc import Sequence

from greedyac.core.counting import counted
from greedyac.envs import ENVS


def missing_returns(env: str, steps: int, returns: Sequence[tuple[float | None, float | None]]) -> list[str]:
    """A line if runs lack returns, and one if they lack only the final ones.

    `returns` are the average and the final return of each run that was trained to the end.
    """
    none = sum(average is None for average, _ in returns)
    late = sum(average is not None and final is None for average, final in returns)
    length, limit = counted(steps, "step"), "a time limit (max_episode_steps or gymnasium.wrappers.TimeLimit)"
    if env in ENVS:
        limit = "a shorter time limit (its option time_limit)"
    instead = f"train for longer, or give the environment {limit}"

    def of_all(count: int) -> str:
        return "" if count == len(returns) else f" in {count:,} of {counted(len(returns), 'run')}"

    lines = []
    if none:
        lines.append(f"no episode ended within {length}{of_all(none)}, so there are no returns; {instead}")
    if late:
        last = f"in the last tenth of {length}{of_all(late)}"
        lines.append(f"no episode ended {last}, so there is no final return; {instead}")
    return lines
