"""Prediction in several processes: each sample once, in the order of the data set."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from randomset._core.distributed import PartWriter, in_processes


def squares(model, batch):
    return {"square": model(batch[0]) ** 2, "label": batch[1]}


def test_parts_are_merged_in_order_and_once(tmp_path):
    writer = PartWriter(str(tmp_path))
    shares: list[list[list[int]]] = [
        [[0, 2], [4]],
        [[1, 3], [0]],
    ]  # the sampler repeats a sample: even shares
    for rank, share in enumerate(shares):
        predictions = [{"value": 10 * torch.tensor(rows)} for rows in share]
        trainer: Any = SimpleNamespace(global_rank=rank)
        writer.write_on_epoch_end(trainer, None, predictions, [share])
    assert PartWriter.read(tmp_path)["value"].tolist() == [0, 10, 20, 30, 40]


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_every_process_predicts_its_share(devices):
    data = TensorDataset(torch.arange(7.0)[:, None], torch.arange(7))
    found = in_processes(
        squares, nn.Identity(), DataLoader(data, batch_size=2), devices, enable_progress_bar=False
    )
    assert found["square"].flatten().tolist() == [0, 1, 4, 9, 16, 25, 36]
    assert found["label"].tolist() == list(range(7))
