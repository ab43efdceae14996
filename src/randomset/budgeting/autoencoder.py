"""A small autoencoder: a nonlinear reducer that can transform new data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from randomset._core.batches import progress_bar
from randomset.budgeting.gaussians import Floats
from randomset.errors import RandomSetError

__all__ = ["Autoencoder"]


class Autoencoder:
    """An encoder and a decoder with one hidden layer each, trained to reconstruct features.

    Features are centred and divided by one common standard deviation, which keeps their relative scales.
    The number of training steps does not depend on the number of samples.

    >>> points = np.random.default_rng(0).normal(size=(200, 8))
    >>> coder = Autoencoder(2, steps=20)
    >>> codes = coder.fit_transform(points)
    >>> codes.shape, bool(np.allclose(coder.transform(points[:5]), codes[:5], atol=1e-5))
    ((200, 2), True)
    """

    def __init__(
        self,
        dimensions: int = 3,
        *,
        hidden: int = 128,
        steps: int = 1500,
        batch_size: int = 256,
        learning_rate: float = 2e-3,
        seed: int = 0,
        progress: bool | None = None,
    ) -> None:
        self.dimensions, self.hidden, self.steps = dimensions, hidden, steps
        self.batch_size, self.learning_rate = batch_size, learning_rate
        self.seed, self.progress = seed, progress

    def fit_transform(self, features: Any, labels: Any = None) -> Floats:
        """Train on features (n × F) and return their codes (n × d); labels are ignored."""
        x = torch.as_tensor(np.asarray(features), dtype=torch.float32)
        self.centre_, self.scale_ = x.mean(0), x.std().clamp_min(1e-12)
        x = (x - self.centre_) / self.scale_
        inputs, hidden = x.shape[1], self.hidden
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.manual_seed(self.seed)
            self.encoder_ = nn.Sequential(
                nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, self.dimensions)
            )
            decoder = nn.Sequential(nn.Linear(self.dimensions, hidden), nn.ReLU(), nn.Linear(hidden, inputs))
            parameters = [*self.encoder_.parameters(), *decoder.parameters()]
            optimiser = torch.optim.Adam(parameters, self.learning_rate)
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.steps)
            with progress_bar("training the autoencoder", self.steps, self.progress) as advance:
                for _ in range(self.steps):
                    batch = x[torch.randint(len(x), (self.batch_size,))]
                    loss = nn.functional.mse_loss(decoder(self.encoder_(batch)), batch)
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
                    schedule.step()
                    advance(1)
        return self._encode(x)

    def transform(self, features: Any) -> Floats:
        """Return the codes of new features."""
        if not hasattr(self, "encoder_"):
            raise RandomSetError("the autoencoder is not trained", remedy="Call fit_transform first")
        x = torch.as_tensor(np.asarray(features), dtype=torch.float32)
        return self._encode((x - self.centre_) / self.scale_)

    def _encode(self, x: Tensor) -> Floats:
        with torch.no_grad():
            return torch.cat([self.encoder_(part) for part in x.split(8192)]).double().numpy()
