"""Copies a checkpoint's tensors into memory of the host, beside the training.

torch's DefaultStager does so, too, but by storages, whose copies hold Python's lock: the training's thread stood still
for up to 45 ms of a ResNet-50's 200 MB on two cores, and could not begin its next step meanwhile.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext

import torch

Tensors = dict[str, torch.Tensor]


class HostCopies:
    """Copies on the host; their memory is used again at the next save, for fresh memory costs more than the copy."""

    def __init__(self, device: torch.device) -> None:
        self._on_cuda = device.type == "cuda"
        self._stream = torch.cuda.Stream(device) if self._on_cuda else None  # type: ignore[no-untyped-call]  # torch's
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="copies")
        self._copies: Tensors = {}

    def start(self, tensors: Tensors) -> Future[Tensors]:
        """Begin to copy; until it is done no tensor may change. Copies of before are overwritten.

        On CUDA the device must have made the tensors: they are copied in a stream of their own.
        """
        return self._thread.submit(self._copy, tensors)

    @torch.no_grad()
    def _copy(self, tensors: Tensors) -> Tensors:
        with torch.cuda.stream(self._stream) if self._stream else nullcontext():
            self._copies = {
                name: self._place(name, tensor).copy_(tensor, non_blocking=self._on_cuda)
                for name, tensor in tensors.items()
            }
        if self._stream:
            self._stream.synchronize()
        return dict(self._copies)

    def _place(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Where a tensor is copied to: where it was before, if that is of its kind."""
        place = self._copies.get(name)
        if place is None or (place.shape, place.dtype) != (tensor.shape, tensor.dtype):
            place = torch.empty_like(tensor, device="cpu", pin_memory=self._on_cuda)
        return place
