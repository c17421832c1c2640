// Anthropic's SDK, streamed, with its own loop for tools and adaptive thinking.
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import * as z from "zod";
import { model, task, weather } from "./task.mjs";

const runner = new Anthropic().beta.messages.toolRunner({
  model,
  max_tokens: 16000,
  thinking: { type: "adaptive" },
  messages: [{ role: "user", content: task }],
  tools: [betaZodTool({
    name: "weather",
    description: "Tells the weather.",
    inputSchema: z.object({ city: z.string() }),
    run: weather,
  })],
  stream: true,
});
let message;
for await (const stream of runner) message = await stream.finalMessage();
console.log(message.content.filter(({ type }) => type === "text").map(({ text }) => text).join(""));
