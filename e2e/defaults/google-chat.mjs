// Google's SDK, streamed, as a chat: it keeps the conversation.
import { GoogleGenAI, Type } from "@google/genai";
import { model, task, weather } from "./task.mjs";

const chat = new GoogleGenAI({}).chats.create({
  model,
  config: {
    thinkingConfig: { includeThoughts: true },
    tools: [{
      functionDeclarations: [{
        name: "weather",
        description: "Tells the weather.",
        parameters: { type: Type.OBJECT, properties: { city: { type: Type.STRING } }, required: ["city"] },
      }],
    }],
  },
});
let message = task;
for (;;) {
  const calls = [];
  let said = "";
  for await (const chunk of await chat.sendMessageStream({ message })) {
    said += chunk.text ?? "";
    calls.push(...chunk.functionCalls ?? []);
  }
  if (calls.length === 0) {
    console.log(said);
    break;
  }
  message = calls.map(({ id, name, args }) => ({ functionResponse: { id, name, response: { output: weather(args) } } }));
}
