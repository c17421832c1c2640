// Calls Purser's drop-in route by the official OpenAI SDK and prints ok.
import assert from "node:assert/strict";
import OpenAI from "openai";

const [baseURL, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const ask = { model: "gpt-5.4-mini", max_completion_tokens: 100, messages: [{ role: "user", content: "Hello" }] };

const whole = await client.chat.completions.create(ask);
assert.ok(whole.choices[0].message.content && whole.svc.user_charge_mc > 0);

let text = "", last;
for await (const chunk of await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } })) {
  text += chunk.choices[0]?.delta.content ?? "";
  last = chunk;
}
assert.equal(text, whole.choices[0].message.content);
assert.equal(last.svc_final.svc.user_charge_mc, whole.svc.user_charge_mc);
assert.equal(last.usage.total_tokens, whole.usage.total_tokens);

const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } }];
const called = await client.chat.completions.create({ ...ask, tools });
assert.equal(called.choices[0].finish_reason, "tool_calls");
const message = called.choices[0].message;
const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "sunny" };
const answered = await client.chat.completions.create({ ...ask, tools, messages: [...ask.messages, message, result] });
assert.equal(answered.choices[0].finish_reason, "stop");

await assert.rejects(client.chat.completions.create({ ...ask, model: "gpt-0" }), (e) => e instanceof OpenAI.BadRequestError && e.code === "invalid_request");
await assert.rejects(new OpenAI({ baseURL, apiKey: "wrong", maxRetries: 0 }).chat.completions.create(ask), OpenAI.AuthenticationError);
console.log("ok");
