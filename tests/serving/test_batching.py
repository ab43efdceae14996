"""What comes together goes together, and one bad request harms nobody else."""

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


def test_what_waits_is_joined_and_everyone_gets_his_own():
    seen: list[int] = []
    gate = threading.Event()

    async def many():
        batcher = Batcher(doubled(seen, gate), most=8)
        first = asyncio.create_task(batcher.submit(torch.ones(1, 1)))
        await asyncio.sleep(0.1)  # it is under way
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


def test_other_kinds_of_inputs_go_separately():
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


def test_one_bad_request_harms_nobody_else():
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


def test_too_much_is_refused_and_later_there_is_room_again():
    seen: list[int] = []
    gate = threading.Event()

    async def many():
        batcher = Batcher(doubled(seen, gate), waiting=4)
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


def test_what_nobody_waits_for_is_left_out():
    seen: list[int] = []
    gate = threading.Event()

    async def many():
        batcher = Batcher(doubled(seen, gate))
        first = asyncio.create_task(batcher.submit(torch.ones(1, 1)))
        await asyncio.sleep(0.1)
        gone = asyncio.create_task(batcher.submit(torch.ones(7, 1)))
        await asyncio.sleep(0)
        gone.cancel()
        stays = asyncio.create_task(batcher.submit(torch.ones(2, 1)))
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(first, stays)
        assert batcher.waiting == 0

    asyncio.run(many())
    assert seen == [1, 2]
