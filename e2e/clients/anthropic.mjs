// Anthropic's SDK for Node.
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import * as z from "zod";
import { Forecast, serve, toolResult, tools } from "./jobs.mjs";

const connect = ({ baseURL, apiKey, bearer, once }) => new Anthropic({
  baseURL,
  ...bearer ? { authToken: apiKey } : { apiKey },
  ...once && { maxRetries: 0 },
});

function blocks(job) {
  const content = [{ type: "text", text: job.text }];
  if (job.image) {
    const [, type, data] = /^data:(.*);base64,(.*)$/.exec(job.image);
    content.unshift({ type: "image", source: { type: "base64", media_type: type, data } });
  }
  return content;
}

async function messages(job, result) {
  const client = connect(job);
  const ask = { model: job.model, max_tokens: job.maxTokens, messages: [{ role: "user", content: blocks(job) }] };
  if (job.tools) {
    ask.tools = Object.entries(tools).map(([name, { description, input }]) =>
      ({ name, description, input_schema: z.toJSONSchema(input) }));
  }
  if (job.schema) ask.output_config = { format: zodOutputFormat(Forecast) };
  while (result.rounds < job.rounds) {
    let message, svc;
    if (job.stream) {
      const stream = client.messages.stream(ask);
      stream.on("text", (delta) => { result.text += delta; });
      stream.on("streamEvent", (event) => { svc = event.svc_final?.svc ?? event.svc ?? svc; });
      message = await stream.finalMessage();
    } else {
      message = job.schema ? await client.messages.parse(ask) : await client.messages.create(ask);
      for (const block of message.content) if (block.type === "text") result.text += block.text;
      svc = message.svc;
    }
    const { usage } = message;
    result.rounds++;
    result.input += usage.input_tokens + (usage.cache_read_input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0);
    result.output += usage.output_tokens;
    if (svc) result.charged.push(svc.user_charge_mc);
    result.object = message.parsed_output ?? undefined;
    result.finish = { end_turn: "stop", max_tokens: "length", tool_use: "calls" }[message.stop_reason]
      ?? message.stop_reason;
    const calls = message.content.filter((block) => block.type === "tool_use");
    if (!calls.length) return;
    ask.messages.push({ role: "assistant", content: message.content }, {
      role: "user",
      content: calls.map((call) => ({ type: "tool_result", tool_use_id: call.id, content: toolResult })),
    });
    result.calls.push(...calls.map(({ name, input }) => ({ name, args: input })));
  }
}

// count counts the input of a message.
async function count(job, result) {
  const counted = await connect(job).messages.countTokens({
    model: job.model,
    messages: [{ role: "user", content: blocks(job) }],
  });
  result.object = { counted: counted.input_tokens };
}

async function models(job, result) {
  const client = connect(job);
  const ids = [];
  for await (const { id } of client.models.list()) ids.push(id);
  const one = await client.models.retrieve(job.model);
  result.object = { count: ids.length, listed: ids.includes(job.model), id: one.id, kind: one.type };
}

await serve({ messages, count, models });
