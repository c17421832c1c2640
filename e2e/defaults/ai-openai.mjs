// The AI SDK with its provider for OpenAI, which speaks Responses.
import { openai } from "@ai-sdk/openai";
import { generateText, stepCountIs, tool } from "ai";
import * as z from "zod";
import { model, task, weather } from "./task.mjs";

const { text } = await generateText({
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
});
console.log(text);
