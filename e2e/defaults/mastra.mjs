// Mastra with the provider of the AI SDK for OpenAI, which speaks Responses.
import { openai } from "@ai-sdk/openai";
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import * as z from "zod";
import { model, task, weather } from "./task.mjs";

const agent = new Agent({
  id: "assistant",
  name: "Assistant",
  instructions: "You are a helpful assistant.",
  model: openai(model),
  tools: {
    weather: createTool({
      id: "weather",
      description: "Tells the weather.",
      inputSchema: z.object({ city: z.string() }),
      execute: async (input) => weather(input),
    }),
  },
});
const { text } = await agent.generate(task, { providerOptions: { openai: { reasoningEffort: "low" } } });
console.log(text);
