// node-redlock's own Redlock over ioredis, told what to do line by line.
//
// Arguments: the servers' URLs. Commands: "acquire KEY MILLISECONDS" answers yes or no; "release KEY" answers
// released or refused.
const readline = require("node:readline");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const clients = process.argv.slice(2).map((url) => new Redis(url));
const redlock = new Redlock(clients, { retryCount: 0 });
redlock.on("error", () => {});
const locks = new Map();

async function answer(words) {
  const [verb, key, milliseconds] = words;
  if (verb === "acquire") {
    try {
      locks.set(key, await redlock.acquire([key], Number(milliseconds)));
      return "yes";
    } catch {
      return "no";
    }
  }
  try {
    await locks.get(key).release();
    locks.delete(key);
    return "released";
  } catch {
    return "refused";
  }
}

async function main() {
  console.log("ready", typeof redlock.acquire);
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(await answer(line.trim().split(/\s+/)));
  }
  for (const client of clients) client.disconnect();
}

main();
