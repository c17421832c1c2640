// Google's SDK: a loop by hand.
import { GoogleGenAI } from "@google/genai";
import { model, task, weather } from "./task.mjs";

const ai = new GoogleGenAI({});
const contents = [{ role: "user", parts: [{ text: task }] }];
const config = {
  thinkingConfig: { includeThoughts: true },
  tools: [{
    functionDeclarations: [{
      name: "weather",
      description: "Tells the weather.",
      parametersJsonSchema: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    }],
  }],
};
for (;;) {
  const response = await ai.models.generateContent({ model, contents, config });
  const calls = response.functionCalls ?? [];
  if (calls.length === 0) {
    console.log(response.text);
    break;
  }
  contents.push(response.candidates[0].content, {
    role: "user",
    parts: calls.map(({ name, args }) => ({ functionResponse: { name, response: { output: weather(args) } } })),
  });
}
