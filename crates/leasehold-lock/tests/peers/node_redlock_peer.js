// node-redlock's own Redlock over ioredis, told what to do line by line.
//
// Argument: the server's URL. Commands: "acquire KEY MILLISECONDS" answers yes or no; "release KEY" answers
// released or refused.
const readline = require("node:readline");
const Redis = require("ioredis");
const { default: Redlock } = require("redlock");

const client = new Redis(process.argv[2]);
const redlock = new Redlock([client], { retryCount: 0 });
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
  client.disconnect();
}

main();
