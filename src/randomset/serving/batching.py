"""Batching of concurrent requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

__all__ = ["Batcher", "Busy"]

_Request = tuple[Tensor, "asyncio.Future[list[Any]]"]


class Busy(Exception):
    """The queue is full."""


class Batcher:
    """Joins the requests that arrive while the network is busy; an idle network starts at once.

    Args:
        predict: maps inputs (n × …) to a list of n answers; it runs in its own thread.
        max_batch: the largest batch.
        max_waiting: the most inputs in the queue.
        observe: called with the size of every batch.
    """

    def __init__(
        self,
        predict: Callable[[Tensor], list[Any]],
        max_batch: int = 256,
        max_waiting: int = 2048,
        observe: Callable[[int], object] = lambda size: None,
    ) -> None:
        self.predict, self.observe = predict, observe
        self.max_batch, self.max_waiting = max_batch, max_waiting
        self.waiting = 0
        self._queue: deque[_Request] = deque()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="prediction")
        self._task: asyncio.Task[None] | None = None

    async def submit(self, inputs: Tensor) -> list[Any]:
        """Return the answers for inputs, which may share a batch with other requests."""
        if self.waiting + len(inputs) > self.max_waiting:
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
            self.observe(sum(len(inputs) for inputs, _ in batch))
            try:
                joined = batch[0][0] if len(batch) == 1 else torch.cat([inputs for inputs, _ in batch])
                answers = await loop.run_in_executor(self._pool, self.predict, joined)
                self._give(batch, answers)
            except Exception as error:
                if len(batch) == 1:
                    _fail(batch[0][1], error)
                    continue
                for request in batch:  # one bad request must not fail the others
                    try:
                        inputs, future = request
                        self._give([request], await loop.run_in_executor(self._pool, self.predict, inputs))
                    except Exception as own:
                        _fail(future, own)

    def _next(self) -> list[_Request]:
        """Take compatible requests from the front of the queue, and drop cancelled ones."""
        batch: list[_Request] = []
        size = 0
        while self._queue:
            inputs, future = self._queue[0]
            if batch:
                first = batch[0][0]
                alike = inputs.dtype == first.dtype and inputs.shape[1:] == first.shape[1:]
                if size + len(inputs) > self.max_batch or not alike:
                    break
            self._queue.popleft()
            self.waiting -= len(inputs)
            if not future.done():
                batch.append((inputs, future))
                size += len(inputs)
        return batch

    def _give(self, batch: list[_Request], answers: list[Any]) -> None:
        start = 0
        for inputs, future in batch:
            if not future.done():
                future.set_result(answers[start : start + len(inputs)])
            start += len(inputs)

    def close(self) -> None:
        """Stop the thread."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _fail(future: asyncio.Future[list[Any]], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
