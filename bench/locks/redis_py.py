"""Acquire and release with redis-py's asyncio lock: PORT TASKS SECONDS. Prints pairs per second."""

import asyncio
import sys
import time

import redis.asyncio

PORT, TASKS, SECONDS = (int(argument) for argument in sys.argv[1:4])


async def main():
    client = redis.asyncio.Redis(port=PORT, max_connections=TASKS + 1)
    pairs = 0
    over = False

    async def work(task):
        nonlocal pairs
        while not over:
            lock = client.lock(f"bench:python:{task}", timeout=10)
            assert await lock.acquire(blocking=False)
            await lock.release()
            pairs += 1

    working = [asyncio.create_task(work(task)) for task in range(TASKS)]
    await asyncio.sleep(0.5)
    began, before = time.monotonic(), pairs
    await asyncio.sleep(SECONDS)
    rate = (pairs - before) / (time.monotonic() - began)
    over = True
    await asyncio.gather(*working)
    await client.aclose()
    print(f"{rate:.1f}")


asyncio.run(main())
