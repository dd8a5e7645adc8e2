# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Communication hooks for DistributedDataParallel and FSDP2."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import torch
import torch.distributed as dist

import spar

from ._eager import Eager
from ._reduction import _FSDP, Reduction, _ToldToPeers, _without_wrappers

Density = float | Callable[[int], float]
Hook = Callable[[Reduction, dist.GradBucket], torch.futures.Future[torch.Tensor]]


def average_hook(state: Reduction, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Averages the gradients of ``bucket`` by ``state``, a :class:`Reduction`: a communication hook of
    ``DistributedDataParallel``.

    In the last bucket of a step, the hook waits for all of them, so that ``backward`` raises the exception of spar with
    its own type, and Ctrl-C is noticed. No overlap is lost: all gradients have been computed by then.
    """
    with state.told_to_peers():
        state.check_ranks()
        future = state.start(bucket.parameters(), bucket.buffer())
    if bucket.is_last():
        state.end_step()
    return future


def ok_topk(
    comm: spar.Communicator, density: Density = 0.01, *, store: str | None = None, **options: Any
) -> tuple[Reduction, Hook]:
    """Ok-Topk with error feedback: about the ``density`` largest part of the entries of each bucket (Li and Hoefler,
    PPoPP 2022).

    Args:
        comm (spar.Communicator): the ranks.
        density: above 0 and at most 1, or a function of the step that returns it.
        store (str): how entries are encoded, such as ``"coded"`` or ``"coded:bf16"``.
        options: those of :class:`Reduction`.

    Returns:
        the state and the hook, for ``model.register_comm_hook(*...)``.
    """
    return Reduction(comm, _by_density("ok_topk", density, store), **options), average_hook


def topk(
    comm: spar.Communicator, density: Density = 0.01, *, store: str | None = None, **options: Any
) -> tuple[Reduction, Hook]:
    """The largest entries of each rank, summed by an allgather, with error feedback. As :func:`ok_topk` otherwise."""
    return Reduction(comm, _by_density("topka", density, store), **options), average_hook


def two_shot(comm: spar.Communicator, bits: int = 8, **options: Any) -> tuple[Reduction, Hook]:
    """All values in ``bits`` bits (2, 4 or 8; QSGD, Alistarh et al., NIPS 2017), by the schedule ``two_shot``.

    ``options`` are those of :class:`Reduction`; returns as :func:`ok_topk`. Raises ``ValueError`` for other ``bits``.
    """
    if bits not in (2, 4, 8):
        raise ValueError(f"bits is {bits}; expected 2, 4 or 8")
    return compressed(comm, f"two_shot+qsgd:{bits}", **options)


def compressed(
    comm: spar.Communicator, algorithm: object = "ring+qsgd:8", *, feedback: bool = False, **options: Any
) -> tuple[Reduction, Hook]:
    """Any composition, such as ``"ring+bf16"``, without error feedback by default.

    ``options`` are those of :class:`Reduction`; returns as :func:`ok_topk`.
    """
    return Reduction(comm, algorithm, feedback=feedback, **options), average_hook


def eager(comm: spar.Communicator, participation: str = "majority", **options: Any) -> tuple[Eager, Hook]:
    """Steps that do not wait for late ranks, whose gradients are part of a later step (eager-SGD, Li et al., PPoPP
    2020).

    ``participation`` and ``options`` are those of :class:`Eager`, whose ``finish`` ends the training; returns as
    :func:`ok_topk`.
    """
    return Eager(comm, participation, **options), average_hook


def register_fsdp(model: torch.nn.Module, state: Reduction) -> None:
    """Averages the gradient shards of ``model`` over the ranks of ``state.comm`` after each reduce-scatter.

    ``model`` is sharded by ``fully_shard`` over a mesh of one dimension, within a host for example; ``state.comm`` has
    the ranks that hold the same shard. The step of ``state`` counts backward passes. Residuals belong to the modules.

    Args:
        model (torch.nn.Module): the module, of which each submodule of the type ``FSDPModule`` gets the hook.
        state (Reduction): such as the first result of :func:`ok_topk`. ``exclude`` gets keys, which are the names
            of modules after ``"fsdp:"``.

    Raises:
        ValueError: no module is an ``FSDPModule``.
    """
    from torch.distributed.fsdp import FSDPModule

    seen = set()
    modules = [(name, module) for name, module in model.named_modules() if isinstance(module, FSDPModule)]
    if not modules:
        raise ValueError("no module of the model is an FSDPModule; call fully_shard first")
    for name, module in modules:
        module.set_all_reduce_hook(functools.partial(_average_shard, state, seen, _FSDP + _without_wrappers(name)))


class ReduceScatter:
    """The reduce-scatter of FSDP2 over the ranks of ``comm``, for ``FSDPModule.set_custom_reduce_scatter``: without
    loss, and on the host.

    Args:
        comm (spar.Communicator): the ranks of the mesh, in its order.
    """

    def __init__(self, comm: spar.Communicator):
        self._comm = comm

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Returns a new tensor of ``size``, ``dtype`` and ``device``: the memory of a call."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Reduces ``input_tensor``, whose values it overwrites, and leaves the block of this rank in
        ``output_tensor``. Waits. ``op`` is ``ReduceOp.SUM`` or ``ReduceOp.AVG``."""
        if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            raise ValueError(f"the operation is {op}; expected ReduceOp.SUM or ReduceOp.AVG")
        if (group.rank(), group.size()) != (self._comm.rank, self._comm.size):
            raise ValueError(
                f"this rank is {group.rank()} of the {group.size()} ranks of the mesh, but {self._comm.rank} of the "
                f"{self._comm.size} of the communicator"
            )
        host = input_tensor.view(-1).to(
            device="cpu", dtype=torch.float32 if input_tensor.dtype is torch.bfloat16 else input_tensor.dtype
        )
        with _ToldToPeers(self._comm):
            block = self._comm.reduce_scatter(host.numpy(), "sum" if op == dist.ReduceOp.SUM else "average")
        output_tensor.view(-1).copy_(torch.from_numpy(block))


def _average_shard(state, seen, key, shard):
    if key in seen:  # the first module of the next backward pass
        seen.clear()
        state.step += 1
    seen.add(key)
    with state.told_to_peers():
        state.start([key], shard.view(-1), [shard.numel()])
    state.wait()


def _by_density(system, density, store):
    part = f"+{store}" if store else ""

    def text(step):
        share = density(step) if callable(density) else density
        if not 0 < share <= 1:
            raise ValueError(f"density is {share}; expected a number above 0 and at most 1")
        return f"{system}:{numpy.format_float_positional(share)}{part}"

    if not callable(density):
        text(0)  # an invalid density raises here, not in the first step
    return text
