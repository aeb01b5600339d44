/* Tries a running server with the official `openai` package for Node.

    npm install openai@7.57.0
    node tests/clients/openai_node.mjs http://127.0.0.1:8080/v1

One line per check; exits non-zero if any failed. Works with any model: nothing is expected of what it says. */

import assert from "node:assert/strict";
import OpenAI from "openai";

const client = new OpenAI({ baseURL: process.argv[2] ?? "http://127.0.0.1:8080/v1", apiKey: "none", maxRetries: 0 });
const short = { model: "default", max_tokens: 24, temperature: 0, messages: [{ role: "user", content: "Name a colour." }] };
const parameters = { type: "object", properties: { a: { type: "integer" }, b: { type: "integer" } }, required: ["a", "b"] };
const add = { type: "function", function: { name: "add", description: "Adds two numbers.", parameters } };

const checks = {
  async "models are listed"() {
    const models = [];
    for await (const model of client.models.list()) models.push(model);
    assert.equal(models[0].object, "model");
  },
  async "a chat is answered and streamed"() {
    const whole = await client.chat.completions.create(short);
    assert(whole.choices[0].message.content && whole.usage.completion_tokens > 0);
    let text = "";
    for await (const chunk of await client.chat.completions.create({ ...short, stream: true })) {
      text += chunk.choices[0]?.delta?.content ?? "";
    }
    assert.equal(text, whole.choices[0].message.content);
  },
  async "a call is streamed, and its result told"() {
    const asked = { ...short, max_tokens: 100, tools: [add], tool_choice: "required", parallel_tool_calls: false };
    const message = await client.chat.completions.stream(asked).finalMessage();
    const [call] = message.tool_calls;
    assert.deepEqual(Object.keys(JSON.parse(call.function.arguments)).sort(), ["a", "b"]);
    const result = { role: "tool", tool_call_id: call.id, content: "5" };
    const next = await client.chat.completions.create({ ...short, messages: [...short.messages, message, result], tools: [add] });
    assert(next.choices.length);
  },
  async "tools are run"() {
    let called = 0;
    const tool = { type: "function", function: { ...add.function, function: () => String(++called), parse: JSON.parse } };
    const asked = { ...short, max_tokens: 100, tools: [tool], tool_choice: { type: "function", function: { name: "add" } } };
    await client.chat.completions.runTools(asked).done();
    assert.equal(called, 1);
  },
  async "an answer has the form that was asked for"() {
    const schema = { type: "object", properties: { warm: { type: "boolean" } }, required: ["warm"], additionalProperties: false };
    const response_format = { type: "json_schema", json_schema: { name: "answer", strict: true, schema } };
    const parsed = (await client.chat.completions.parse({ ...short, response_format })).choices[0].message.parsed;
    assert.equal(typeof parsed.warm, "boolean");
  },
  async "responses are created and streamed"() {
    const asked = { model: "default", input: "Name a colour.", max_output_tokens: 24, temperature: 0 };
    const whole = await client.responses.create(asked);
    const kinds = [];
    for await (const event of await client.responses.create({ ...asked, stream: true })) kinds.push(event.type);
    assert(whole.output_text && kinds[0] === "response.created" && /completed|incomplete/.test(kinds.at(-1)));
  },
  async "errors have their types"() {
    await assert.rejects(client.chat.completions.create({ ...short, model: "gpt-4o" }), OpenAI.NotFoundError);
    await assert.rejects(client.chat.completions.create({ ...short, temperature: -1 }), OpenAI.BadRequestError);
  },
  async "a stream may be given up"() {
    const stream = await client.chat.completions.create({ ...short, max_tokens: 1000, stream: true });
    for await (const _ of stream) break;
    assert((await client.chat.completions.create(short)).choices.length);
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
