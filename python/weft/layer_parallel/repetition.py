"""State that a second pass through the same layers must not see: random numbers and buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle


class RandomState:
    """The states of torch's random number generators on the CPU and on the device of a network."""

    def __init__(self, devices: Iterable[torch.device]) -> None:
        self._cpu = torch.get_rng_state()
        self._others = [(device, torch.get_device_module(device).get_rng_state(device)) for device in devices]

    def restore(self) -> None:
        torch.set_rng_state(self._cpu)
        for device, state in self._others:
            torch.get_device_module(device).set_rng_state(state, device)


class BufferValues:
    """The buffers of modules at one time: running statistics, for example."""

    def __init__(self) -> None:
        self._entries: dict[tuple[int, str], tuple[dict[str, Any], str, Tensor | None, Tensor | None]] = {}

    def watching(self) -> RemovableHandle:
        """Returns a context that stores the buffers of every module before its first call."""
        return register_module_forward_pre_hook(lambda module, _: self._take(module))

    def _take(self, module: nn.Module) -> None:
        for name, buffer in module._buffers.items():
            if (id(module), name) not in self._entries:
                self._entries[id(module), name] = (module._buffers, name, buffer, _copy(buffer))

    def present(self) -> BufferValues:
        """Returns the present values of the same buffers."""
        values = BufferValues()
        for key, (place, name, _, _) in self._entries.items():
            buffer = place.get(name)
            values._entries[key] = (place, name, buffer, _copy(buffer))
        return values

    def restore(self) -> None:
        for place, name, buffer, value in self._entries.values():
            place[name] = buffer
            if buffer is not None and value is not None:
                buffer.data.copy_(value)  # .data: graphs that saved the buffer stay valid


def _copy(buffer: Tensor | None) -> Tensor | None:
    return None if buffer is None else buffer.detach().clone()


class RepeatableFunction:
    """A loss function that is called once per pass and uses the same random numbers in both passes."""

    def __init__(self, function: Callable[..., Tensor], devices: Sequence[torch.device]) -> None:
        self._function = function
        self._devices = devices
        self._state: RandomState | None = None

    def __call__(self, *args: Any) -> Tensor:
        if self._state is None:
            self._state = RandomState(self._devices)
            return self._function(*args)
        outer = RandomState(self._devices)
        self._state.restore()
        try:
            return self._function(*args)
        finally:
            outer.restore()
