"""Jobs for several processes: in order, not all at once, and a killed process is told."""

import os
import signal

import pytest

from icefall_attn.errors import UserError
from icefall_attn.parallel import map_in_order, processes


def nothing():
    pass


def square(number):
    return number * number


def refuse(number):
    raise UserError(f"not {number}")


def die(number):
    os.kill(os.getpid(), signal.SIGKILL)


def test_one_process_is_this_one():
    called = []
    with processes(1, lambda: called.append(1)) as executor:
        assert executor is None and called == [1]
        assert list(map_in_order(square, range(5), 1, None)) == [0, 1, 4, 9, 16]


def test_results_come_in_order_and_jobs_are_read_as_needed():
    read = []

    def jobs():
        for number in range(100):
            read.append(number)
            yield number

    with processes(2, nothing) as executor:
        results = map_in_order(square, jobs(), 2, executor)
        assert next(results) == 0
        assert len(read) < 15
        assert list(results) == [n * n for n in range(1, 100)]
        with pytest.raises(UserError, match="not 0"):
            next(map_in_order(refuse, range(3), 2, executor))


def test_a_killed_process_is_told():
    with pytest.raises(UserError, match="one of the 2 processes was killed"):
        with processes(2, nothing) as executor:
            list(map_in_order(die, range(3), 2, executor))
