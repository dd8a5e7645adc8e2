# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs a function on several processes, each a rank of torch.distributed (gloo) and of spar (UCX)."""

import multiprocessing
import os
import pickle
import secrets
import signal
import socket
import tempfile
import time
import traceback

import torch
import torch.distributed as dist

import spar

SECONDS = 60  # until a rank counts as hanging


class Ended:
    """How a rank ended: by a result, by an error, or by a signal."""

    def __init__(self, result=None, error=None, kind=None, trace="", code=0):
        self.result, self.error, self.kind, self.trace, self.code = result, error, kind, trace, code


def run(n, function, *arguments, interrupt=None, may_fail=False):
    """Calls function(comm, *arguments) on `n` processes; returns their results by rank, or an `Ended` each if they
    `may_fail`. `interrupt` is a rank that gets SIGINT when it has called `ready()`. Fails if a rank hangs."""
    context = multiprocessing.get_context("fork")  # imports torch once
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        settings = {
            "WORLD_SIZE": str(n),
            "SPAR_ADDR": "127.0.0.1",
            "SPAR_PORT": str(probe.getsockname()[1]),
            "SPAR_SECRET": secrets.token_hex(16),
            "SPAR_DEADLINE": "30",
            "READY": os.path.join(folder, "ready"),
        }
        probe.close()
        pipes = [context.Pipe(duplex=False) for _ in range(n)]
        processes = [
            context.Process(target=_rank, args=(rank, n, folder, settings, pipes[rank][1], function, arguments))
            for rank in range(n)
        ]
        for process in processes:
            process.start()
        for _, sender in pipes:
            sender.close()
        end = time.monotonic() + SECONDS
        if interrupt is not None:
            while not os.path.exists(settings["READY"]) and time.monotonic() < end:
                time.sleep(0.01)
            time.sleep(0.5)  # until the rank waits in its call
            os.kill(processes[interrupt].pid, signal.SIGINT)
        hanging = []
        ended = []
        for rank, (process, (receiver, _)) in enumerate(zip(processes, pipes)):
            arrived = None
            try:
                if receiver.poll(max(0, end - time.monotonic())):
                    arrived = pickle.loads(receiver.recv_bytes())
            except EOFError:
                pass
            process.join(max(1, end - time.monotonic()))
            if process.is_alive():
                hanging.append(rank)
                process.kill()
                process.join()
            ended.append(arrived or Ended(code=process.exitcode))
    if hanging:
        raise AssertionError(f"the ranks {hanging} hang; the others: {[(of.kind, of.error) for of in ended]}")
    if may_fail:
        return ended
    for rank, of in enumerate(ended):
        if of.kind or of.code:
            raise AssertionError(f"rank {rank} failed: {of.trace or of.code}")
    return [of.result for of in ended]


def ready():
    """Says that this rank can be interrupted."""
    open(os.environ["READY"], "w").close()


def _rank(rank, n, folder, settings, pipe, function, arguments):
    os.environ.update(settings, RANK=str(rank))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=n)
        with spar.Communicator.from_env() as comm:
            ended = Ended(result=function(comm, *arguments))
    except BaseException as error:
        ended = Ended(error=str(error), kind=type(error).__name__, trace=traceback.format_exc())
    pipe.send_bytes(pickle.dumps(ended))  # tensors by value
    os._exit(0)  # gloo would wait for ranks that are dead
