// Calls Purser's drop-in route by the official OpenAI SDK, as its users would.
// It prints how many calls it made that cost something.
import assert from "node:assert/strict";
import OpenAI from "openai";

const { baseURL, apiKey, poorKey, revokedKey } = JSON.parse(process.argv[2]);
const client = new OpenAI({ baseURL, apiKey });
const ask = { model: "gpt-5.4-mini", max_completion_tokens: 100, messages: [{ role: "user", content: "Hello" }] };
let billed = 0;

// Whole.
const whole = await client.chat.completions.create(ask);
assert.ok(whole.choices[0].message.content && whole.svc.user_charge_mc > 0);
billed++;

// Streamed, chunk by chunk and by the SDK's own helper.
let text = "", last;
for await (const chunk of await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } })) {
  text += chunk.choices[0]?.delta.content ?? "";
  last = chunk;
}
assert.equal(text, whole.choices[0].message.content);
assert.equal(last.svc_final.svc.user_charge_mc, whole.svc.user_charge_mc);
assert.equal(last.svc_final.settlement, "settled");
assert.equal(last.usage.total_tokens, whole.usage.total_tokens);
const final = await client.chat.completions.stream(ask).finalChatCompletion();
assert.equal(final.choices[0].message.content, text);
billed += 2;

// Tools: by hand, forced, and by the SDK's loop, which calls our functions.
const tool = (name, more) => ({ type: "function", function: { name, parameters: { type: "object", properties: {} }, ...more } });
const tools = [tool("weather"), tool("time")];
const called = await client.chat.completions.create({ ...ask, tools, tool_choice: { type: "function", function: { name: "time" } } });
assert.equal(called.choices[0].finish_reason, "tool_calls");
const message = called.choices[0].message;
assert.equal(message.tool_calls[0].function.name, "time");
const result = { role: "tool", tool_call_id: message.tool_calls[0].id, content: "noon" };
const answered = await client.chat.completions.create({ ...ask, tools, messages: [...ask.messages, message, result] });
assert.equal(answered.choices[0].finish_reason, "stop");
billed += 2;
for (const stream of [false, true]) {
  let runs = 0;
  const weather = tool("weather", { parse: JSON.parse, function: () => { runs++; return "sunny"; } });
  const loop = client.chat.completions.runTools({ ...ask, stream, tools: [weather] });
  assert.ok(await loop.finalContent());
  assert.equal(runs, 1);
  billed += 2;
}

// An answer that is lost on its way: the SDK asks again, and it costs once.
for (const stream of [false, true]) {
  let sent = 0;
  const flaky = new OpenAI({ baseURL, apiKey, fetch: async (url, init) => {
    const response = await fetch(url, init);
    if (++sent > 1) return response;
    await response.text();
    throw new TypeError("fetch failed");
  } });
  const lost = { ...ask, messages: [{ role: "user", content: `Lost, stream=${stream}` }] };
  if (stream) assert.ok((await flaky.chat.completions.stream(lost).finalChatCompletion()).choices[0].message.content);
  else assert.ok((await flaky.chat.completions.create(lost)).choices[0].message.content);
  assert.equal(sent, 2);
  billed++;
}

// Leaving in the middle of a stream still pays for the call.
const left = await client.chat.completions.create({ ...ask, stream: true, messages: [{ role: "user", content: "A story.\n!mock words=40 pace=20ms" }] });
let seen = 0;
for await (const _ of left) if (++seen === 3) left.controller.abort();
assert.equal(seen, 3);
billed++;

// Refusals are the SDK's own errors, with our code.
const refused = (kind, code, key, params) => assert.rejects(new OpenAI({ baseURL, apiKey: key }).chat.completions.create({ ...ask, ...params }),
  (e) => e instanceof kind && e.code === code && e.message.length > 0);
await refused(OpenAI.BadRequestError, "invalid_request", apiKey, { model: "gpt-0" });
await refused(OpenAI.AuthenticationError, "unauthorized", "wrong");
await refused(OpenAI.APIError, "allocation_exhausted", poorKey);
await refused(OpenAI.PermissionDeniedError, "connection_revoked", revokedKey);
await refused(OpenAI.InternalServerError, "provider_error", apiKey, { messages: [{ role: "user", content: "!mock status=500" }] });
const headers = { "Idempotency-Key": crypto.randomUUID() };
await client.chat.completions.create(ask, { headers });
billed++;
await assert.rejects(client.chat.completions.create({ ...ask, max_completion_tokens: 99 }, { headers }), (e) => e instanceof OpenAI.ConflictError && e.code === "idempotency_key_reused");

console.log(billed);
