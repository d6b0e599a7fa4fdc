"""Seeds as texts, such as `0-9,12`."""

import itertools
from collections.abc import Iterable, Sequence

from greedyac.core.counting import plural
from greedyac.core.errors import InputError
from greedyac.core.streams import MAX_SEED
from greedyac.training.config import MAX_SEEDS, check_seeds


def parse_seeds(text: str) -> list[int]:
    """The seeds that a text such as `0-9` or `0,3,5-7` names."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (_is_whole(first) and (_is_whole(last) or not dash)):
            raise InputError(f"seeds {text!r} are not allowed; allowed: whole numbers and ranges, as in 0,3,5-7")
        if dash and int(last) < int(first):
            raise InputError(f"seeds {text!r} are not allowed; the range {part.strip()} runs backwards")
        if int(last or first) > MAX_SEED:
            raise InputError(f"seed = {last or first} is not allowed; allowed: whole number ≥ 0 and ≤ {MAX_SEED}")
        if len(seeds) + int(last or first) - int(first) >= MAX_SEEDS:
            raise InputError(f"seeds {text!r} are too many; allowed: up to {MAX_SEEDS:,}")
        seeds += range(int(first), int(last or first) + 1)
    return check_seeds(seeds)


def seeds_text(seeds: Sequence[int]) -> str:
    """Ascending seeds as `parse_seeds` reads them: `0-9,12`."""
    runs = itertools.groupby(enumerate(seeds), key=lambda pair: pair[1] - pair[0])
    spans = [[seed for _, seed in members] for _, members in runs]
    return ",".join(f"{span[0]}-{span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)


def named_seeds(seeds: Sequence[int]) -> str:
    """Ascending seeds in words: `seed 3`, `seeds 0-9,12`."""
    return f"{plural(len(seeds), 'seed')} {seeds_text(seeds)}"


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 100


def seed_list(seeds: int | str | Iterable[int]) -> list[int]:
    """The seeds that a seed, several, or a text such as `0-9` name."""
    if isinstance(seeds, str):
        return parse_seeds(seeds)
    listed = list(itertools.islice(seeds, MAX_SEEDS + 1)) if isinstance(seeds, Iterable) else [seeds]
    if len(listed) > MAX_SEEDS:
        raise InputError(f"these are too many seeds; allowed: up to {MAX_SEEDS:,}")
    return check_seeds(listed)
