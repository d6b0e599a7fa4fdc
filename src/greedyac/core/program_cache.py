"""Compiled programs on disk, so that a program is compiled once on a machine. Nothing here imports JAX.

They are machine code: their folder is only for its user, and each one is checked before it is used. Nothing that can
happen to a file or a disk is an error: what can't be read is compiled again, what can't be written is not kept.
"""

import hashlib
import os
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from greedyac.core.atomic import all_left_behind, write_atomically
from greedyac.core.processor import instructions, processor

MAX_BYTES = 10**9
"""Of all programs together, those of other versions included."""
SUFFIX = ".program"
_DIGEST_BYTES = 32


def cache_folder() -> Path | None:
    """Where this machine's user keeps caches: `GREEDYAC_CACHE`, or what is usual on the system; None for nowhere."""
    given = os.environ.get("GREEDYAC_CACHE")
    try:
        if given is None:
            return _usual_folder() / "greedyac"
        return Path(given).expanduser().absolute() if given.strip() else None
    except (RuntimeError, OSError):  # a home that is not known, a working folder that is gone
        return None


def _usual_folder() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    if sys.platform == "darwin":
        return Path.home() / "Library/Caches"
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return given if given.is_absolute() else Path.home() / ".cache"


class ProgramCache:
    """Programs by JAX's keys, in a folder for this Python, jaxlib and processor, and what XLA may use of it.

    Processes with other numbers of threads share them: it changes how their work is cut, and no bit of what they give.

    Its `get` and `put` are those that JAX asks of a cache.
    """

    def __init__(self, folder: Path, limit: str, max_bytes: int = MAX_BYTES):
        self._programs, self._max_bytes = folder / "programs", max_bytes
        python = ".".join(map(str, sys.version_info[:2]))  # on which JAX's compression depends
        made_for = f"Python {python}\njaxlib {version('jaxlib')}\n{processor()}\n{instructions()}\n{limit}"
        self._made_for = hashlib.sha256(made_for.encode()).digest()
        self._path = self._programs / f"jaxlib-{version('jaxlib')}-{self._made_for.hex()[:12]}"

    def get(self, key: str) -> bytes | None:
        """The program of that key, if it is here and as it was written."""
        path = self._entry(key)
        try:
            content = _read_private(path)
        except OSError:
            return None
        with suppress(OSError):
            os.utime(path)
        digest, program = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        return program if digest == self._digest(key, program) else None

    def put(self, key: str, value: bytes) -> None:
        """Keep the program of that key, and no more in all than there is room for."""
        with suppress(OSError):
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_private(self._path.stat()):
                self._evict(self._max_bytes - _DIGEST_BYTES - len(value))
                write_atomically(self._entry(key), self._digest(key, value) + value, durable=False)

    def _entry(self, key: str) -> Path:
        return self._path / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}{SUFFIX}"

    def _digest(self, key: str, program: bytes) -> bytes:
        """Of the program, and of what it is for: one that was put in another's place is not used."""
        return hashlib.sha256(b"\0".join([self._made_for, key.encode(), program])).digest()

    def _evict(self, most: int) -> None:
        """Remove those that were not used for longest, and what was left half-written, of other versions, too."""
        for path in (path for folder in self._programs.glob("jaxlib-*") for path in all_left_behind(folder)):
            with suppress(OSError):
                path.unlink()
        found = []
        for path in self._programs.glob(f"jaxlib-*/*{SUFFIX}"):
            with suppress(FileNotFoundError):  # another process has removed it
                about = path.stat()
                found.append((about.st_mtime_ns, about.st_size, path))
        excess = sum(size for _, size, _ in found) - most
        for _, size, path in sorted(found):
            if excess <= 0:
                break
            with suppress(OSError):
                path.unlink()
                excess -= size


def _is_private(folder: os.stat_result) -> bool:
    """Whether nobody else could have written machine code there; on Windows the folder's place sees to that."""
    return os.name == "nt" or (folder.st_uid in (os.getuid(), 0) and not folder.st_mode & 0o022)


def _read_private(path: Path) -> bytes:
    """A file of a private folder, which nobody can put another folder in the place of meanwhile."""
    if os.name == "nt":
        return path.read_bytes()
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        if not _is_private(os.fstat(folder)):
            raise PermissionError
        with open(os.open(path.name, os.O_RDONLY, dir_fd=folder), "rb") as file:  # noqa: PTH123
            return file.read()
    finally:
        os.close(folder)
