"""Several processes of one training, forked from the test's own."""

import multiprocessing
import os
import pickle
import traceback

import torch

from icefall_attn.bin.launch import environments
from icefall_attn.training.group import joined_group

SECONDS = 90


def together(function, size):
    """What ``function(group)`` returns in each of ``size`` processes, whose group is real.

    An exception comes back as itself; a process that is still at work after `SECONDS`, or was
    killed, gives None.
    """
    context = multiprocessing.get_context("fork")
    pipes, processes = [], []
    for variables in environments(size):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_work, args=(function, variables, sender))
        process.start()
        sender.close()
        pipes.append(receiver)
        processes.append(process)
    results = []
    for receiver in pipes:
        try:
            arrived = receiver.poll(SECONDS)
            results.append(pickle.loads(receiver.recv_bytes()) if arrived else None)
        except EOFError:
            results.append(None)
    for process in processes:
        process.kill()
        process.join()
    return results


def _work(function, variables, sender):
    torch.set_num_threads(1)  # those of the parent's pool are not here
    os.environ.update(variables)
    try:
        with joined_group(torch.device("cpu")) as group:
            result = function(group)
    except BaseException as error:
        traceback.print_exc()
        result = error
    sender.send_bytes(pickle.dumps(result))  # by value, also what tensors hold
    sender.close()
    os._exit(0)
