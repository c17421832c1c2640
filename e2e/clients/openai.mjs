// OpenAI's SDK for Node.
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import * as z from "zod";
import { Forecast, serve, toolResult, tools } from "./jobs.mjs";

const connect = ({ baseURL, apiKey, once }) => new OpenAI({ baseURL, apiKey, ...once && { maxRetries: 0 } });
const functions = Object.entries(tools).map(([name, { description, input }]) =>
  ({ type: "function", name, description, parameters: z.toJSONSchema(input) }));

async function chat(job, result) {
  const client = connect(job);
  const content = job.image
    ? [{ type: "text", text: job.text }, { type: "image_url", image_url: { url: job.image } }]
    : job.text;
  const ask = { model: job.model, max_completion_tokens: job.maxTokens, messages: [{ role: "user", content }] };
  if (job.tools) ask.tools = functions.map(({ type, ...rest }) => ({ type, function: rest }));
  if (job.schema) ask.response_format = zodResponseFormat(Forecast, "forecast");
  while (result.rounds < job.rounds) {
    let completion, svc;
    if (job.stream) {
      const stream = client.chat.completions.stream({ ...ask, stream_options: { include_usage: true } });
      stream.on("content.delta", ({ delta }) => { result.text += delta; });
      stream.on("chunk", (chunk) => { svc = chunk.svc_final?.svc ?? svc; });
      completion = await stream.finalChatCompletion();
    } else {
      completion = job.schema ? await client.chat.completions.parse(ask) : await client.chat.completions.create(ask);
      result.text += completion.choices[0].message.content ?? "";
      svc = completion.svc;
    }
    const { message, finish_reason } = completion.choices[0];
    result.rounds++;
    result.input += completion.usage.prompt_tokens;
    result.output += completion.usage.completion_tokens;
    result.charged.push(svc.user_charge_mc);
    result.object = message.parsed ?? undefined;
    result.finish = message.refusal ? "refusal"
      : { content_filter: "refusal", tool_calls: "calls" }[finish_reason] ?? finish_reason;
    if (!message.tool_calls?.length) return;
    ask.messages.push(message);
    for (const call of message.tool_calls) {
      result.calls.push({ name: call.function.name, args: JSON.parse(call.function.arguments) });
      ask.messages.push({ role: "tool", tool_call_id: call.id, content: toolResult });
    }
  }
}

async function responses(job, result) {
  const client = connect(job);
  const content = [{ type: "input_text", text: job.text }];
  if (job.image) content.push({ type: "input_image", image_url: job.image, detail: "auto" });
  const ask = {
    model: job.model,
    max_output_tokens: job.maxTokens,
    input: [{ role: "user", content }],
  };
  if (job.tools) ask.tools = functions;
  if (job.schema) ask.text = { format: zodTextFormat(Forecast, "forecast") };
  while (result.rounds < job.rounds) {
    let response;
    if (job.stream) {
      const stream = client.responses.stream(ask);
      stream.on("response.output_text.delta", ({ delta }) => { result.text += delta; });
      response = await stream.finalResponse();
    } else {
      response = job.schema ? await client.responses.parse(ask) : await client.responses.create(ask);
      result.text += response.output_text;
    }
    result.rounds++;
    result.input += response.usage.input_tokens;
    result.output += response.usage.output_tokens;
    if (response.svc) result.charged.push(response.svc.user_charge_mc);
    result.object = response.output_parsed ?? undefined;
    const parts = response.output.flatMap((item) => (item.type === "message" ? item.content : []));
    const calls = response.output.filter((item) => item.type === "function_call");
    result.finish = parts.some((part) => part.type === "refusal") ? "refusal"
      : { max_output_tokens: "length", content_filter: "refusal" }[response.incomplete_details?.reason]
        ?? (calls.length ? "calls" : "stop");
    if (response.error) throw Object.assign(new Error(response.error.message), { code: response.error.code });
    if (!calls.length) return;
    ask.input.push(...response.output);
    for (const call of calls) {
      result.calls.push({ name: call.name, args: JSON.parse(call.arguments) });
      ask.input.push({ type: "function_call_output", call_id: call.call_id, output: toolResult });
    }
  }
}

// models lists the models by the SDK's own pages, and asks for one of them.
async function models(job, result) {
  const client = connect(job);
  const ids = [];
  for await (const { id } of client.models.list()) ids.push(id);
  const one = await client.models.retrieve(job.model);
  result.object = { count: ids.length, listed: ids.includes(job.model), id: one.id, kind: one.object };
}

async function embeddings(job, result) {
  const made = await connect(job).embeddings.create({ model: job.model, input: [job.text, "Another text."] });
  result.rounds = 1;
  result.input = made.usage.prompt_tokens;
  if (made.svc) result.charged.push(made.svc.user_charge_mc);
  result.object = { count: made.data.length, dimensions: made.data[0].embedding.length };
}

await serve({ chat, responses, models, embeddings });
