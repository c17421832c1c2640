// OpenAI's SDK by Responses, as the guide to function calling has it.
import OpenAI from "openai";
import { model, streams, task, weather } from "./task.mjs";

const client = new OpenAI();
const tools = [{
  type: "function",
  name: "weather",
  description: "Tells the weather.",
  parameters: {
    type: "object",
    properties: { city: { type: "string" } },
    required: ["city"],
    additionalProperties: false,
  },
  strict: true,
}];
const input = [{ role: "user", content: task }];
for (;;) {
  const ask = { model, tools, input, reasoning: { effort: "low" } };
  const response = streams
    ? await client.responses.stream(ask).finalResponse()
    : await client.responses.create(ask);
  input.push(...response.output);
  const calls = response.output.filter((item) => item.type === "function_call");
  if (calls.length === 0) {
    console.log(response.output_text ?? response.output.at(-1).content[0].text);
    break;
  }
  for (const call of calls) {
    input.push({
      type: "function_call_output",
      call_id: call.call_id,
      output: weather(JSON.parse(call.arguments)),
    });
  }
}
