// OpenAI's SDK by Chat Completions, with its own loop for functions.
import OpenAI from "openai";
import { model, streams, task, weather } from "./task.mjs";

const runner = new OpenAI().chat.completions.runTools({
  model,
  stream: streams,
  reasoning_effort: "low",
  messages: [{ role: "user", content: task }],
  tools: [{
    type: "function",
    function: {
      name: "weather",
      description: "Tells the weather.",
      parameters: { type: "object", properties: { city: { type: "string" } } },
      parse: JSON.parse,
      function: weather,
    },
  }],
});
console.log(await runner.finalContent());
