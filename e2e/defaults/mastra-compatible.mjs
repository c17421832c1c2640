// Mastra with a provider of OpenAI's kind, by Chat Completions.
import { Agent } from "@mastra/core/agent";
import { createTool } from "@mastra/core/tools";
import * as z from "zod";
import { model, streams, task, weather } from "./task.mjs";

const agent = new Agent({
  id: "assistant",
  name: "Assistant",
  instructions: "You are a helpful assistant.",
  model: { id: `purser/${model}`, url: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY },
  tools: {
    weather: createTool({
      id: "weather",
      description: "Tells the weather.",
      inputSchema: z.object({ city: z.string() }),
      execute: async (input) => weather(input),
    }),
  },
});
const { text } = streams ? await agent.stream(task) : await agent.generate(task);
console.log(await text);
