"""Decoding: images of different sizes and depths become squares of bytes. Broken or huge images raise ValueError."""

from __future__ import annotations

import io
import resource
import struct
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from trainer.data.image_cache import Pixels, decode

RNG = np.random.default_rng(0)


def encoded(image: Image.Image, kind: str = "PNG") -> bytes:
    content = io.BytesIO()
    image.save(content, kind)
    return content.getvalue()


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(RNG.integers(0, 256, (height, width, 3), dtype=np.uint8))


def scaled_and_cropped(image: Image.Image, side: int) -> Pixels:
    """Return the expected square: the image scaled until its shorter edge fits, then cropped in the middle."""
    scale = side / min(image.size)
    scaled = image.resize(
        (max(side, round(image.width * scale)), max(side, round(image.height * scale))), Image.Resampling.BILINEAR
    )
    left, top = (scaled.width - side) // 2, (scaled.height - side) // 2
    return np.asarray(scaled.crop((left, top, left + side, top + side)))


@pytest.mark.parametrize(
    "size",
    [(36, 36), (64, 64), (500, 375), (375, 500), (20, 31), (333, 36), (36, 40), (7, 5)],
    ids="{0[0]}x{0[1]}".format,
)
def test_decode_scales_and_crops_in_the_middle(size: tuple[int, int]) -> None:
    # The crop may be off by less than a pixel, so use a smooth image.
    image = Image.linear_gradient("L").resize(size).convert("RGB")
    found, expected = decode(encoded(image), 36), scaled_and_cropped(image, 36)
    assert found.shape == (36, 36, 3)
    assert np.abs(found.astype(int) - expected.astype(int)).max() <= 4


@pytest.mark.parametrize("size", [(60000, 1), (1, 60000)], ids=["wide", "high"])
def test_decode_of_thin_image_needs_little_memory(size: tuple[int, int]) -> None:
    # This is the highest use of memory so far. A higher use by an earlier test would hide the use of this test.
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (decode(encoded(Image.new("RGB", size, (1, 2, 3))), 64) == (1, 2, 3)).all()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 * 1024, (
        "decoding must need less than 100 MiB"
    )


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_decode_keeps_brightness_of_16_bit_greys(kind: str) -> None:
    greys = np.linspace(0, 65535, 32 * 32).reshape(32, 32).astype(np.uint16)
    found = decode(encoded(Image.fromarray(greys), kind), 32)
    assert np.array_equal(found, np.repeat(np.round(greys / 257).astype(np.uint8)[..., None], 3, axis=2))


def broken_avif() -> bytes:
    """Return an AVIF file with changed bytes in its image data."""
    content = bytearray(encoded(noise(32, 32), "AVIF"))
    content[272:280] = b"\xff" * 8
    return bytes(content)


def broken_dds() -> bytes:
    """Return a DDS file with an unknown pixel format."""
    content = bytearray(encoded(noise(8, 8), "DDS"))
    content[80:84] = struct.pack("<I", 4)
    content[84:88] = b"????"
    return bytes(content)


BROKEN_FILES: dict[str, Callable[[], bytes]] = {
    "AVIF": broken_avif,
    "DDS": broken_dds,
    "a decompression bomb": lambda: encoded(Image.new("1", (40000, 10000))),
}


@pytest.mark.parametrize("name", BROKEN_FILES)
def test_decode_of_broken_image_raises_value_error_with_a_reason(name: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode(BROKEN_FILES[name](), 32)


def test_decode_without_enough_memory_raises_value_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def convert(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(Image.Image, "convert", convert)
    with pytest.raises(ValueError, match="MemoryError"):
        decode(encoded(noise(8, 8)), 8)
