// The AI SDK with its provider for OpenAI, which speaks Responses.
import { openai } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import * as z from "zod";
import { model, streams, task, weather } from "./task.mjs";

const ask = {
  model: openai(model),
  providerOptions: { openai: { reasoningEffort: "low" } },
  tools: {
    weather: tool({
      description: "Tells the weather.",
      inputSchema: z.object({ city: z.string() }),
      execute: async (input) => weather(input),
    }),
  },
  stopWhen: stepCountIs(5),
  prompt: task,
};
console.log(await (streams ? streamText(ask) : await generateText(ask)).text);
