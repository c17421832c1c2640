// OpenAI's Agents SDK, which speaks Responses.
import { Agent, run, tool } from "@openai/agents";
import * as z from "zod";
import { model, streams, task, weather } from "./task.mjs";

const agent = new Agent({
  name: "Assistant",
  instructions: "You are a helpful assistant.",
  model,
  modelSettings: { reasoning: { effort: "low" } },
  tools: [tool({
    name: "weather",
    description: "Tells the weather.",
    parameters: z.object({ city: z.string() }),
    execute: async (input) => weather(input),
  })],
});
const result = await run(agent, task, { stream: streams });
if (streams) await result.completed;
console.log(result.finalOutput);
