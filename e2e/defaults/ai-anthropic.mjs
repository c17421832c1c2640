// The AI SDK with its provider for Anthropic, streamed.
import { anthropic } from "@ai-sdk/anthropic";
import { stepCountIs, streamText, tool } from "ai";
import * as z from "zod";
import { model, task, weather } from "./task.mjs";

const { text } = streamText({
  model: anthropic(model),
  providerOptions: { anthropic: { thinking: { type: "enabled", budgetTokens: 12000 } } },
  tools: {
    weather: tool({
      description: "Tells the weather.",
      inputSchema: z.object({ city: z.string() }),
      execute: async (input) => weather(input),
    }),
  },
  stopWhen: stepCountIs(5),
  prompt: task,
});
console.log(await text);
