"""Work for several processes, handed out little by little."""

import multiprocessing
import os
import threading
from collections import deque
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Callable, Deque, Iterable, Iterator, Optional, TypeVar

from icefall_attn.errors import UserError

Job = TypeVar("Job")
Result = TypeVar("Result")


@contextmanager
def processes(nj: int, initialize: Callable[[], None]) -> Iterator[Optional[Executor]]:
    """A pool of ``nj`` processes; None for one, which is this one. Each calls ``initialize``.

    Raises:
      UserError: if one of them is killed.
    """
    if nj == 1:
        initialize()
        yield None
        return
    # Processes that are spawned do not inherit torch's threads, which a fork can lock up.
    context = multiprocessing.get_context("spawn")
    executor = ProcessPoolExecutor(nj, context, _start, (initialize,))
    try:
        yield executor
    except BrokenProcessPool:
        raise UserError(
            f"one of the {nj} processes was killed, perhaps for lack of memory; what is finished"
            " is kept: start again, with a smaller --nj"
        )
    finally:
        executor.shutdown(cancel_futures=True)


def map_in_order(
    function: Callable[[Job], Result],
    jobs: Iterable[Job],
    nj: int,
    executor: Optional[Executor],
) -> Iterator[Result]:
    """The results in the order of the jobs, of which only some for each process are read ahead."""
    if executor is None:
        yield from map(function, jobs)
        return
    waiting: Deque[Future] = deque()
    for job in jobs:
        waiting.append(executor.submit(function, job))
        if len(waiting) > 4 * nj:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _start(initialize: Callable[[], None]) -> None:
    parent = multiprocessing.parent_process()

    def end_with_the_parent() -> None:
        # A killed one cannot say that there is no more to do.
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_the_parent, daemon=True).start()
    initialize()
