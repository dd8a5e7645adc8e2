# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sparse, compressed and local gradients for PyTorch.

A factory such as :func:`ok_topk` returns a state and a hook, in the order in which
``DistributedDataParallel.register_comm_hook`` takes them::

    comm = spar.Communicator.from_torch()
    model.register_comm_hook(*spar.torch.ok_topk(comm, density=0.01))

The state, a :class:`Reduction`, also serves FSDP2 (:func:`register_fsdp`), programs without DDP
(:meth:`Reduction.attach`) and local steps (:class:`LocalSteps`). docs/guide/torch.md is the guide.
"""

from ._eager import Eager
from ._hooks import ReduceScatter, average_hook, compressed, eager, ok_topk, register_fsdp, topk, two_shot
from ._local_steps import LocalSteps
from ._reduction import Reduction

__all__ = [
    "Eager",
    "LocalSteps",
    "ReduceScatter",
    "Reduction",
    "average_hook",
    "compressed",
    "eager",
    "ok_topk",
    "register_fsdp",
    "topk",
    "two_shot",
]
