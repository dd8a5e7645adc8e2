# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The average of gradients over the ranks of a communicator, with a residual for each parameter."""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import spar

BUCKET_BYTES = 25 << 20  # the default of DistributedDataParallel


class Reduction:
    """Averages gradients over the ranks of ``comm``: the state of a communication hook.

    Values are reduced in buckets, each of which holds the gradients of some parameters one after the other. The
    residuals, which are what a rank has not sent yet, belong to the parameters: they stay when the parameters move to
    other buckets, and :meth:`state_dict` saves them.

    Args:
        comm (spar.Communicator): the ranks. All of them make the same calls in the same order.
        algorithm: the composition, as a text or a ``spar.Composition``, or a function of the step, which counts from 0,
            that returns one. All ranks need the same. Another composition than in the step before keeps the
            residuals, and finds its thresholds anew.
        feedback (bool): whether a rank adds to its next gradient what the composition has left out.
        warmup_steps (int): how many steps first average all values without loss.
        exclude: parameters, or a function of a parameter, whose gradients are averaged without loss in every step.
        decay (float): multiplies the residuals before each step, from 0 to 1.
        sparse_algorithm: the composition for gradients of the layout ``torch.sparse_coo``, which are averaged without
            residuals, as by ``Communicator.allreduce_sparse``. Gradients of embeddings are rows, so the composition is
            one for dense values, such as ``"ring+bf16"``.
        scale: a function that returns the factor of the loss, such as the ``get_scale`` of a ``torch.amp.GradScaler``.
            Gradients are divided by it before the reduction and multiplied by it afterwards, so residuals do not depend
            on it.
        process_group: the process group of ``DistributedDataParallel``, by default the default group. The first step of
            :func:`average_hook` raises ``spar.MismatchError`` unless ``comm`` has the same ranks in the same order.

    Raises:
        ValueError: ``decay`` is not from 0 to 1, or ``warmup_steps`` is negative.
        TypeError: ``exclude`` is neither a function nor a collection of parameters.

    Attributes:
        step (int): the number of steps that have ended.
    """

    def __init__(
        self,
        comm: spar.Communicator,
        algorithm: object | Callable[[int], object],
        *,
        feedback: bool = True,
        warmup_steps: int = 0,
        exclude: Iterable[Any] | Callable[[Any], bool] = (),
        decay: float = 1.0,
        sparse_algorithm: object = None,
        scale: Callable[[], float] | None = None,
        process_group: dist.ProcessGroup | None = None,
    ):
        if not 0 <= decay <= 1:
            raise ValueError(f"decay is {decay}; expected a number from 0 to 1")
        if warmup_steps < 0:
            raise ValueError(f"warmup_steps is {warmup_steps}; expected at least 0")
        if scale is not None and not callable(scale):
            kind = type(scale).__name__
            raise TypeError(f"scale is of the type {kind}; expected a function, such as scaler.get_scale")
        self.comm = comm
        self.step = 0
        self._algorithm = algorithm if callable(algorithm) else lambda step: algorithm
        self._with_feedback = feedback
        self._warmup_steps = warmup_steps
        self._excludes = _is_excluded(exclude)
        self._decay = decay
        self._sparse_algorithm = sparse_algorithm
        self._scale = scale
        self._process_group = process_group
        self._ranks_are_checked = False
        self._is_sparse = {}  # by parameter: the layout of its gradients, on which all ranks agree
        self._feedback = {}  # by composition and keys: an ErrorFeedback and the sizes
        self._bucket_of = {}  # by key: the bucket in _feedback that has the key's residual
        self._carried = {}  # by key: a residual that the next reduction of the key adds
        self._in_flight = []

    # ------------------------------------------------------------------------------------------------ reductions

    def start(
        self, keys: Sequence[Any], values: torch.Tensor, sizes: Sequence[int] | None = None
    ) -> torch.futures.Future[torch.Tensor]:
        """Starts to replace ``values`` by their average over the ranks.

        Args:
            keys (sequence): what the values belong to: parameters, or other objects that can be keys of a ``dict``.
            values (torch.Tensor): the values of all keys one after the other, contiguous, or a ``torch.sparse_coo``
                gradient of a single key.
            sizes (sequence of int): how many values each key has; the numbers of elements of ``keys`` by default.

        Returns:
            torch.futures.Future: has the average as its value: ``values`` itself or, for ``torch.sparse_coo``, another
            tensor. A thread of the communicator completes it.
        """
        future = torch.futures.Future(devices=None if values.device.type == "cpu" else [values.device])
        if values.layout is torch.sparse_coo:
            pendings, result = self._start_sparse(values)
        else:
            pendings, result = self._start_dense(tuple(keys), values, sizes or [key.numel() for key in keys])

        def finish():
            try:
                for pending in pendings:
                    pending.result()
                average = result()
            except BaseException as error:
                future.set_exception(error if isinstance(error, Exception) else RuntimeError(repr(error)))
                raise
            future.set_result(average)

        self._in_flight.append(self.comm._start(finish))  # the calls of a communicator end in their order
        return future

    def wait(self) -> None:
        """Waits for all reductions that were started; raises the first error.

        An interrupt (Ctrl-C) aborts the communicator, so that the other ranks learn of it.
        """
        flights, self._in_flight = self._in_flight, []
        with self.told_to_peers():
            for pending in flights:
                pending.result()

    def end_step(self) -> None:
        """Waits as :meth:`wait` does, and counts the step."""
        self.wait()
        self.step += 1

    def told_to_peers(self) -> contextlib.AbstractContextManager[Any]:
        """Returns a context whose exceptions abort the communicator, so that no other rank waits for this one."""
        return _ToldToPeers(self.comm)

    def check_ranks(self) -> None:
        """Raises ``spar.MismatchError`` unless ``comm`` has the ranks of the process group in the same order. The first
        call is a call of all ranks; later ones do nothing."""
        if self._ranks_are_checked:
            return
        expected = dist.get_process_group_ranks(self._process_group or dist.group.WORLD)
        difference = f"the process group of DistributedDataParallel has the ranks {expected} of torch.distributed"
        if self.comm.size != len(expected):  # perhaps some of the ranks of comm do not train
            difference += f", but the communicator has {self.comm.size} ranks"
        else:
            ranks = numpy.full(self.comm.size, dist.get_rank())
            self.comm.allgather(ranks)
            if ranks.tolist() == expected:
                self._ranks_are_checked = True
                return
            difference += f", but the communicator has {ranks.tolist()}"
        raise spar.MismatchError(
            f"{difference}; pass the communicator spar.Communicator.from_torch(group), and process_group=group if that "
            "is not the default group"
        )

    def attach(self, optimizer: torch.optim.Optimizer) -> Any:
        """Averages the gradients of ``optimizer`` over the ranks at the beginning of each of its steps: a training
        without DDP. Parameters without a gradient count as zeros. Start with equal parameters on all ranks. A step with
        a closure raises ValueError, because the closure would compute other gradients.

        Args:
            optimizer (torch.optim.Optimizer): the optimizer.

        Returns:
            a handle whose ``remove()`` undoes it, as of ``torch.optim.Optimizer.register_step_pre_hook``.
        """
        return optimizer.register_step_pre_hook(self._average_gradients)

    def average(self, keys: Sequence[Any], tensors: Sequence[torch.Tensor]) -> None:
        """Replaces ``tensors``, dense and of the shapes of ``keys``, by their averages, in buckets. Waits."""
        started = []
        for bucket in _buckets(tensors):
            flat = torch.cat([tensors[i].reshape(-1) for i in bucket])
            self.start([keys[i] for i in bucket], flat)
            started.append((bucket, flat))
        self.wait()
        for bucket, flat in started:
            for i, part in zip(bucket, flat.split([tensors[i].numel() for i in bucket])):
                tensors[i].copy_(part.view_as(tensors[i]))

    @torch.no_grad()
    def _average_gradients(self, optimizer, arguments, options):
        with self.told_to_peers():
            if options.get("closure", arguments[1] if len(arguments) > 1 else None) is not None:
                raise ValueError("step has a closure, whose gradients would not be averaged; call step without one")
            parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
            self._agree_on_layouts(parameters)
            sparse = [p for p in parameters if self._is_sparse.get(p)]
            dense = [p for p in parameters if not self._is_sparse.get(p)]
            started = [(p, self.start([p], _as_sparse(p))) for p in sparse]
            for p in dense:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad.to_dense()
            self.average(dense, [p.grad for p in dense])
            for p, future in started:
                p.grad = future.value()
            self.step += 1

    def _agree_on_layouts(self, parameters):
        """A rank may have no gradient of a parameter for which another rank has a sparse one."""
        unknown = [p for p in parameters if p not in self._is_sparse]
        if unknown:
            NONE, SPARSE, DENSE = 0, 1, 2
            layouts = [NONE if p.grad is None else SPARSE if p.grad.is_sparse else DENSE for p in unknown]
            agreed = self.comm.allreduce(numpy.array(layouts, numpy.int32), "max")
            self._is_sparse.update((p, of == SPARSE) for p, of in zip(unknown, agreed) if of != NONE)

    def _start_dense(self, keys, values, sizes):
        scale = 1.0 if self._scale is None else float(self._scale())
        if not scale > 0:
            raise ValueError(f"scale is {scale}; expected a number above 0")
        # Without its scale, a gradient may be too small for float16.
        widen = values.dtype is torch.bfloat16 or (values.dtype is torch.float16 and self._scale is not None)
        host = values.to(device="cpu", dtype=torch.float32 if widen else values.dtype)
        if scale != 1:
            host.div_(scale)
        parts = host.split(sizes)
        lossless = [self._is_lossless(key) for key in keys]
        pieces, pendings = [], []
        for mode in sorted(set(lossless)):
            own = [i for i, of in enumerate(lossless) if of is mode]
            piece = host if len(own) == len(keys) else torch.cat([parts[i] for i in own])
            pendings.append(self._start_piece(tuple(keys[i] for i in own), piece, [sizes[i] for i in own], mode))
            pieces.append((own, piece))

        def result():
            for own, piece in pieces:
                if piece is not host:
                    for i, part in zip(own, piece.split([sizes[i] for i in own])):
                        parts[i].copy_(part)
            if scale != 1:
                host.mul_(scale)
            if host is not values:
                values.copy_(host)
            for key in keys:
                self._carried.pop(key, None)
            return values

        return pendings, result

    def _start_piece(self, keys, values, sizes, lossless):
        algorithm = None if lossless else str(self._algorithm(self.step))
        feedback = None
        if algorithm is not None and self._with_feedback:
            feedback = self._feedback_of(algorithm, keys, sizes, values.dtype)
            _limit_to_one_infinity(values)
        else:
            self._carry(keys)
        for key, part in zip(keys, values.split(sizes)):
            if key in self._carried:
                part.add_(self._carried[key], alpha=self._decay)
        if feedback is None:
            return self.comm.start_allreduce(values.numpy(), op="average", algorithm=algorithm)
        return self._start_reduce(feedback, values)

    def _start_sparse(self, gradient):
        pending = self.comm.start_allreduce_sparse(gradient.cpu(), "average", self._sparse_algorithm)
        return [pending], lambda: pending.result().to(gradient.device)

    def _is_lossless(self, key):
        return self.step < self._warmup_steps or bool(self._excludes(key))

    # ------------------------------------------------------------------------------------------------- residuals

    def _feedback_of(self, algorithm, keys, sizes, dtype):
        bucket = algorithm, keys
        if bucket not in self._feedback:
            self._carry(keys)
            self._feedback[bucket] = self._make_feedback(algorithm, sum(sizes), dtype), sizes
            self._bucket_of.update(dict.fromkeys(keys, bucket))
        return self._feedback[bucket][0]

    def _make_feedback(self, algorithm, n, dtype):
        return spar.ErrorFeedback(self.comm, algorithm, dtype, index_bits=32 if n <= 1 << 32 else 64)

    def _start_reduce(self, feedback, values):
        return self.comm._start(self._reduce, feedback, values)

    def _reduce(self, feedback, values):  # on the communicator's thread, where no call waits for another bucket
        if self._decay != 1:
            residual = feedback.residual
            if len(residual):
                values.add_(torch.from_numpy(residual), alpha=self._decay - 1)  # feedback adds the whole residual
        feedback.reduce(values.numpy(), "average")

    def _carry(self, keys):
        """Ends the buckets that have residuals of ``keys``, and carries these residuals over to the next reduction."""
        for key in keys:
            if key in self._bucket_of:
                bucket = self._bucket_of[key]
                self._carried.update(self._residuals_of(bucket))
                del self._feedback[bucket]
                for other in bucket[1]:
                    del self._bucket_of[other]

    def _residuals_of(self, bucket):
        feedback, sizes = self._feedback[bucket]
        residual = torch.from_numpy(feedback.residual)
        return dict(zip(bucket[1], residual.split(sizes))) if len(residual) else {}

    def state_dict(self, model: torch.nn.Module) -> dict[str, Any]:
        """Returns this rank's residuals by the names of the parameters of ``model``, the step, and the number of ranks.

        Each rank saves its own. Call it between two steps. Raises ValueError if ``model`` lacks a parameter that has a
        residual.
        """
        names = _names(model)
        residuals = dict(self._carried)
        for bucket in self._feedback:
            for key, residual in self._residuals_of(bucket).items():
                residuals[key] = residuals[key] + residual if key in residuals else residual
        foreign = [tuple(key.shape) for key in residuals if isinstance(key, torch.Tensor) and key not in names]
        if foreign:
            raise ValueError(f"model lacks parameters that have residuals; their shapes are {foreign}")
        return {
            "step": self.step,
            "ranks": self.comm.size,
            "residuals": {names.get(key, key): residual.clone() for key, residual in residuals.items()},
        }

    def load_state_dict(self, *saved: dict[str, Any], model: torch.nn.Module) -> None:
        """Replaces the residuals and the step by what :meth:`state_dict` has returned on ranks of an earlier job. All
        ranks call it.

        If the number of ranks is the same, each rank passes what it has saved itself. Otherwise each saved state goes
        to exactly one rank, for example ``all_states[comm.rank :: comm.size]``; a rank may get none. The residuals of
        several states are added, and scaled so that their average over the ranks stays as it was.

        Args:
            saved (dict): the states that this rank takes over.
            model (torch.nn.Module): the model whose parameters have the names in the states.

        Raises:
            ValueError: a state of the earlier job is missing or passed twice, or does not fit ``model``.
        """
        by_name = {name: key for key, name in _names(model).items()}
        carried = {}
        of_job = numpy.array([[state["ranks"], state["step"]] for state in saved] or [[0, 0]]).max(axis=0)
        self.comm.allreduce(of_job, "max")  # a rank may have no state
        total = int(self.comm.allreduce(numpy.array([len(saved)]))[0])
        if total != of_job[0]:
            raise ValueError(
                f"the ranks have passed {total} saved states of a job of {of_job[0]} ranks; each of its states must go "
                f"to exactly one rank, such as all_states[comm.rank :: comm.size]"
            )
        for state in saved:
            for name, residual in state["residuals"].items():
                key = by_name.get(name, name)
                if isinstance(key, torch.Tensor) and key.numel() != residual.numel():
                    raise ValueError(
                        f"the saved residual of {name} has {residual.numel()} values; the parameter has {key.numel()}"
                    )
                if isinstance(key, str) and by_name and not name.startswith(_FSDP):
                    raise ValueError(f"the saved residual {name} belongs to no parameter of the model")
                scaled = residual.reshape(-1) * (self.comm.size / state["ranks"])
                carried[key] = carried[key] + scaled if key in carried else scaled
        self._feedback.clear()
        self._bucket_of.clear()
        self._carried = carried
        self.step = int(of_job[1])


