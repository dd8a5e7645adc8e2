# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Eager SGD: averages of gradients that do not wait for late ranks."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

import spar

from ._reduction import Reduction


class Eager(Reduction):
    """A :class:`Reduction` whose steps do not wait for late ranks (eager-SGD, Li et al., PPoPP 2020).

    Each bucket is a ``spar.Partial``. The average of a step is that of the gradients of the ranks that were in time,
    and of earlier ones that missed their steps, divided by the number of all ranks. All ranks get the same average in
    the same step, so equal parameters stay equal, and nothing is lost. All ranks wait for each other in a step with new
    buckets: the first two of DDP, and the next one after :meth:`state_dict` and :meth:`load_state_dict`.

    All ranks make equally many steps, and end the training by :meth:`finish`.

    Args:
        comm (spar.Communicator): the ranks. All of them make the same calls in the same order.
        participation (str): which ranks a step waits for, as ``spar.Partial`` takes it.
        algorithm: the composition by which the gradients are summed, or a function of the step, as of
            :class:`Reduction`. What its selector leaves out is lost.
        tau (int): how many steps the others may be ahead of a rank, which keeps the averages of these steps.
        warmup_steps (int): as of :class:`Reduction`. Averages without loss wait for all ranks.
        exclude: as of :class:`Reduction`.
        sparse_algorithm: as of :class:`Reduction`.
        scale: as of :class:`Reduction`.
        process_group: as of :class:`Reduction`.

    Attributes:
        presence (list): what each rank has contributed to the last step, a ``spar.Presence`` by rank; the least of all
            buckets. Empty before the first step that does not wait.
    """

    def __init__(
        self,
        comm: spar.Communicator,
        participation: str = "majority",
        algorithm: object | Callable[[int], object] = "sparcml",
        *,
        tau: int = 8,
        warmup_steps: int = 0,
        exclude: Iterable[Any] | Callable[[Any], bool] = (),
        sparse_algorithm: object = None,
        scale: Callable[[], float] | None = None,
        process_group: dist.ProcessGroup | None = None,
    ):
        super().__init__(
            comm,
            algorithm,
            warmup_steps=warmup_steps,
            exclude=exclude,
            sparse_algorithm=sparse_algorithm,
            scale=scale,
            process_group=process_group,
        )
        self.presence: list[spar.Presence] = []
        self._participation = participation
        self._tau = tau
        self._rounds: list[spar.Pending[list[spar.Presence]]] = []  # of this step

    def wait(self) -> None:
        """Waits for the averages of all reductions that were started; raises the first error."""
        super().wait()
        if self._rounds:
            self.presence = [min(of) for of in zip(*(ended.result() for ended in self._rounds))]
            self._rounds.clear()

    @torch.no_grad()
    def finish(self, optimizer: torch.optim.Optimizer) -> None:
        """Replaces the gradients of ``optimizer`` by the average of those that were late for all steps. Then make a
        last step of the optimizer. All ranks call it after their last step, and wait for each other."""
        self._drain()
        optimizer.zero_grad()
        for group in optimizer.param_groups:
            for p in group["params"]:
                if p in self._carried:
                    p.grad = self._carried.pop(p).view_as(p).to(p)

    def state_dict(self, model: torch.nn.Module) -> dict[str, Any]:
        """Returns what :meth:`Reduction.state_dict` does; the residuals are gradients that were late. All ranks call
        it, and wait for each other."""
        self._drain()
        return super().state_dict(model)

    def _drain(self):
        with self.told_to_peers():
            self._carry(list(self._bucket_of))

    def _make_feedback(self, algorithm, n, dtype):
        return spar.Partial(self.comm, n, dtype, self._participation, "average", algorithm, self._tau)

    def _start_reduce(self, feedback, values):
        self._rounds.append(feedback.start_reduce(values.numpy()))
        return self._rounds[-1]

    def _residuals_of(self, bucket):
        partial, sizes = self._feedback[bucket]
        rest = torch.zeros(partial.n, dtype=getattr(torch, partial.dtype))
        partial.drain(rest.numpy())
        return dict(zip(bucket[1], rest.split(sizes)))
