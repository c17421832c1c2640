// The AI SDK with its provider for Google, whose base URL is an option.
import { createGoogleGenerativeAI } from "@ai-sdk/google";
import { generateText, stepCountIs, streamText, tool } from "ai";
import * as z from "zod";
import { model, streams, task, weather } from "./task.mjs";

const google = createGoogleGenerativeAI({ baseURL: `${process.env.BASE_URL}/google/v1beta` });
const ask = {
  model: google(model),
  providerOptions: { google: { thinkingConfig: { includeThoughts: true } } },
  tools: {
    weather: tool({
      description: "Tells the weather.",
      inputSchema: z.object({ city: z.string() }),
      execute: async (input) => weather(input),
    }),
  },
  stopWhen: stepCountIs(5),
  prompt: task,
};
console.log(await (streams ? streamText(ask) : await generateText(ask)).text);
