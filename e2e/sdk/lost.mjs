// Loses answers of a service that this program plays, fills the store's disk, and waits for devices through outages.
// Prints how many things were tried.
import assert from "node:assert/strict";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { createHmac } from "node:crypto";
import { tmpdir } from "node:os";
import { FileTokenStore, MemoryTokenStore, Purser, verifyWebhook } from "../../sdk/typescript/dist/index.js";
import { readEvents } from "../../sdk/typescript/dist/sse.js";

const renewed = (n) => Response.json(
  { access_token: `access-${n}`, refresh_token: `refresh-${n}`, expires_in: 900, connection_id: "conn_1" });
const expired = {
  connection_id: "conn_1", access_token: "access-0", refresh_token: "refresh-0", expires_at: "2020-01-01T00:00:00Z",
};

// serve returns a client of a service that gives these answers, one after the other, and what it was asked.
async function serve(answers, tokens = expired, options = {}) {
  const store = options.tokens ?? new MemoryTokenStore(), requests = [];
  if (tokens) await store.save("conn_1", tokens);
  const fetch = async (_, { headers, body, signal }) => {
    requests.push({ key: headers.get("idempotency-key"), body, kept: await store.load("conn_1") });
    const answer = answers.shift();
    return typeof answer === "function" ? answer(signal) : answer;
  };
  const purser = new Purser({ baseURL: "http://purser.test", clientID: "a", fetch, ...options, tokens: store });
  return { purser, connection: purser.connection("conn_1"), store, requests };
}

