"""Digests that identify samples and sources, wherever they are stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from randomset.data.sources import Source

__all__ = ["fingerprint", "label_digest", "sample_digests"]


def sample_digests(inputs: Any) -> list[str]:
    """Return 16 hexadecimal digits for each sample, equal for equal samples; "" for constant samples.

    Images may be bytes or the same pixels in [0, 1].

    >>> pixels = torch.tensor([[0, 255], [7, 7]], dtype=torch.uint8)
    >>> sample_digests(pixels) == sample_digests(pixels / 255)
    True
    """
    return [hashlib.blake2b(row, digest_size=8).hexdigest() if row else "" for row in _contents(inputs)]


def _contents(inputs: Any) -> Iterator[bytes]:
    """Yield each sample as bytes; b"" if it is constant."""
    if not isinstance(inputs, Tensor):
        yield from (text.encode() for text in inputs)
        return
    for chunk in inputs.detach().cpu().flatten(1).split(512) if len(inputs) else ():
        rows = chunk.float() + 0.0 if chunk.is_floating_point() else chunk  # −0 equals 0
        constant = (rows == rows[:, :1]).all(1) & (rows.shape[1] > 1)
        pixels, are_pixels = rows, torch.ones(len(rows), dtype=torch.bool)
        if rows.is_floating_point():
            scaled = 255 * rows
            pixels = scaled.round()
            are_pixels = (((scaled - pixels).abs() < 1e-3) & (pixels >= 0) & (pixels <= 255)).all(1)
            pixels = torch.where(are_pixels[:, None], pixels, 0).to(torch.uint8)
        flags = zip(constant.tolist(), are_pixels.tolist(), strict=True)
        for row, (blank, is_pixels) in enumerate(flags):
            yield b"" if blank else (pixels if is_pixels else rows)[row].numpy().tobytes()


def fingerprint(data: Source) -> str:
    """Return a digest of the labels and of a thousand samples, evenly spaced."""
    digest = hashlib.blake2b(label_digest(data).encode(), digest_size=8)
    step = max(len(data) // 1000, 1)
    for row in range(0, len(data), step):
        sample = data.inputs[row]
        digest.update(sample.encode() if isinstance(sample, str) else sample.contiguous().numpy().tobytes())
    return digest.hexdigest()


def label_digest(data: Source) -> str:
    """Return a digest of the labels and the names of the files."""
    digest = hashlib.blake2b(data.labels.numpy().tobytes(), digest_size=8)
    for file in data.files or ():
        digest.update(Path(file).name.encode())
    return digest.hexdigest()
