"""The command line: parse, call, print. Importing this imports neither JAX nor anything else that is slow."""

import sys
from collections.abc import Sequence
from contextlib import nullcontext

from greedyac.cli.parser import make_parser
from greedyac.cli.say import say
from greedyac.core.errors import InputError, WorkerError
from greedyac.execution.process import one_ahead


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code is 0, 1 if something failed, 2 on bad input, 130 after Ctrl-C."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    trains = given[:1] in (["train"], ["resume"], ["demo"]) and not {"-h", "--help"} & {*given}
    try:
        with one_ahead() if trains and arguments is None else nullcontext():
            parsed = make_parser(given).parse_args(given)
            return int(parsed.run(parsed))
    except InputError as error:
        return _complain(error, 2)
    except WorkerError as error:
        return _complain(error, 1)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output, as in `greedyac envs | head`, has seen enough
        return 0
    except OSError as error:
        return _complain(error, 1)
    except KeyboardInterrupt:
        say("stopped")
        return 130


def _complain(error: Exception, code: int) -> int:
    say(f"error: {error}")
    return code
