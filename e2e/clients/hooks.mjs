// The hooks of @purser/sdk in the official SDKs and the Vercel AI SDK. The access token has ended, so that each of them
// works only if the hook refreshes it. Prints how many calls were billed.
import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import Anthropic from "@anthropic-ai/sdk";
import { generateText, streamText } from "ai";
import OpenAI from "openai";
import {
  anthropicOptions, MemoryTokenStore, openAIOptions, Purser, vercelOptions,
} from "../../sdk/typescript/dist/index.js";

globalThis.AI_SDK_LOG_WARNINGS = false;
const { baseURL, clientID, clientSecret, tokens } = JSON.parse(process.argv[2]);
const store = new MemoryTokenStore();
const purser = new Purser({ baseURL, clientID, clientSecret, tokens: store });
const connection = purser.connection(tokens.connection_id);
const model = "gpt-6-luna", text = "Hello", messages = [{ role: "user", content: text }];
let billed = 0;

// end makes the next request find a token that has ended, or one that the server rejects.
async function end(how) {
  const now = await store.load(tokens.connection_id) ?? tokens;
  await store.save(tokens.connection_id, how === "rejected"
    ? { ...now, access_token: "not-a-token", expires_at: "2099-01-01T00:00:00Z" }
    : { ...now, expires_at: "2020-01-01T00:00:00Z" });
}

for (const how of ["ended", "rejected"]) {
  await end(how);
  const openai = new OpenAI({ ...openAIOptions(connection), maxRetries: 0 });
  const completion = await openai.chat.completions.create({ model, messages, max_completion_tokens: 50 });
  assert.ok(completion.choices[0].message.content && completion.svc.user_charge_mc > 0);
  billed++;

  await end(how);
  const response = await openai.responses.create({ model, input: text, max_output_tokens: 50 });
  assert.ok(response.output_text);
  billed++;

  await end(how);
  const anthropic = new Anthropic({ ...anthropicOptions(connection), maxRetries: 0 });
  const stream = anthropic.messages.stream({ model, messages, max_tokens: 50 });
  assert.ok((await stream.finalMessage()).content[0].text);
  billed++;

  const models = [
    createOpenAI(vercelOptions(connection)).chat(model),
    createOpenAICompatible(vercelOptions(connection))(model),
    createAnthropic(vercelOptions(connection, "anthropic"))(model),
  ];
  for (const one of models) {
    await end(how);
    assert.ok((await generateText({ model: one, prompt: text, maxOutputTokens: 50, maxRetries: 0 })).text);
    await end(how);
    assert.ok(await streamText({ model: one, prompt: text, maxOutputTokens: 50, maxRetries: 0 }).text);
    billed += 2;
  }
}
await assert.rejects(connection.fetch("https://other.example/v1/models"), { code: "invalid_request" });
console.log(billed);
