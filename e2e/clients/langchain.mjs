// LangChain with its packages for OpenAI (Chat Completions and Responses) and Anthropic.
import { ChatAnthropic } from "@langchain/anthropic";
import { HumanMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { Forecast, serve, toolResult, tools } from "./jobs.mjs";

const openAI = (useResponsesApi) => ({ baseURL, apiKey, model, maxTokens, once }) => new ChatOpenAI({
  model,
  apiKey,
  maxTokens,
  useResponsesApi,
  ...once && { maxRetries: 0 },
  configuration: { baseURL },
});
const connect = {
  chat: openAI(false),
  responses: openAI(true),
  messages: ({ baseURL, apiKey, model, maxTokens, once }) =>
    new ChatAnthropic({ model, apiKey, maxTokens, ...once && { maxRetries: 0 }, anthropicApiUrl: baseURL }),
};
const functions = Object.entries(tools).map(([name, { description, input }]) =>
  tool(async () => toolResult, { name, description, schema: input }));

async function run(job, result) {
  let model = connect[job.api](job);
  const content = [{ type: "text", text: job.text }];
  if (job.image) content.push({ type: "image_url", image_url: { url: job.image } });
  const messages = [new HumanMessage({ content })];
  if (job.tools) model = model.bindTools(functions);
  if (job.schema) {
    const structured = model.withStructuredOutput(Forecast, { name: "forecast", includeRaw: true });
    let answer = {};
    if (job.stream) for await (const part of await structured.stream(messages)) answer = { ...answer, ...part };
    else answer = await structured.invoke(messages);
    result.object = answer.parsed;
    return count(result, answer.raw);
  }
  while (result.rounds < job.rounds) {
    let message;
    if (job.stream) {
      for await (const chunk of await model.stream(messages)) {
        message = message ? message.concat(chunk) : chunk;
        result.text += chunk.text;
      }
    } else {
      message = await model.invoke(messages);
      result.text += message.text;
    }
    count(result, message);
    if (!message.tool_calls?.length) return;
    messages.push(message);
    for (const call of message.tool_calls) {
      result.calls.push({ name: call.name, args: call.args });
      messages.push(new ToolMessage({ content: toolResult, tool_call_id: call.id, name: call.name }));
    }
  }
}

function count(result, message) {
  const { usage_metadata: usage, response_metadata: about, additional_kwargs: more } = message;
  result.rounds++;
  result.input += usage?.input_tokens ?? 0;
  result.output += usage?.output_tokens ?? 0;
  const reason = about.finish_reason ?? about.stop_reason ?? more?.stop_reason ?? about.incomplete_details?.reason
    ?? (message.tool_calls?.length ? "calls" : "stop");
  result.finish = more?.refusal ? "refusal" : {
    content_filter: "refusal",
    tool_calls: "calls",
    end_turn: "stop",
    max_tokens: "length",
    max_output_tokens: "length",
    tool_use: "calls",
  }[reason] ?? reason;
}

await serve({ chat: run, responses: run, messages: run });
