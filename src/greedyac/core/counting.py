"""Numbers of things, in words."""


def plural(number: int, word: str) -> str:
    """`run` of one, `runs` of any other number."""
    return word if number == 1 else f"{word}{'es' if word.endswith('s') else 's'}"


def counted(number: int, word: str) -> str:
    """`1 run`, `2,000 runs`."""
    return f"{number:,} {plural(number, word)}"
