// The Vercel AI SDK with its providers for OpenAI (Chat Completions and Responses), Anthropic, and compatible services.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject, generateText, stepCountIs, streamObject, streamText, tool } from "ai";
import { Forecast, serve, toolResult, tools } from "./jobs.mjs";

globalThis.AI_SDK_LOG_WARNINGS = false;

const providers = {
  compatible: ({ baseURL, apiKey, model }) => createOpenAICompatible({
    name: "purser",
    baseURL,
    apiKey,
    includeUsage: true,
    supportsStructuredOutputs: true,
  })(model),
  chat: ({ baseURL, apiKey, model }) => createOpenAI({ baseURL, apiKey }).chat(model),
  responses: ({ baseURL, apiKey, model }) => createOpenAI({ baseURL, apiKey }).responses(model),
  messages: ({ baseURL, apiKey, model }) => createAnthropic({ baseURL, apiKey })(model),
};

async function run(job, result) {
  const content = [{ type: "text", text: job.text }];
  if (job.image) content.push({ type: "image", image: job.image });
  const ask = {
    model: providers[job.api](job),
    maxOutputTokens: job.maxTokens,
    ...job.once && { maxRetries: 0 },
    messages: [{ role: "user", content }],
    onError: () => {}, // it would print what the stream reports as well
  };
  if (job.schema) return runObject(ask, job, result);
  if (job.tools) {
    ask.stopWhen = stepCountIs(job.rounds);
    ask.tools = Object.fromEntries(Object.entries(tools).map(([name, { description, input }]) =>
      [name, tool({ description, inputSchema: input, execute: async () => toolResult })]));
  }
  let answer;
  if (job.stream) {
    answer = streamText(ask);
    for await (const part of answer.fullStream) {
      if (part.type === "text-delta") result.text += part.text;
      if (part.type === "error") throw part.error;
    }
  } else {
    answer = await generateText(ask);
    result.text = answer.steps.map((step) => step.text).join("");
  }
  for (const step of await answer.steps) {
    result.rounds++;
    result.calls.push(...step.toolCalls.map(({ toolName, input }) => ({ name: toolName, args: input })));
  }
  const usage = await answer.totalUsage;
  finish(result, await answer.finishReason, usage);
}

async function runObject(ask, job, result) {
  const answer = job.stream
    ? streamObject({ ...ask, schema: Forecast })
    : await generateObject({ ...ask, schema: Forecast });
  if (job.stream) for await (const partial of answer.partialObjectStream) result.text = JSON.stringify(partial);
  result.object = await answer.object;
  result.rounds = 1;
  finish(result, await answer.finishReason, await answer.usage);
}

function finish(result, reason, usage) {
  result.finish = { "content-filter": "refusal", "tool-calls": "calls" }[reason] ?? reason;
  result.input = usage.inputTokens;
  result.output = usage.outputTokens;
}

await serve({ compatible: run, chat: run, responses: run, messages: run });
