/* Tries a running server with Vercel's `ai` and `@ai-sdk/openai-compatible`.

    npm install ai@7.0.173 @ai-sdk/openai-compatible@3.0.92 zod@4.6.7
    duet serve qwen2.5-coder-0.5b
    node tests/clients/ai_sdk.mjs http://127.0.0.1:8080/v1

One line per check; exits non-zero if any failed. Nothing is expected of what the model says; where it has to call a tool it
is made to. */

import assert from "node:assert/strict";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { z } from "zod";

const baseURL = process.argv[2] ?? "http://127.0.0.1:8080/v1";
const duet = createOpenAICompatible({ name: "duet", baseURL, apiKey: "none", supportsStructuredOutputs: true, includeUsage: true });
const short = { model: duet("default"), maxOutputTokens: 100, temperature: 0, maxRetries: 0 };
const schema = z.object({ name: z.string().max(20), warm: z.boolean() });
let called = 0;
const inputSchema = z.object({ a: z.number().int(), b: z.number().int() });
const add = tool({ description: "Adds two numbers.", inputSchema, execute: ({ a, b }) => (called++, a + b) });
const prompt = "Add 2 and 3 with the tool.";
// Made to call at first, and to answer then.
const prepareStep = ({ stepNumber }) => ({ toolChoice: stepNumber === 0 ? "required" : "none" });

const checks = {
  async "generateText answers"() {
    const { text, usage } = await generateText({ ...short, prompt: "Name a colour." });
    assert(text && usage.outputTokens > 0);
  },
  async "generateText calls a tool and goes on"() {
    called = 0;
    const { steps } = await generateText({ ...short, prompt, tools: { add }, stopWhen: stepCountIs(2), prepareStep });
    assert(called > 0 && steps.length === 2, JSON.stringify(steps.map((step) => step.finishReason)));
  },
  async "streamText streams"() {
    const result = streamText({ ...short, prompt: "Name a colour." });
    let text = "";
    for await (const part of result.textStream) text += part;
    assert(text && (await result.usage).outputTokens > 0);
  },
  async "streamText calls a tool and goes on"() {
    called = 0;
    const result = streamText({ ...short, prompt, tools: { add }, stopWhen: stepCountIs(2), prepareStep });
    const kinds = new Set();
    for await (const part of result.fullStream) kinds.add(part.type);
    assert(called > 0 && kinds.has("tool-call") && kinds.has("tool-result") && !kinds.has("error"), [...kinds].join(" "));
  },
  async "generateObject keeps to a schema"() {
    const { object } = await generateObject({ ...short, schema, prompt: "Name a colour, and say whether it is warm." });
    assert.equal(typeof object.warm, "boolean");
  },
  async "streamObject does so too"() {
    const result = streamObject({ ...short, schema, prompt: "Name a colour, and say whether it is warm." });
    for await (const _ of result.partialObjectStream);
    assert.equal(typeof (await result.object).warm, "boolean");
  },
};

let failed = 0;
for (const [name, check] of Object.entries(checks)) {
  try {
    await check();
    console.log(`ok     ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}: ${error.stack}`);
  }
}
console.log(`${failed} failed`);
process.exit(failed ? 1 : 0);
