// Anthropic's SDK with interleaved thinking: a loop by hand.
import Anthropic from "@anthropic-ai/sdk";
import { model, streams, task, weather } from "./task.mjs";

const client = new Anthropic();
const messages = [{ role: "user", content: task }];
for (;;) {
  const ask = {
    model,
    max_tokens: 16000,
    thinking: { type: "enabled", budget_tokens: 10000 },
    betas: ["interleaved-thinking-2025-05-14"],
    tools: [{
      name: "weather",
      description: "Tells the weather.",
      input_schema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    }],
    messages,
  };
  const message = streams
    ? await client.beta.messages.stream(ask).finalMessage()
    : await client.beta.messages.create(ask);
  messages.push({ role: "assistant", content: message.content });
  const results = message.content.filter(({ type }) => type === "tool_use")
    .map(({ id, input }) => ({ type: "tool_result", tool_use_id: id, content: weather(input) }));
  if (results.length === 0) {
    console.log(message.content.filter(({ type }) => type === "text").map(({ text }) => text).join(""));
    break;
  }
  messages.push({ role: "user", content: results });
}