_FSDP = "fsdp:"  # before the name of a module of FSDP, as a key


def _is_excluded(exclude):
    wrong: str | None
    if isinstance(exclude, (str, torch.Tensor, torch.nn.Module)):
        wrong = type(exclude).__name__
    elif callable(exclude):
        return exclude
    else:
        keys = set(exclude)
        wrong = next((repr(key) for key in keys if isinstance(key, str) and not key.startswith(_FSDP)), None)
    if wrong:
        raise TypeError(f"exclude has {wrong}; expected parameters, such as [layer.bias], or a function of a parameter")
    return keys.__contains__


def _limit_to_one_infinity(values):
    """Replaces values of which some are not finite by a single infinite one. All ranks then get an infinite value, by
    which a GradScaler skips the step, and no residual keeps one."""
    if not values.sum().isfinite():  # computed in one pass; finite only if all values are
        wrong = values.isfinite().logical_not().nonzero()
        if len(wrong):
            values.zero_()[wrong[0]] = torch.inf


def _as_sparse(p):
    """The gradient of a parameter, whose rows are sparse, in the layout torch.sparse_coo."""
    if p.grad is None:
        none = torch.zeros(1, 0, dtype=torch.int64)
        return torch.sparse_coo_tensor(none, p.new_zeros(0, *p.shape[1:]), p.shape, check_invariants=False)
    return p.grad if p.grad.is_sparse else p.grad.to_sparse(1)


