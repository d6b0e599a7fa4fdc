"""What a user should know beside the results."""

import sys


def say(message: object) -> None:
    """Write one line to standard error, whatever the message holds, and at once: others may write there, too."""
    sys.stderr.write(f"greedyac: {' '.join(str(message).splitlines())}\n")
    sys.stderr.flush()
