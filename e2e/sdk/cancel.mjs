// Cancels what @purser/sdk does at a server that begins to answer and says nothing more: each ends at once, with the
// reason of the signal. Prints how many things were cancelled.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { once } from "node:events";
import { Purser } from "../../sdk/typescript/dist/index.js";

const server = createServer((request, response) => {
  if (request.url === "/v1/ai/busy") return response.writeHead(503, { "retry-after": "30" }).end("{}");
  const isStream = request.url === "/v1/connection/events" || request.url === "/v1/ai/stream";
  if (isStream) response.writeHead(200, { "content-type": "text/event-stream" }).write(": hello\n\n");
}).listen(0, "127.0.0.1");
await once(server, "listening");
const connection = new Purser({ baseURL: `http://127.0.0.1:${server.address().port}`, clientID: "a" }).withToken("t");
const body = { messages: [{ role: "user", content: "Hello" }] };
const drain = async (list) => { for await (const _ of list) assert.fail("something came"); };
const works = [
  (options) => connection.call("silent", body, options),
  (options) => connection.call("busy", body, options),
  (options) => drain(connection.stream("silent", body, options)),
  (options) => drain(connection.stream("stream", body, options)),
  (options) => connection.stream("stream", body, options).bill(),
  (options) => drain(connection.events(options)),
  () => connection.call("silent", body, { signal: AbortSignal.abort(new Error("stopped")) }),
];
for (const work of works) {
  const control = new AbortController();
  const began = Date.now();
  setTimeout(() => control.abort(new Error("stopped")), 100);
  await assert.rejects(work({ signal: control.signal }), { message: "stopped" });
  assert.ok(Date.now() - began < 3000, "it took too long");
}
const slow = new Purser({ baseURL: connection.purser.options.baseURL, clientID: "a", timeoutMS: 100, maxRetries: 1 });
await assert.rejects(slow.withToken("t").call("silent", body), { code: "connection_error", action: "retry" });
server.closeAllConnections();
server.close();
console.log(works.length);
