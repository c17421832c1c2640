// A voice session by @purser/sdk on a server: the control channel, and a user of the mock voice who writes.
import assert from "node:assert/strict";
import { Purser } from "../../sdk/typescript/dist/index.js";

const { baseURL, accessToken } = JSON.parse(process.argv[2]);
const connection = new Purser({ baseURL, clientID: "none" }).withToken(accessToken);
const session = await connection.voice.start({
  model: "gpt-realtime-2.1-mini",
  instructions: "Be brief.",
  tools: [{ type: "function", name: "get_time", description: "The time.", parameters: { type: "object" } }],
});
const control = session.control();
const seen = [];
for await (const event of joined(control)) {
  seen.push(event.type);
  if (event.type === "response.function_call_arguments.done") control.answerTool(event.call_id, { time: "noon" });
  if (event.type === "response.output_audio_transcript.done") control.end("immediate");
}

// joined opens the user's socket as soon as the control channel is open.
async function* joined(channel) {
  const events = channel[Symbol.asyncIterator]();
  const first = events.next();
  const user = new WebSocket(`${session.client.mock_url}?ticket=${session.client.ticket}`);
  user.addEventListener("open", () => {
    const content = [{ type: "input_text", text: "What time is it?" }];
    user.send(JSON.stringify({ type: "conversation.item.create", item: { type: "message", role: "user", content } }));
    user.send(JSON.stringify({ type: "response.create" }));
  });
  yield (await first).value;
  yield* events;
}

for (const type of ["svc.session.started", "svc.response.settled", "svc.session.ended"]) {
  assert.ok(seen.includes(type), `${type} is missing in ${seen}`);
}
const state = await session.get();
assert.equal(state.status, "ended");
assert.ok(state.receipts.length >= 1 && state.charged_mc > 0);
assert.ok((await connection.voice.list()).some(({ id }) => id === session.id));
const unused = await connection.voice.start({ model: "gpt-realtime-2.1-mini" });
await unused.end();
assert.equal((await unused.get()).status, "ended");
console.log(state.receipts.length);
