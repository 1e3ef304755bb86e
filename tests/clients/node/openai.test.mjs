// The official Node package: chat completions and the Responses API's basics.
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI, { APIUserAbortError, AuthenticationError, BadRequestError, NotFoundError } from "openai";
import * as stack from "./stack.mjs";

const client = connect(stack.KEY);
const tool = {
  type: "function",
  function: {
    name: stack.TOOL,
    description: stack.TOOL_ABOUT,
    parameters: stack.CITY_SCHEMA,
    strict: true,
  },
};
const named = { type: "function", function: { name: stack.TOOL } };

function connect(apiKey) {
  return new OpenAI({ baseURL: stack.BASE, apiKey, timeout: stack.TIMEOUT_MS, maxRetries: 0 });
}

function words(text, options = {}) {
  const messages = [{ role: "user", content: text }];
  return { model: stack.MODEL, messages, temperature: 0, max_tokens: 60, ...options };
}

const endless = (options) =>
  words(stack.ENDLESS, { max_tokens: stack.ENDLESS_TOKENS, ...stack.IGNORE_EOS, ...options });

const ask = (text, options) => client.chat.completions.create(words(text, options));

async function stream(text, options) {
  return Array.fromAsync(await ask(text, { stream: true, ...options }));
}

const textOf = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");

test("chat", async () => {
  const answer = await ask(stack.QUESTION);
  assert.match(answer.choices[0].message.content, /Paris/);
  assert.ok(answer.usage.completion_tokens > 0);
});

test("a stream is the answer in pieces", async () => {
  const whole = await ask(stack.QUESTION);
  const chunks = await stream(stack.QUESTION);
  assert.equal(textOf(chunks), whole.choices[0].message.content);
  assert.ok(chunks.length > 5);
  assert.equal(chunks.at(-1).choices[0].finish_reason, whole.choices[0].finish_reason);
});

test("usage comes when it is asked for, and else stays away", async () => {
  const asked = await stream(stack.QUESTION, { stream_options: { include_usage: true } });
  assert.ok(asked.at(-1).usage.completion_tokens > 0);
  assert.deepEqual(asked.at(-1).choices, []);
  const silent = await stream(stack.QUESTION);
  assert.ok(silent.every((chunk) => !chunk.usage && chunk.choices.length === 1));
});

for (const choice of [named, "required"]) {
  test(`a forced tool and its result (${choice.type ?? choice})`, async () => {
    const first = await ask(stack.WEATHER, { tools: [tool], tool_choice: choice });
    const { message } = first.choices[0];
    const [call] = message.tool_calls;
    assert.equal(call.function.name, stack.TOOL);
    stack.assertFits(JSON.parse(call.function.arguments));
    const result = { role: "tool", tool_call_id: call.id, content: "sunny, 21 degrees" };
    const messages = [{ role: "user", content: stack.WEATHER }, message, result];
    const second = await ask("", { messages, tools: [tool], max_tokens: 16 });
    assert.ok(second.choices[0].message.content);
  });
}

test("structured output", async () => {
  const schema = { name: "trip", schema: stack.CITY_SCHEMA, strict: true };
  const form = { type: "json_schema", json_schema: schema };
  const answer = await ask(stack.WEATHER, { response_format: form });
  stack.assertFits(JSON.parse(answer.choices[0].message.content));
});

test("a picture is refused", async () => {
  const content = [
    { type: "text", text: "What is this?" },
    { type: "image_url", image_url: { url: stack.PIXEL_URL } },
  ];
  await assert.rejects(ask("", { messages: [{ role: "user", content }] }), (error) => {
    assert.ok(error instanceof BadRequestError, error);
    assert.match(error.message, /not a multimodal model/);
    assert.equal(error.headers.get("content-type"), "application/json");
    return true;
  });
});

test("a stream that is left frees the engine", async () => {
  const id = stack.newId();
  const chunks = await client.chat.completions.create(
    endless({ stream: true }),
    { headers: { "x-request-id": id } },
  );
  for await (const chunk of chunks) {
    assert.ok(chunk);
    await stack.waitUntilRunning();
    break; // the package aborts the request
  }
  await stack.assertFreed(id);
});

test("an aborted question frees the engine", async () => {
  const id = stack.newId();
  const leaving = new AbortController();
  const question = client.chat.completions.create(
    endless(),
    { headers: { "x-request-id": id }, signal: leaving.signal },
  );
  const refused = assert.rejects(question, APIUserAbortError);
  await stack.waitUntilRunning();
  leaving.abort();
  await refused;
  await stack.assertFreed(id);
});

test("a wrong key", async () => {
  const question = connect("sk-nobody-has-this-one").chat.completions.create(words(stack.QUESTION));
  await assert.rejects(question, AuthenticationError);
});

test("an unknown model", async () => {
  await assert.rejects(ask(stack.QUESTION, { model: "nothing" }), NotFoundError);
});
