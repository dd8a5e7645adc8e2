# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Local steps: ranks train alone for some steps, then average the changes of their parameters."""

from typing import Any

import torch

from ._reduction import Reduction


class LocalSteps:
    """Averages the change of the parameters of ``optimizer`` every ``every`` steps (post-local SGD, Lin et al., ICLR
    2020; with an outer optimizer DiLoCo, Douillard et al., 2023).

    All ranks start with equal parameters, and make equally many steps. The change, from the parameters after the last
    average to those of now, is averaged by ``state`` with its residuals, decay and exclusions, and all ranks continue
    from the same parameters.

    Args:
        optimizer (torch.optim.Optimizer): the optimizer of the local steps.
        state (Reduction): such as the first result of ``spar.torch.topk(comm, 0.02, decay=0.95)``. Its step counts
            averages.
        every (int): the number of local steps between two averages.
        outer (torch.optim.Optimizer): makes a step with the averaged change as the gradient, on the same parameters;
            without it, the change is added.

    Example::

        >>> inner = torch.optim.AdamW(model.parameters())
        >>> outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
        >>> local = spar.torch.LocalSteps(inner, spar.torch.ok_topk(comm, 0.02)[0], every=500, outer=outer)
        >>> for batch in loader:
        ...     inner.zero_grad(); loss(model, batch).backward(); inner.step()
        >>> local.average()
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        state: Reduction,
        every: int,
        outer: torch.optim.Optimizer | None = None,
    ):
        if every < 1:
            raise ValueError(f"every is {every}; expected at least 1 step")
        self.state = state
        self._every = every
        self._outer = outer
        self._steps = 0  # since the last average
        self._parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        self._last = [p.detach().clone() for p in self._parameters]
        optimizer.register_step_post_hook(lambda *_: self._after_step())

    @torch.no_grad()
    def average(self) -> None:
        """Averages now what the ranks have changed since the last average, as at the end of a training. All ranks call
        it."""
        change = [last - p for last, p in zip(self._last, self._parameters)]  # in the direction of a gradient
        with self.state.told_to_peers():
            self.state.average(self._parameters, change)
        self.state.step += 1
        self._steps = 0
        for p, last in zip(self._parameters, self._last):
            p.copy_(last)
        if self._outer is None:
            for p, by in zip(self._parameters, change):
                p.sub_(by)
        else:
            gradients = [p.grad for p in self._parameters]
            for p, by in zip(self._parameters, change):
                p.grad = by
            self._outer.step()
            for p, gradient in zip(self._parameters, gradients):
                p.grad = gradient
        for last, p in zip(self._last, self._parameters):
            last.copy_(p)

    def state_dict(self) -> dict[str, Any]:
        """Returns the number of steps since the last average, and the parameters after that average.

        A rank saves it beside its own parameters, optimizers and ``state.state_dict(model)``. Right after an average,
        the state of any rank suits a job with another number of ranks.
        """
        return {"steps": self._steps, "last": [last.clone() for last in self._last]}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restores what :meth:`state_dict` has returned. The parameters, which a rank loads by itself, stay as they
        are."""
        shapes, expected = ([tuple(of.shape) for of in tensors] for tensors in (saved["last"], self._last))
        if shapes != expected:
            raise ValueError(f"the saved parameters have the shapes {shapes}; those of the optimizer have {expected}")
        self._steps = saved["steps"]
        for last, before in zip(self._last, saved["last"]):
            last.copy_(before)

    def _after_step(self):
        self._steps += 1
        if self._steps >= self._every:
            self.average()
