"""BufferedNetwork: a LayerParallel network whose first and last layers are evaluated exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from weft import _bindings
from weft.communicator import Communicator

from .dropout import Evaluation, current_evaluation, mix
from .micro_batches import PerSample
from .network import LayerParallel, count_layers, forms_of, gather_state, maker_of
from .serial import SerialNetwork, State
from .solve import require_integers


class BufferedNetwork(nn.Module):
    """Layers of which the first and the last few, the buffers, are evaluated exactly. Collective.

    The states of a transformer change most in its first and last blocks, and coarse steps are least accurate there.
    The buffers run one after the other on rank 0 (with ``replicated``, on every rank); ``middle`` is the LayerParallel
    network of the layers between them. All layers have the same step size, ``tf`` divided by their number.

    Args:
        opening, closing: the number of layers in the buffers.
        layers, steps, tf, form, replicated: as in ``LayerParallel``.
        options: other options of ``LayerParallel``, for the middle.
    """

    def __init__(
        self,
        comm: Communicator,
        layers: Sequence[nn.Module] | Callable[[int], nn.Module],
        *,
        opening: int = 1,
        closing: int = 1,
        steps: int | None = None,
        tf: float = 1.0,
        form: str | Sequence[str] = "residual",
        replicated: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        try:
            count = count_layers(layers, steps)
            require_integers("opening", opening, 0)
            require_integers("closing", closing, 0)
            middle = count - opening - closing
            if middle < 1:
                raise ValueError(
                    f"weft: expected fewer layers in the buffers than in the network, got {opening} and {closing} of "
                    f"{count} layers"
                )
            forms = forms_of(form, count)
            make = maker_of(layers)
            first = {str(number): make(number) for number in range(opening)}
        except Exception as error:  # the other ranks already wait for this one
            _bindings.load().layer_parallel_refuse(comm._id, str(error))
            raise
        self.middle = LayerParallel(
            comm,
            lambda number: make(opening + number),
            steps=middle,
            tf=tf * middle / count,
            form=forms[opening : opening + middle],
            replicated=replicated,
            **options,
        )
        last = {str(number): make(opening + middle + number) for number in range(closing)}
        ends = [
            SerialNetwork(first, forms[:opening], tf * opening / count),
            SerialNetwork(last, forms[opening + middle :], tf * closing / count),
        ]
        self._random = any(isinstance(part, nn.Dropout) for end in ends for part in end.modules())
        held = replicated or comm.rank == 0
        self.opening, self.closing = ends if held else (SerialNetwork({}, [], 0.0), SerialNetwork({}, [], 0.0))
        self._sizes = opening, closing
        if not held:
            self._register_load_state_dict_pre_hook(_leave_out_ends)

    def forward(self, x: State | None = None, *args: Any, **kwargs: Any) -> State:
        """Collective. Returns the state after the last layer on rank 0; the arguments are those of ``LayerParallel``.

        Other ranks return a zero that joins the graphs.
        """
        seed = self._draw()
        y = self.middle(self._open(x, seed, args, kwargs), *args, **kwargs)
        return self.middle.compose(self._close, y, seed, *_whole((args, kwargs))) if self._sizes[1] else y

    def loss(
        self,
        function: Callable[..., Tensor],
        x: State | None = None,
        *targets: Any,
        reduction: str = "mean",
        **kwargs: Any,
    ) -> Tensor:
        """Collective. Like ``LayerParallel.loss``. The pipeline evaluates the last layers once per micro-batch, too.

        If an argument of the layers requires grad, the last layers run once, on the whole batch.
        """
        if any(_requires_grad(leaf) for leaf in tree_leaves(kwargs)):
            return self.middle.compose(function, self(x, **kwargs), *targets)
        seed = self._draw()
        leaves, structure = tree_flatten(kwargs)
        divided = [i for i, leaf in enumerate(leaves) if isinstance(leaf, PerSample)]

        def closed(y: State, *values: Any) -> Tensor:
            for i, rows in zip(divided, values[len(targets) :], strict=True):
                leaves[i] = rows
            return function(self._close(y, seed, (), tree_unflatten(leaves, structure)), *values[: len(targets)])

        per_sample = [leaves[i].tensor for i in divided]
        start = self._open(x, seed, (), kwargs)
        return self.middle.loss(closed, start, *targets, *per_sample, reduction=reduction, **kwargs)

    def side_input(self, x: Tensor) -> Tensor:
        """Collective. See ``LayerParallel.side_input``."""
        return self.middle.side_input(x)

    def full_state_dict(self) -> dict[str, Tensor]:
        """Collective. Returns the state of all layers on every rank. It can be loaded on any number of ranks."""
        return gather_state(self.middle.comm, self)

    def _draw(self) -> int:
        """Returns the seed of the buffers' dropout masks. Every rank draws a number, so that they stay in step."""
        return int(torch.empty((), dtype=torch.int64).random_()) if self.training and self._random else 0

    def _open(self, x: Any, seed: int, args: Any, kwargs: Any) -> Any:
        if not self._sizes[0]:
            return x
        return self.middle.compose(self._evaluate, self.opening, x, 0, mix(seed), *_whole((args, kwargs)))

    def _close(self, y: State, seed: int, args: Any, kwargs: Any) -> State:
        if not self._sizes[1]:
            return y
        evaluation = current_evaluation.get()  # that of a micro-batch, if the pipeline computes the loss
        return self._evaluate(self.closing, y, evaluation.begin if evaluation else 0, mix(seed + 1), args, kwargs)

    def _evaluate(self, end: SerialNetwork, x: State, begin: int, seed: int, args: Any, kwargs: Any) -> State:
        token = current_evaluation.set(Evaluation(begin, seed))
        try:
            return end(x, *args, **kwargs)
        finally:
            current_evaluation.reset(token)


def _leave_out_ends(state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    for key in list(state_dict):
        if key.startswith((f"{prefix}opening.", f"{prefix}closing.")):
            del state_dict[key]


def _whole(values: Any) -> Any:
    return tree_map_only(PerSample, lambda marked: marked.tensor, values)


def _requires_grad(leaf: Any) -> bool:
    tensor = leaf.tensor if isinstance(leaf, PerSample) else leaf
    return isinstance(tensor, Tensor) and tensor.requires_grad
