"""Concurrent requests share batches, and one bad request does not fail the others."""

import asyncio
import threading

import pytest
import torch

from randomset.serving.batching import Batcher, Busy


def doubled(seen, gate=None):
    def predict(inputs):
        seen.append(len(inputs))
        if gate is not None:
            gate.wait(10)
        if (inputs < 0).any():
            raise ValueError("negative")
        return (2 * inputs[:, 0]).tolist()

    return predict


def test_waiting_requests_are_joined_and_answered_separately():
    seen: list[int] = []
    gate = threading.Event()

    async def many():
        batcher = Batcher(doubled(seen, gate), max_batch=8)
        first = asyncio.create_task(batcher.submit(torch.ones(1, 1)))
        await asyncio.sleep(0.1)  # it is running
        others = [asyncio.create_task(batcher.submit(torch.full((2, 1), float(i)))) for i in range(5)]
        await asyncio.sleep(0)
        assert batcher.waiting == 10
        gate.set()
        found = await asyncio.gather(first, *others)
        assert batcher.waiting == 0
        batcher.close()
        return found

    found = asyncio.run(many())
    assert found == [[2.0], *[[2.0 * i] * 2 for i in range(5)]]
    assert seen == [1, 8, 2]  # never more than eight


def test_inputs_of_other_types_and_shapes_are_not_joined():
    seen: list[int] = []
    gate = threading.Event()

    async def many():
        batcher = Batcher(doubled(seen, gate))
        tasks = [asyncio.create_task(batcher.submit(torch.ones(1, 1)))]
        await asyncio.sleep(0.1)
        tasks += [
            asyncio.create_task(batcher.submit(inputs))
            for inputs in (torch.ones(1, 1), torch.ones(1, 3), torch.ones(1, 1, dtype=torch.uint8))
        ]
        await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(*tasks)

    assert asyncio.run(many()) == [[2]] * 4
    assert seen == [1] * 4


def test_one_bad_request_does_not_fail_the_others():
    seen: list[int] = []
    gate = threading.Event()

    async def many():
        batcher = Batcher(doubled(seen, gate))
        tasks = [asyncio.create_task(batcher.submit(torch.ones(1, 1)))]
        await asyncio.sleep(0.1)
        tasks += [
            asyncio.create_task(batcher.submit(torch.full((1, 1), value))) for value in (1.0, -1.0, 3.0)
        ]
        await asyncio.sleep(0)
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(many())
    assert found[1] == [2.0]
    assert found[3] == [6.0]
    assert isinstance(found[2], ValueError)


def test_full_queue_refuses_and_recovers():
    seen: list[int] = []
    gate = threading.Event()

    async def many():
        batcher = Batcher(doubled(seen, gate), max_waiting=4)
        first = asyncio.create_task(batcher.submit(torch.ones(1, 1)))
        await asyncio.sleep(0.1)
        waits = asyncio.create_task(batcher.submit(torch.ones(4, 1)))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await batcher.submit(torch.ones(1, 1))
        gate.set()
        await asyncio.gather(first, waits)
        return await batcher.submit(torch.ones(4, 1))

    assert asyncio.run(many()) == [2.0] * 4


def test_cancelled_requests_are_dropped():
    seen: list[int] = []
    gate = threading.Event()

    async def many():
        batcher = Batcher(doubled(seen, gate))
        first = asyncio.create_task(batcher.submit(torch.ones(1, 1)))
        await asyncio.sleep(0.1)
        cancelled = asyncio.create_task(batcher.submit(torch.ones(7, 1)))
        await asyncio.sleep(0)
        cancelled.cancel()
        kept = asyncio.create_task(batcher.submit(torch.ones(2, 1)))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(first, kept)
        assert batcher.waiting == 0

    asyncio.run(many())
    assert seen == [1, 2]
