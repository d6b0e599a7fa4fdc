"""Where a study is trained: the options for it, and what they come to."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from greedyac.cli.parser import Parser, whole_number
from greedyac.core.errors import InputError

if TYPE_CHECKING:
    from greedyac.core.machine import Machine
    from greedyac.study.sweep import Engine


class Place(NamedTuple):
    """Where chunks are trained."""

    workers: int
    """Chunks at once, as far as planning goes."""
    engine: "Engine | None" = None
    """None for processes of this machine."""
    machine: "Machine | None" = None
    """That of the workers with the least memory, unless they are on this one."""
    about: str = ""


def add_arguments(parser: Parser) -> None:
    """The options."""
    parser.add_argument(
        "--workers",
        type=whole_number,
        metavar="N",
        help="processes at once, at most, and to plan for (default: one per core; one per thread of a Dask cluster)",
    )
    parser.add_argument(
        "--engine",
        choices=("local", "dask"),
        default="local",
        help="where to train: this machine (default), or a Dask cluster (docs/cluster.md)",
    )
    parser.add_argument(
        "--address",
        metavar="A",
        help="with --engine dask: its scheduler, as tcp://host:8786, tls://host:8786 or host:8786, or the file that "
        "`dask scheduler --scheduler-file` wrote (default: a cluster of this machine, for the time of the sweep)",
    )
    parser.add_argument(
        "--publish",
        choices=("workers", "client"),
        default="workers",
        help="with --engine dask: who writes to the store: the workers (default), or this process, if they can't",
    )


@contextmanager
def place(options: Any, say: Callable[[str], None], is_needed: Callable[[], bool]) -> Iterator[Place]:
    """What the options come to, for as long as the block lasts. No cluster is looked for if none is needed."""
    from greedyac.api.train import worker_count

    if options.engine == "local":
        for name, used in (
            ("--address", options.address is not None),
            ("--publish client", options.publish == "client"),
        ):
            if used:
                raise InputError(f"{name} is not allowed here; allowed: together with --engine dask")
        yield Place(worker_count(options.workers))
        return
    if options.dry_run:
        raise InputError(
            "--dry-run is not allowed with --engine dask: it measures this machine; allowed: without --engine"
        )
    if not is_needed():
        yield Place(options.workers or 1)
        return
    try:
        from greedyac.execution.dask import connect
        from greedyac.execution.dask.engine import DaskEngine
    except ModuleNotFoundError as error:
        raise InputError(f"--engine dask needs the package {error.name!r}: pip install 'greedyac[cluster]'") from None
    given = options.address is not None
    at = connect.existing(options.address, say) if given else connect.local(worker_count(options.workers))
    with at as cluster:
        engine = DaskEngine(cluster.address, options.publish == "client", options.workers)
        dashboard = f", dashboard {cluster.dashboard}" if cluster.dashboard else ""
        about = f"Dask cluster {cluster.address}{dashboard}"
        yield Place(options.workers or cluster.workers, engine.train_chunks, cluster.machine, about)
