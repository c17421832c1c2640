// LangChain with a model of one of its packages.
import { ChatAnthropic } from "@langchain/anthropic";
import { ChatGoogleGenerativeAI } from "@langchain/google-genai";
import { ChatOpenAI } from "@langchain/openai";
import { createAgent, tool } from "langchain";
import * as z from "zod";
import { model, streams, task, weather } from "./task.mjs";

const models = {
  chat: () => new ChatOpenAI({ model, reasoning: { effort: "low" } }),
  responses: () => new ChatOpenAI({ model, useResponsesApi: true, reasoning: { effort: "low" } }),
  messages: () => new ChatAnthropic({ model, maxTokens: 16000, thinking: { type: "enabled", budget_tokens: 10000 } }),
  contents: () => new ChatGoogleGenerativeAI({
    model,
    baseUrl: `${process.env.BASE_URL}/google`,
    thinkingConfig: { includeThoughts: true },
  }),
};
const agent = createAgent({
  model: models[process.env.API](),
  tools: [tool(weather, {
    name: "weather",
    description: "Tells the weather.",
    schema: z.object({ city: z.string() }),
  })],
});
const asked = { messages: [{ role: "user", content: task }] };
let said = "";
if (streams) for await (const [piece] of await agent.stream(asked, { streamMode: "messages" })) said += piece.text;
else said = (await agent.invoke(asked)).messages.at(-1).text;
console.log(said);
