// Vercel's AI SDK with its provider for OpenAI-compatible servers.
import assert from "node:assert/strict";
import { test } from "node:test";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import {
  APICallError,
  Output,
  generateObject,
  generateText,
  jsonSchema,
  streamText,
  tool,
} from "ai";
import * as stack from "./stack.mjs";

const tools = {
  [stack.TOOL]: tool({
    description: stack.TOOL_ABOUT,
    inputSchema: jsonSchema(stack.CITY_SCHEMA),
    strict: true,
  }),
};

function model({ name = stack.MODEL, apiKey = stack.KEY, includeUsage = true } = {}) {
  const provider = createOpenAICompatible({
    name: "stack",
    baseURL: stack.BASE,
    apiKey,
    includeUsage,
    supportsStructuredOutputs: true,
  });
  return provider.chatModel(name);
}

function words(prompt, options = {}) {
  return { model: model(), prompt, temperature: 0, maxOutputTokens: 60, maxRetries: 0, ...options };
}

const refusedWith = (status, pattern) => (error) => {
  assert.ok(APICallError.isInstance(error), error);
  assert.equal(error.statusCode, status);
  assert.match(error.message, pattern);
  return true;
};

test("chat", async () => {
  const answer = await generateText(words(stack.QUESTION));
  assert.match(answer.text, /Paris/);
  assert.ok(answer.usage.outputTokens > 0);
});

for (const includeUsage of [true, false]) {
  test(`a stream is the answer in pieces (usage asked for: ${includeUsage})`, async () => {
    const whole = await generateText(words(stack.QUESTION));
    const streamed = streamText(words(stack.QUESTION, { model: model({ includeUsage }) }));
    const pieces = await Array.fromAsync(streamed.textStream);
    assert.equal(pieces.join(""), whole.text);
    assert.ok(pieces.length > 5);
    assert.equal(await streamed.finishReason, whole.finishReason);
    const counted = (await streamed.usage).outputTokens;
    assert.equal(counted, includeUsage ? whole.usage.outputTokens : undefined);
  });
}

for (const toolChoice of [{ type: "tool", toolName: stack.TOOL }, "required"]) {
  test(`a forced tool and its result (${toolChoice.type ?? toolChoice})`, async () => {
    const first = await generateText(words(stack.WEATHER, { tools, toolChoice }));
    const [call] = first.toolCalls;
    assert.equal(call.toolName, stack.TOOL);
    stack.assertFits(call.input);
    const output = { type: "text", value: "sunny, 21 degrees" };
    const { toolCallId, toolName } = call;
    const result = { role: "tool", content: [{ type: "tool-result", toolCallId, toolName, output }] };
    const question = { role: "user", content: stack.WEATHER };
    const messages = [question, ...first.response.messages, result];
    const second = await generateText({ ...words(undefined, { messages, maxOutputTokens: 16 }), tools });
    assert.ok(second.text);
  });
}

test("structured output (generateObject)", async () => {
  const schema = jsonSchema(stack.CITY_SCHEMA);
  const answer = await generateObject(words(stack.WEATHER, { schema }));
  stack.assertFits(answer.object);
});

test("structured output (its successor, Output.object)", async () => {
  const output = Output.object({ schema: jsonSchema(stack.CITY_SCHEMA) });
  const answer = await generateText(words(stack.WEATHER, { output }));
  stack.assertFits(answer.output);
});

test("a picture is refused", async () => {
  const content = [
    { type: "text", text: "What is this?" },
    { type: "file", data: stack.PIXEL_URL, mediaType: "image/png" },
  ];
  const question = generateText(words(undefined, { messages: [{ role: "user", content }] }));
  await assert.rejects(question, refusedWith(400, /not a multimodal model/));
});

test("an aborted stream frees the engine", async () => {
  const id = stack.newId();
  const leaving = new AbortController();
  const streamed = streamText(
    words(stack.ENDLESS, {
      maxOutputTokens: stack.ENDLESS_TOKENS,
      providerOptions: { stack: stack.IGNORE_EOS }, // under the provider's name
      headers: { "x-request-id": id },
      abortSignal: leaving.signal,
    }),
  );
  const pieces = streamed.textStream[Symbol.asyncIterator]();
  assert.equal((await pieces.next()).done, false);
  await stack.waitUntilRunning();
  leaving.abort();
  await stack.assertFreed(id);
});

test("a wrong key", async () => {
  const question = generateText(words(stack.QUESTION, { model: model({ apiKey: "sk-nobody" }) }));
  await assert.rejects(question, refusedWith(401, /not valid/));
});

test("an unknown model", async () => {
  const question = generateText(words(stack.QUESTION, { model: model({ name: "nothing" }) }));
  await assert.rejects(question, refusedWith(404, /does not exist/));
});
