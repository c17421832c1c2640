// The AI SDK with its provider for Anthropic.
import { anthropic } from "@ai-sdk/anthropic";
import { generateText, stepCountIs, streamText, tool } from "ai";
import * as z from "zod";
import { model, streams, task, weather } from "./task.mjs";

const ask = {
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
};
console.log(await (streams ? streamText(ask) : await generateText(ask)).text);
