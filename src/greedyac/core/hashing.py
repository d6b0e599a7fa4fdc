"""Names that are made of what they stand for."""

import hashlib
import json
from typing import Any


def canonical(values: dict[str, Any]) -> str:
    """JSON with sorted keys and no spaces: one text for equal values."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


def short_hash(text: str) -> str:
    """The beginning of the SHA-256 of a text: what names runs, settings, chunks and studies."""
    return hashlib.sha256(text.encode()).hexdigest()[:20]
