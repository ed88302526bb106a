"""Runs a program as several processes of one training on this machine.

    icefall-attn-launch --processes 2 icefall-attn-train --config conf/train.yaml --exp-dir exp

Each gets torchrun's environment variables (RANK, WORLD_SIZE, ...) and its share of the cores. What
torchrun does not do: the exit code is the program's own, signals reach all processes and are waited
for, and the message of the process that failed first comes last.
"""

import argparse
import math
import os
import signal
import socket
import subprocess
import sys
import time
from tempfile import TemporaryFile
from typing import IO, Any, Dict, List, NamedTuple, Optional

from icefall_attn.environment import usable_cores
from icefall_attn.errors import LOST, RESUMABLE

LAUNCHED = [sys.executable, "-m", "icefall_attn.bin.launch"]  # this program
GRACE = 10.0  # seconds for the others to end after one has failed
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGINT, signal.SIGHUP)


def main(arguments: Optional[List[str]] = None) -> int:
    """Starts the processes and waits for them; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--processes", type=int, required=True, metavar="N", help="how many"
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="the program and its options"
    )
    options = parser.parse_args(arguments)
    if options.processes < 1:
        parser.error(f"--processes must be 1 or more, not {options.processes}")
    if not options.command:
        parser.error("no program is given")
    children = []
    for rank, variables in enumerate(environments(options.processes)):
        # The first shows its progress; of the others only errors are of interest, at the end.
        errors = TemporaryFile("w+") if rank > 0 else None
        environ = {**os.environ, **variables}
        process = subprocess.Popen(options.command, env=environ, stderr=errors)
        children.append(Child(rank, process, errors))
    for number in SIGNALS:
        signal.signal(number, lambda n, _: [c.process.send_signal(n) for c in children])
    failed = wait(children)
    return 0 if failed is None else tell(failed)


class Child(NamedTuple):
    """One process, and where its errors go if not to the console."""

    rank: int
    process: "subprocess.Popen[Any]"
    errors: Optional[IO[str]]


def environments(processes: int) -> List[Dict[str, str]]:
    """What each process has in its environment beside the usual."""
    threads = int(os.environ.get("OMP_NUM_THREADS") or usable_cores())
    shared = {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": str(max(1, threads // processes)),
    }
    return [
        {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        for rank in range(processes)
    ]


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait(children: List[Child]) -> Optional[Child]:
    """Waits for all; once one has failed, the others get a moment before they are killed.

    Returns:
      The first that failed by itself, and not for want of another; None if all went well.
    """
    running, failed = list(children), []
    deadline = math.inf
    while running:
        for child in list(running):
            code = child.process.poll()
            if code is None:
                continue
            running.remove(child)
            if code != 0:
                failed.append(child)
            if code not in (0, RESUMABLE, 128 + signal.SIGINT):
                deadline = min(deadline, time.monotonic() + GRACE)
        if time.monotonic() > deadline:
            for child in running:
                child.process.kill()
            break
        time.sleep(0.05)
    for child in running:
        child.process.wait()
    return min(
        failed, key=lambda c: (c.process.returncode == LOST, c.rank), default=None
    )


def tell(failed: Child) -> int:
    """Says what happened to a process, if it did not say so itself; returns the exit code."""
    code = failed.process.returncode
    if code < 0:
        name = signal.Signals(-code).name
        reason = ", perhaps for want of memory" if name == "SIGKILL" else ""
        print(
            f"error: process {failed.rank} of the training was killed by {name}{reason};"
            " run the same command again to go on",
            file=sys.stderr,
        )
        return 128 - code
    if failed.errors is not None:
        failed.errors.seek(0)
        sys.stderr.write(failed.errors.read())
    return code


def cli() -> None:
    """Entry point of ``icefall-attn-launch``."""
    sys.exit(main())


if __name__ == "__main__":
    cli()
