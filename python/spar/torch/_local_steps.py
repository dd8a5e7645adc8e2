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
    from the same parameters. Parameters that ``optimizer.add_param_group`` adds later, equal on all ranks, take part
    from then on; add them to ``outer``, too.

    Args:
        optimizer (torch.optim.Optimizer): the optimizer of the local steps.
        state (Reduction): such as the first result of ``spar.torch.topk(comm, 0.02, decay=0.95)``. Its step counts
            averages.
        every (int): the number of local steps between two averages.
        outer (torch.optim.Optimizer): makes a step with the averaged change as the gradient, on the same parameters;
            without it, the change is added.

    Raises:
        ValueError: ``every`` is less than 1.

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
        self._optimizer = optimizer
        self._last = {}  # by parameter: its value after the last average
        self._add_parameters()
        optimizer.register_step_pre_hook(lambda *_: self._add_parameters())  # those of add_param_group
        optimizer.register_step_post_hook(lambda *_: self._after_step())

    @torch.no_grad()
    def average(self) -> None:
        """Averages now what the ranks have changed since the last average, as at the end of a training. All ranks call
        it."""
        parameters = self._parameters()
        change = [self._last[p] - p for p in parameters]  # in the direction of a gradient
        with self.state.told_to_peers():
            self.state.average(parameters, change)
        self.state.step += 1
        self._steps = 0
        for p in parameters:
            p.copy_(self._last[p])
        if self._outer is None:
            for p, by in zip(parameters, change):
                p.sub_(by)
        else:
            gradients = [p.grad for p in parameters]
            for p, by in zip(parameters, change):
                p.grad = by
            self._outer.step()
            for p, gradient in zip(parameters, gradients):
                p.grad = gradient
        for p in parameters:
            self._last[p].copy_(p)

    def state_dict(self) -> dict[str, Any]:
        """Returns the number of steps since the last average, and the parameters after that average.

        A rank saves it beside its own parameters, optimizers and ``state.state_dict(model)``. Right after an average,
        the state of any rank suits a job with another number of ranks.
        """
        return {"steps": self._steps, "last": [self._last[p].clone() for p in self._parameters()]}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Restores what :meth:`state_dict` has returned. The parameters, which a rank loads by itself, stay as they
        are. Raises ``ValueError`` if the shapes of ``saved`` are not those of the optimizer's parameters."""
        self._add_parameters()
        parameters = self._parameters()
        shapes, expected = ([tuple(of.shape) for of in tensors] for tensors in (saved["last"], parameters))
        if shapes != expected:
            raise ValueError(f"the saved parameters have the shapes {shapes}; those of the optimizer have {expected}")
        self._steps = saved["steps"]
        for p, before in zip(parameters, saved["last"]):
            self._last[p].copy_(before)

    def _parameters(self):
        return [p for p in _parameters_of(self._optimizer) if p in self._last]

    def _add_parameters(self):
        trained = [p for p in _parameters_of(self._optimizer) if p.requires_grad]
        new = {p: p.detach().clone() for p in trained if p not in self._last}
        if new and self._outer is not None:
            lacking = len(new.keys() - set(_parameters_of(self._outer)))
            if lacking:
                raise ValueError(
                    f"outer lacks {lacking} parameters of the optimizer, which would never change; add them by "
                    "outer.add_param_group"
                )
        self._last.update(new)

    def _after_step(self):
        self._steps += 1
        if self._steps >= self._every:
            self.average()


def _parameters_of(optimizer):
    return [p for group in optimizer.param_groups for p in group["params"]]
