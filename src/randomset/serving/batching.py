"""Requests that come at the same time go through the network together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

__all__ = ["Batcher", "Busy"]


class Busy(Exception):
    """So much waits already that a new request would wait too long."""


class Batcher:
    """Joins what waits while the network is at work: nobody waits for others to come.

    Args:
        predict: from inputs (n × …) to a list of n answers; it runs in a thread of its own.
        most: the largest batch.
        waiting: how many inputs may wait.
        seen: what to call with the size of every batch.
    """

    def __init__(
        self,
        predict: Callable[[Tensor], list[Any]],
        most: int = 256,
        waiting: int = 2048,
        seen: Callable[[int], object] = lambda size: None,
    ) -> None:
        self.predict, self.most, self.limit, self.seen = predict, most, waiting, seen
        self.waiting = 0
        self._queue: deque[tuple[Tensor, asyncio.Future[list[Any]]]] = deque()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="prediction")
        self._task: asyncio.Task[None] | None = None

    async def submit(self, inputs: Tensor) -> list[Any]:
        """Return the answers for inputs, computed with those of others."""
        if self.waiting + len(inputs) > self.limit:
            raise Busy
        future: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._queue.append((inputs, future))
        self.waiting += len(inputs)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        return await future

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue:
            batch = self._next()
            if not batch:
                continue
            self.seen(sum(len(inputs) for inputs, _ in batch))
            try:
                joined = batch[0][0] if len(batch) == 1 else torch.cat([inputs for inputs, _ in batch])
                answers = await loop.run_in_executor(self._pool, self.predict, joined)
                self._give(batch, answers)
            except Exception as error:
                if len(batch) == 1:
                    _fail(batch[0][1], error)
                    continue
                for one in batch:  # one of them is at fault, not all
                    try:
                        self._give([one], await loop.run_in_executor(self._pool, self.predict, one[0]))
                    except Exception as own:
                        _fail(one[1], own)

    def _next(self) -> list[tuple[Tensor, asyncio.Future[list[Any]]]]:
        """Take requests from the front as long as they fit together; leave out those nobody waits for."""
        batch: list[tuple[Tensor, asyncio.Future[list[Any]]]] = []
        size = 0
        while self._queue:
            inputs, future = self._queue[0]
            same = not batch or (
                inputs.dtype == batch[0][0].dtype and inputs.shape[1:] == batch[0][0].shape[1:]
            )
            if batch and (size + len(inputs) > self.most or not same):
                break
            self._queue.popleft()
            self.waiting -= len(inputs)
            if not future.done():
                batch.append((inputs, future))
                size += len(inputs)
        return batch

    def _give(self, batch: list[tuple[Tensor, asyncio.Future[list[Any]]]], answers: list[Any]) -> None:
        start = 0
        for inputs, future in batch:
            if not future.done():
                future.set_result(answers[start : start + len(inputs)])
            start += len(inputs)

    def close(self) -> None:
        """Let the thread end."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _fail(future: asyncio.Future[list[Any]], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
