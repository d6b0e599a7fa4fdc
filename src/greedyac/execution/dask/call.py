"""Calling what `member` has, in a Dask worker.

Dask pickles what it sends. Here that is two functions of the standard library, the name of ours, and JSON: neither
the scheduler nor a worker has to import greedyac to read it, and one that can't says so instead of dying of it.
"""

import operator
import pkgutil
import uuid
from typing import Any

from distributed import Client, Future


def call(client: Client, worker: str, function: str, *texts: str) -> "Future[Any]":
    """The future of a function of `member`, called with texts in that worker and no other."""
    key = f"greedyac-{function}-{uuid.uuid4().hex}"
    task = (operator.call, (pkgutil.resolve_name, f"greedyac.execution.dask.member:{function}"), *texts)
    return client.get({key: task}, key, workers=[worker], allow_other_workers=False, sync=False)
