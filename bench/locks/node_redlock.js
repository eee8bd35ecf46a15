// Acquire and release with node-redlock: PORT TASKS SECONDS. Prints pairs per second.
const { default: Redis } = require("ioredis");
const { default: Redlock } = require("redlock");

const [port, tasks, seconds] = process.argv.slice(2).map(Number);
const client = new Redis(port, "127.0.0.1");
const redlock = new Redlock([client], { retryCount: 0 });
let pairs = 0;
let over = false;

async function work(task) {
  while (!over) {
    const lock = await redlock.acquire([`bench:node:${task}`], 10000);
    await lock.release();
    pairs += 1;
  }
}

(async () => {
  const working = Array.from({ length: tasks }, (_, task) => work(task));
  await new Promise((resolve) => setTimeout(resolve, 500));
  const [began, before] = [process.hrtime.bigint(), pairs];
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  const rate = (pairs - before) / (Number(process.hrtime.bigint() - began) / 1e9);
  over = true;
  await Promise.all(working);
  console.log(rate.toFixed(1));
  client.disconnect();
})();
