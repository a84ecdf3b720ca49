"""Copies of a checkpoint's tensors hold the values at that time, in reused memory."""

from __future__ import annotations

import torch

from trainer.checkpoints.copies import HostCopies


def test_copies_keep_values_and_reuse_memory() -> None:
    copies = HostCopies(torch.device("cpu"))
    images = torch.rand(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    tensors = {"images": images, "half": torch.rand(3).half().requires_grad_(), "none": torch.empty(0, 3)}
    expected = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    first = copies.start(tensors).result()
    images.zero_()
    assert all(torch.equal(first[name], found) for name, found in expected.items())
    assert first["images"].stride() == images.stride()
    assert not first["half"].requires_grad
    second = copies.start(tensors).result()
    assert torch.equal(second["images"], images)
    assert second["images"].data_ptr() == first["images"].data_ptr()


def test_copy_of_another_shape_gets_new_memory() -> None:
    copies = HostCopies(torch.device("cpu"))
    first = copies.start({"a": torch.ones(4), "b": torch.ones(4)}).result()
    second = copies.start({"a": torch.ones(2), "b": torch.ones(4, dtype=torch.int64)}).result()
    assert [(tensor.shape, tensor.dtype) for tensor in second.values()] == [((2,), torch.float32), ((4,), torch.int64)]
    assert torch.equal(first["a"], torch.ones(4))
