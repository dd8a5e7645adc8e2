# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How processes that another library has brought together meet for a communicator of spar."""

import base64
import contextlib
import ctypes
import datetime
import os
import secrets
import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any

from . import _spar
from ._errors import InvalidArgumentError

_calls: Counter[str] = Counter()  # for each group of torch, how many communicators were made


def handle_from_torch(group_or_store: Any, rank: int | None, size: int | None) -> int:
    import torch.distributed as dist

    if hasattr(group_or_store, "compare_set"):
        store = group_or_store
        if rank is None or size is None:
            raise InvalidArgumentError("a store does not know the ranks; pass rank and size")
    else:
        if not dist.is_initialized():
            raise InvalidArgumentError("torch has no process group; call torch.distributed.init_process_group before")
        group = group_or_store if group_or_store is not None else dist.group.WORLD
        rank = dist.get_rank(group)
        if rank < 0:
            raise InvalidArgumentError("this process is no rank of the group; call from_torch only on its ranks")
        size = dist.get_world_size(group)
        _calls[group.group_name] += 1
        prefix = f"spar/{group.group_name}/{_calls[group.group_name]}"
        store = dist.PrefixStore(prefix, dist.distributed_c10d._get_default_store())

    def put(key: str, value: bytes) -> bytes:  # the store takes text only
        return base64.b64decode(store.compare_set(key, "", base64.b64encode(value).decode()))

    def wait(key: str, seconds: float) -> bytes | None:
        try:
            store.wait([key], datetime.timedelta(seconds=max(seconds, 0.001)))
        except dist.DistStoreError:
            return None
        return base64.b64decode(store.get(key))

    return _spar.handle_from_store(put, wait, rank, size)


def handle_from_mpi4py(comm: Any) -> int:
    hosts = comm.allgather(socket.gethostname())
    meeting = None
    if comm.rank == 0:
        with socket.socket() as probe:
            probe.bind(("", 0))
            port = probe.getsockname()[1]
        meeting = {
            "SPAR_ADDR": hosts[0] if len(set(hosts)) > 1 else "127.0.0.1",
            "SPAR_PORT": str(port),
            "SPAR_JOB": secrets.token_hex(8),
            "SPAR_SECRET": secrets.token_hex(16) if _has_libcrypto() else "",
        }
    # An empty variable counts as one that is not set.
    place = {"RANK": str(comm.rank), "WORLD_SIZE": str(comm.size), "LOCAL_WORLD_SIZE": ""}
    with _environment(comm.bcast(meeting) | place):
        return _spar.handle_from_environment()


def _has_libcrypto() -> bool:
    for name in "libcrypto.so.3", "libcrypto.so.1.1", "libcrypto.so":
        with contextlib.suppress(OSError):
            return bool(ctypes.CDLL(name))
    return False


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    try:
        os.environ.update(variables)
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
