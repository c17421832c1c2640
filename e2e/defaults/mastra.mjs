// Mastra with the provider of the AI SDK for OpenAI, which speaks Responses.
import { openai } from "@ai-sdk/openai";
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import * as z from "zod";
import { model, streams, task, weather } from "./task.mjs";

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
const options = { providerOptions: { openai: { reasoningEffort: "low" } } };
const { text } = streams ? await agent.stream(task, options) : await agent.generate(task, options);
console.log(await text);