const works = {
  async "the key of a refresh is stored before it is sent"() {
    const { connection, store, requests } = await serve([renewed(1)]);
    assert.equal(await connection.accessToken(), "access-1");
    assert.ok(requests[0].key);
    assert.equal(requests[0].kept.refresh_key, requests[0].key);
    assert.equal(requests[0].kept.refresh_token, "refresh-0");
    assert.equal((await store.load("conn_1")).refresh_key, undefined);
  },
  async "the key survives a lock that is rolled back"() {
    const tokens = new MemoryTokenStore(), lock = tokens.lock.bind(tokens);
    tokens.lock = (id, work) => lock(id, async () => {
      const before = await tokens.load(id);
      try {
        return await work();
      } catch (error) {
        await tokens.save(id, before);
        throw error;
      }
    });
    const cut = () => { throw new TypeError("fetch failed"); };
    const { connection, requests } = await serve([cut, renewed(1)], expired, { tokens, maxRetries: 0 });
    await assert.rejects(connection.accessToken(), { code: "connection_error" });
    assert.equal(await connection.accessToken(), "access-1");
    assert.equal(requests[0].key, requests[1].key);
    assert.equal((await tokens.load("conn_1")).refresh_key, undefined);
  },
  async "a refresh that another process has begun goes on with its key"() {
    const old = Response.json({ access_token: "access-1", refresh_token: "refresh-1", expires_in: 1 });
    const { connection, requests } = await serve([old, renewed(2)], { ...expired, refresh_key: "key-1" });
    assert.equal(await connection.accessToken(), "access-2");
    assert.equal(requests[0].key, "key-1");
    assert.notEqual(requests[1].key, "key-1");
    assert.match(requests[1].body, /refresh-1/);
  },
  async "a store that drops the key gets a derived one"() {
    const tokens = new MemoryTokenStore(), save = tokens.save.bind(tokens);
    tokens.save = (id, { refresh_key: _, ...rest }) => save(id, rest);
    const { connection, requests } = await serve([renewed(1)], { ...expired, refresh_token: "r1" }, { tokens });
    await connection.accessToken();
    assert.equal(requests[0].key, "4ccb8f6c-c18d-89e1-995b-cf99d301d715");
  },
  async "an answer without tokens is refused"() {
    for (const body of ["{}", "[]", "null", `{"access_token": "a", "refresh_token": "", "expires_in": 900}`]) {
      const { connection, store } = await serve([new Response(body)]);
      await assert.rejects(connection.accessToken(), { code: "invalid_response" });
      assert.equal((await store.load("conn_1")).refresh_token, "refresh-0");
    }
  },
  async "a full disk loses nothing"() {
    const tokens = new MemoryTokenStore(), save = tokens.save.bind(tokens);
    let full = [false];
    tokens.save = async (id, value) => {
      if (full.shift()) throw new Error("ENOSPC");
      return save(id, value);
    };
    const { connection, purser, requests } = await serve([renewed(1), renewed(2)], expired, { tokens });
    full = [true];
    await assert.rejects(connection.accessToken(), { message: "ENOSPC" });
    assert.equal(requests.length, 0);
    full = [false, true, true];
    assert.equal(await connection.accessToken(), "access-1");
    assert.equal(await purser.connection("conn_1").accessToken(), "access-1");
    assert.equal((await tokens.load("conn_1")).refresh_token, "refresh-0");
    const now = Date.now;
    Date.now = () => now() + 3_600_000;
    try {
      full = [true, true];
      await assert.rejects(connection.accessToken(), { message: "ENOSPC" }); // what is not saved is not used
      assert.equal(requests.length, 1);
      assert.equal(await connection.accessToken(), "access-2");
    } finally {
      Date.now = now;
    }
    assert.equal((await tokens.load("conn_1")).refresh_token, "refresh-2");
  },
  async "a file store leaves no draft behind"() {
    const folder = await mkdtemp(`${tmpdir()}/purser-`);
    const store = new FileTokenStore(folder), value = { ...expired };
    value.toJSON = () => { throw new Error("ENOSPC"); };
    await assert.rejects(store.save("conn_1", value), { message: "ENOSPC" });
    assert.deepEqual(await readdir(folder), []);
    await rm(folder, { recursive: true });
  },
  async "an answer that is swallowed is asked for again within seconds"() {
    const hang = (signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    const { connection, requests } = await serve([hang, renewed(1)]);
    assert.equal(await connection.accessToken(), "access-1");
    assert.equal(requests[0].key, requests[1].key);
    const long = new Response("{}", { status: 503, headers: { "retry-after": "20" } });
    await assert.rejects((await serve([long])).connection.accessToken(), { status: 503 });
  },
  async "a caller that stops waiting leaves a refresh that ends"() {
    let answer;
    const { connection, store } = await serve([() => new Promise((resolve) => { answer = resolve; })]);
    const control = new AbortController();
    const call = connection.call("m", { messages: [] }, { signal: control.signal });
    while (!answer) await new Promise(setImmediate);
    control.abort(new Error("stopped"));
    await assert.rejects(call, { message: "stopped" });
    answer(renewed(1));
    while ((await store.load("conn_1")).refresh_token !== "refresh-1") await new Promise(setImmediate);
  },
  async "waiting for a device outlasts outages with one key"() {
    const html = (status) => new Response("<html>", { status });
    const cut = () => { throw new TypeError("fetch failed"); };
    const pending = Response.json({ error: "authorization_pending" }, { status: 400 });
    const { purser, requests } = await serve([html(502), html(200), cut, pending, renewed(1)], null, { maxRetries: 0 });
    const device = { device_code: "d", interval: 0.01, expires_in: 600 };
    assert.equal((await purser.device.wait(device)).id, "conn_1");
    assert.equal(new Set(requests.map(({ key }) => key)).size, 1);
    const down = await serve(Array.from({ length: 50 }, () => html(502)), null, { maxRetries: 0 });
    await assert.rejects(down.purser.device.wait({ ...device, expires_in: 0.05 }), { code: "expired_token" });
    const wrong = await serve([html(404)], null);
    await assert.rejects(wrong.purser.device.wait(device), { status: 404 });
  },
  async "live events without tokens fail at once"() {
    const { connection } = await serve([], null);
    await assert.rejects(connection.events().next(), { code: "not_connected", action: "connect_again" });
    const tokens = new MemoryTokenStore();
    tokens.load = async () => { throw new Error("EACCES"); };
    const broken = await serve([], null, { tokens });
    await assert.rejects(broken.connection.events().next(), { message: "EACCES" });
  },
  async "a silent stream fails"() {
    const silent = new ReadableStream({ start: (control) => control.enqueue(new TextEncoder().encode("data: a")) });
    await assert.rejects(readEvents(silent, undefined, 20).next(), /sent nothing/);
  },
  async "a stream that names its error ends with it"() {
    const named = `data: {"error": {"code": "provider_error", "message": "no"}}\n\n`;
    const body = () => new ReadableStream({
      pull(control) {
        if (this.sent) return control.error(new Error("cut"));
        this.sent = true;
        control.enqueue(new TextEncoder().encode(named));
      },
    });
    const { purser } = await serve([new Response(body())], null);
    await assert.rejects(purser.withToken("t").stream("m", { messages: [] }).text(), { code: "provider_error" });
  },
  async "an empty webhook secret is an error"() {
    const time = String(Math.floor(Date.now() / 1000)), body = "{}";
    const sign = (key, text, form) => createHmac("sha256", key).update(text).digest(form);
    const own = (key) => ({ "svc-signature": `t=${time},v1=${sign(key, `${time}.${body}`, "hex")}` });
    const standard = (key, before = "") => ({
      "webhook-id": "evt_1", "webhook-timestamp": time,
      "webhook-signature": `${before}v1,${sign(key, `evt_1.${time}.${body}`, "base64")}`,
    });
    for (const [headers, secret] of [
      [own(""), ""], [own(""), ["", "whsec_YQ=="]], [own("whsec_YQ=="), ["", "whsec_YQ=="]], [own("whsec_"), "whsec_"],
      [standard(""), "whsec_"], [standard(""), ["whsec_YQ==", "whsec_"]], [own(""), []], [own(""), undefined],
    ]) {
      await assert.rejects(verifyWebhook(body, headers, secret), { code: "invalid_signature" });
    }
    await verifyWebhook(body, standard("a", "v1,!not-base64 "), ["whsec_!", "whsec_YQ=="]);
  },
};
for (const [name, work] of Object.entries(works)) {
  await work().catch((error) => {
    throw new Error(name, { cause: error });
  });
}
console.log(Object.keys(works).length);
