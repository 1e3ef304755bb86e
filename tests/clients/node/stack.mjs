// What every client test needs: where the stack is, what to ask, and what the stack saw.
// The suite that starts these files sets STACK_URL, STACK_KEY and STACK_LOGS.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export const BASE = `${process.env.STACK_URL}/v1`;
export const KEY = process.env.STACK_KEY;
const GATEWAY_LOG = join(process.env.STACK_LOGS, "gateway.log");

export const MODEL = "default";
export const QUESTION = "What is the capital of France?";
export const ENDLESS = "Count from one to five hundred in words.";
// Half a minute of work for the CPU engine at best, and IGNORE_EOS keeps it from ending sooner.
export const ENDLESS_TOKENS = 1500;
export const IGNORE_EOS = { ignore_eos: true };
export const WEATHER = "What is the weather in Paris for the next 3 days?";
export const TIMEOUT_MS = 120_000;
const FREED_MS = 2_000;
// What /status tells of the engine is up to two seconds old, and on a busy host one step of the CPU
// engine takes a second. Still far below what ENDLESS would take.
const ENGINE_FREED_MS = 15_000;

// Small enough for the smallest model: nothing in it can be written at length.
export const CITIES = ["Paris", "Rome", "Berlin"];
export const CITY_SCHEMA = {
  type: "object",
  properties: {
    city: { type: "string", enum: CITIES },
    days: { type: "integer", minimum: 1, maximum: 7 },
  },
  required: ["city", "days"],
  additionalProperties: false,
};
export const TOOL = "get_weather";
export const TOOL_ABOUT = "Weather of a city";
// A PNG of one pixel.
export const PIXEL_URL =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA" +
  "WjR9awAAAABJRU5ErkJggg==";

// A request id that the gateway takes over.
export const newId = () => `client-${randomUUID()}`;

// That `value` is what CITY_SCHEMA asks for.
export function assertFits(value) {
  assert.deepEqual(Object.keys(value).sort(), ["city", "days"]);
  assert.ok(CITIES.includes(value.city), value.city);
  assert.ok(Number.isInteger(value.days) && value.days >= 1 && value.days <= 7, value.days);
}

// Until the engine works on a request, as /status shows it.
export async function waitUntilRunning() {
  await until(async () => (await status()).running === 1, 30_000, "no request runs at the engine");
}

// The log says at once that the client left; gateway and engine have nothing to do.
export async function assertFreed(id) {
  await until(async () => (await outcome(id)) !== undefined, FREED_MS, `no log line of ${id}`);
  assert.equal(await outcome(id), "client_left");
  assert.equal((await status()).gateway.in_flight, 0);
  const resting = async () => (await status()).running === 0;
  await until(resting, ENGINE_FREED_MS, "the engine works for nobody");
}

// How the gateway's log says that the request ended; undefined: no line yet.
async function outcome(id) {
  const lines = (await readFile(GATEWAY_LOG, "utf8")).split("\n");
  const line = lines.find((text) => text.includes(id));
  return line && JSON.parse(line).outcome;
}

async function status() {
  const answer = await fetch(`${process.env.STACK_URL}/status`);
  return answer.json();
}

async function until(condition, timeoutMs, otherwise) {
  const end = performance.now() + timeoutMs;
  while (!(await condition())) {
    assert.ok(performance.now() < end, `${otherwise} after ${timeoutMs} ms`);
    await sleep(20);
  }
}