class _ToldToPeers:
    def __init__(self, comm):
        self._comm = comm

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        if error is not None:
            with contextlib.suppress(Exception):  # the communicator is closed
                self._comm.abort(f"{kind.__name__}: {error}" if str(error) else kind.__name__)


def _names(model):
    """The names of the parameters, without the parts of names by which DDP, torch.compile and wrappers for activation
    checkpoints differ."""
    while isinstance(model, DistributedDataParallel) or hasattr(model, "_orig_mod"):
        model = model.module if isinstance(model, DistributedDataParallel) else model._orig_mod
    return {parameter: _without_wrappers(name) for name, parameter in model.named_parameters()}


def _without_wrappers(name):
    parts = name.split(".")
    return ".".join(part for part in parts if part not in ("_orig_mod", "_checkpoint_wrapped_module"))


def _buckets(tensors):
    """Divides the positions of ``tensors`` into lists with one type and device each, of at most BUCKET_BYTES bytes,
    or a single tensor."""
    lists, open_list, room = [], {}, {}
    for i, tensor in enumerate(tensors):
        kind, size = (tensor.dtype, tensor.device), tensor.numel() * tensor.element_size()
        if kind not in open_list or room[kind] < size:
            open_list[kind], room[kind] = [], BUCKET_BYTES
            lists.append(open_list[kind])
        open_list[kind].append(i)
        room[kind] -= size
    return lists
