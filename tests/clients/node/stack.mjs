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
export const STORY = "Write three sentences about the sea.";
export const ENDLESS = "Count from one to five hundred in words.";
export const ENDLESS_TOKENS = 1500; // minutes of work for the CPU engine: the client leaves before
export const WEATHER = "What is the weather in Paris for the next 3 days?";
export const TIMEOUT_MS = 120_000;
const FREED_MS = 2_000;

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

// The engine and the gateway are idle in time, and the log says that the client left.
export async function assertFreed(id) {
  await until(idle, FREED_MS, "the stack still works on a request that nobody waits for");
  await until(async () => (await outcome(id)) !== undefined, FREED_MS, `no log line of ${id}`);
  assert.equal(await outcome(id), "client_left");
}

// How the gateway's log says that the request ended; undefined: no line yet.
async function outcome(id) {
  const lines = (await readFile(GATEWAY_LOG, "utf8")).split("\n");
  const line = lines.find((text) => text.includes(id));
  return line && JSON.parse(line).outcome;
}

async function idle() {
  const now = await status();
  return now.running === 0 && now.gateway.in_flight === 0;
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
