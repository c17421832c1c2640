// Makes embeddings by OpenAI's SDK for Node and by LangChain, as an app would. It prints what the calls that cost
// something were charged, in their order.
import assert from "node:assert/strict";
import OpenAI from "openai";
import { OpenAIEmbeddings } from "@langchain/openai";

const { baseURL, apiKey, poorKey } = JSON.parse(process.argv[2]);
const small = "text-embedding-3-small", large = "text-embedding-3-large", gemini = "gemini-embedding-001";
const text = "The harbour keeps its lamps lit.";
const charged = [];
const sent = []; // the bodies, as the SDK sends them

const seen = async (url, init) => { if (init.body) sent.push(JSON.parse(init.body)); return fetch(url, init); };
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0, fetch: seen });
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);

async function embed(params, dimensions) {
  const list = await client.embeddings.create(params);
  charged.push(list.svc.user_charge_mc);
  assert.equal(list.object, "list");
  assert.equal(list.model, params.model);
  assert.equal(list.usage.prompt_tokens, list.usage.total_tokens);
  const inputs = Array.isArray(params.input) && typeof params.input[0] !== "number" ? params.input.length : 1;
  assert.equal(list.data.length, inputs);
  list.data.forEach(({ object, index, embedding }, i) => {
    assert.equal(object, "embedding");
    assert.equal(index, i);
    assert.equal(embedding.length, dimensions);
    assert.ok(Math.abs(dot(embedding, embedding) - 1) < 1e-5, "the length is 1");
  });
  return list;
}

// The SDK asks for base64 unless told otherwise, and decodes it: the numbers are those of the other encoding.
const first = await embed({ model: small, input: text }, 1536);
assert.equal(sent.at(-1).encoding_format, "base64");
const decimals = await embed({ model: small, input: text, encoding_format: "float" }, 1536);
decimals.data[0].embedding.forEach((x, i) => assert.equal(Math.fround(x), first.data[0].embedding[i]));
const coded = await client.embeddings.create({ model: small, input: text, encoding_format: "base64" });
charged.push(coded.svc.user_charge_mc);
assert.equal(typeof coded.data[0].embedding, "string");

await embed({ model: large, input: [text, "好", text], dimensions: 256 }, 256);
await embed({ model: small, input: [1, 2, 3] }, 1536);
await embed({ model: small, input: [[1, 2], [3]] }, 1536);
const google = await embed({ model: gemini, input: [text, text], dimensions: 768 }, 768);
assert.equal(google.svc.settlement, "estimated");
await embed({ model: gemini, input: text }, 3072);

// An answer that is lost on its way: the SDK asks again, and it costs once.
let tries = 0;
const flaky = new OpenAI({ baseURL, apiKey, fetch: async (url, init) => {
  const response = await fetch(url, init);
  if (++tries > 1) return response;
  await response.text();
  throw new TypeError("fetch failed");
} });
const found = await flaky.embeddings.create({ model: small, input: "lost on its way" });
charged.push(found.svc.user_charge_mc);
assert.equal(tries, 2);

// LangChain.
for (const model of [small, gemini]) {
  const chain = new OpenAIEmbeddings({ model, apiKey, maxRetries: 0, configuration: { baseURL, fetch: async (url, init) => {
    const response = await fetch(url, init);
    charged.push((await response.clone().json()).svc.user_charge_mc);
    return response;
  } } });
  const vectors = await chain.embedDocuments([text, text]);
  assert.equal(vectors.length, 2);
  assert.ok(Math.abs(dot(vectors[0], vectors[1]) - 1) < 1e-5);
}

// The models are listed, and refusals are the SDK's own errors, with our code and the member.
const models = (await client.models.list()).data.filter((m) => m.capabilities.embeddings).map((m) => m.id);
assert.deepEqual(models.sort(), [gemini, large, small].sort());
const refused = (kind, code, key, params) => assert.rejects(
  new OpenAI({ baseURL, apiKey: key, maxRetries: 0 }).embeddings.create({ model: small, input: text, ...params }),
  (e) => e instanceof kind && e.code === code && e.message.length > 0);
await refused(OpenAI.BadRequestError, "invalid_request", apiKey, { model: "gpt-6-luna" });
await refused(OpenAI.BadRequestError, "invalid_request", apiKey, { dimensions: 1537 });
await refused(OpenAI.BadRequestError, "invalid_request", apiKey, { input: [text, ""] });
await refused(OpenAI.BadRequestError, "invalid_request", apiKey, { model: gemini, input: [1, 2] });
await refused(OpenAI.AuthenticationError, "unauthorized", "wrong");
await refused(OpenAI.APIError, "allocation_exhausted", poorKey, { input: Array(2000).fill(text) });
await refused(OpenAI.InternalServerError, "provider_error", apiKey, { input: "!emu status=503 should_retry=false" });
await assert.rejects(client.embeddings.create({ model: small, input: [""] }),
  (e) => e.param === "input");

console.log(JSON.stringify(charged));
