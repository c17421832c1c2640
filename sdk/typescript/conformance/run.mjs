// The runner of ../../conformance/README.md for TypeScript. It needs dist: npm run build.
import { readFileSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { FileTokenStore, MemoryTokenStore, Purser, PurserError, verifyWebhook } from "../dist/index.js";

const dev = JSON.parse(readFileSync(process.env.PURSER_DEV_JSON, "utf8"));
const memory = new MemoryTokenStore();

function connect(client = {}) {
  return new Purser({
    baseURL: client.base_url ?? dev.base_url,
    clientID: client.client_id ?? dev.app.client_id,
    clientSecret: client.client_secret === undefined ? dev.app.client_secret : client.client_secret ?? undefined,
    redirectURI: client.redirect_uri ?? dev.app.redirect_uri,
    tokens: client.store ? new FileTokenStore(client.store) : memory,
    ...(client.max_retries === undefined ? {} : { maxRetries: client.max_retries }),
    ...(client.timeout_ms === undefined ? {} : { timeoutMS: client.timeout_ms }),
  });
}

const options = ({ feature, idempotency_key: idempotencyKey, fit } = {}) => ({
  ...(feature === undefined ? {} : { feature }),
  ...(idempotencyKey === undefined ? {} : { idempotencyKey }),
  ...(fit === undefined ? {} : { fit }),
});
const request = ({ allocation_mc: allocationMC, features }) => ({ allocationMC, features });
const describe = ({ text, bill, requestID, replayed, raw }) => ({ text, bill, request_id: requestID, replayed, raw });
const page = (args) => (args.page_size ? { pageSize: args.page_size } : {});

async function collect(list, max = Infinity) {
  const items = [];
  if (max > 0) {
    for await (const item of list) {
      items.push(item);
      if (items.length >= max) break;
    }
  }
  return { items };
}

async function drain(stream, breakAfter = Infinity) {
  let text = "", chunks = 0;
  for await (const chunk of stream) {
    text += chunk.text;
    if (++chunks >= breakAfter) break;
  }
  return { text, chunks, request_id: stream.requestID, bill: await stream.bill() };
}

const operations = {
  "connect.start": async (p, a) => p.connect.start(request(a)),
  "connect.finish": async (p, a) => {
    const c = await p.connect.finish(a.callback_url, a.attempt);
    return { connection_id: c.id, allocation_mc: c.allocationMC };
  },
  "device.start": (p, a) => p.device.start(request(a)),
  "device.wait": async (p, a) => ({ connection_id: (await p.device.wait(a.device)).id }),
  "tokens.save": async (p, a) => (await p.tokens.save(a.connection_id, a.tokens), null),
  "tokens.load": async (p, a) => await p.tokens.load(a.connection_id) ?? null,
  "connection.access_token": async (p, a, c) => ({ access_token: await c.accessToken() }),
  "connection.call": async (p, a, c) => describe(await c.call(a.model, a.body, options(a.options))),
  "connection.call_feature": async (p, a, c) => describe(await c.callFeature(a.slug, a.body, options(a.options))),
  "connection.stream": (p, a, c) => drain(c.stream(a.model, a.body, options(a.options)), a.break_after),
  "connection.stream_feature": (p, a, c) => drain(c.streamFeature(a.slug, a.body, options(a.options)), a.break_after),
  "connection.estimate": (p, a, c) => c.estimate(a.model, a.body, options(a.options)),
  "connection.get": (p, a, c) => c.get(),
  "connection.events": async (p, a, c) => {
    const events = [];
    for await (const event of c.events(a.after ? { after: a.after } : {})) {
      events.push(event);
      if (event.type === a.until || events.length === a.limit) break;
    }
    return { events };
  },
  "connection.request_allocation": (p, a, c) => c.requestAllocation({ amountMC: a.amount_mc, reason: a.reason }),
  "connection.revoke": (p, a, c) => c.revoke(),
  "connection.receipt": (p, a, c) => c.receipts.get(a.request_id),
  "connection.hold": (p, a, c) => c.holds.create({
    amountMC: a.amount_mc,
    description: a.description,
    ...(a.options?.feature === undefined ? {} : { feature: a.options.feature }),
    ...(a.options?.idempotency_key === undefined ? {} : { idempotencyKey: a.options.idempotency_key }),
  }),
  "connection.get_hold": (p, a, c) => c.holds.get(a.hold_id),
  "connection.capture_hold": (p, a, c) => c.holds.capture(a.hold_id, { amountMC: a.amount_mc }),
  "connection.release_hold": (p, a, c) => c.holds.release(a.hold_id),
  "connection.create_child": (p, a, c) => c.children.create({
    amountMC: a.amount_mc,
    ...(a.expires_in === undefined ? {} : { expiresIn: a.expires_in }),
    ...(a.label === undefined ? {} : { label: a.label }),
    ...(a.features === undefined ? {} : { features: a.features }),
    ...(a.models === undefined ? {} : { models: a.models }),
    ...(a.options?.idempotency_key === undefined ? {} : { idempotencyKey: a.options.idempotency_key }),
  }),
  "connection.list_children": (p, a, c) => collect(c.children.list(page(a)), a.max),
  "connection.get_child": (p, a, c) => c.children.get(a.child_id),
  "connection.end_child": (p, a, c) => c.children.end(a.child_id),
  "holds.get": (p, a) => p.holds.get(a.hold_id),
  "holds.capture": (p, a) => p.holds.capture(a.hold_id, { amountMC: a.amount_mc }),
  "holds.release": (p, a) => p.holds.release(a.hold_id),
  "models.list": (p, a) => collect(p.models.list(), a.max),
  "apps.get": (p, a) => p.apps.get(a.app_id),
  "apps.update": (p, a) => p.apps.update(a.app_id, a.changes),
  "features.list": (p, a) => collect(p.features.list(a.app_id, page(a)), a.max),
  "features.create": (p, a) => p.features.create(a.app_id, a.feature),
  "features.update": (p, a) => p.features.update(a.app_id, a.slug, a.changes),
  "webhooks.list": (p, a) => collect(p.webhooks.list(a.app_id, page(a)), a.max),
  "webhooks.create": (p, a) => p.webhooks.create(a.app_id, a.webhook),
  "webhooks.update": (p, a) => p.webhooks.update(a.app_id, a.webhook_id, a.changes),
  "webhooks.delete": (p, a) => p.webhooks.delete(a.app_id, a.webhook_id),
  "webhooks.rotate_secret": (p, a) => p.webhooks.rotateSecret(a.app_id, a.webhook_id),
  "webhooks.test": (p, a) => p.webhooks.test(a.app_id, a.webhook_id, a.type),
  "webhooks.deliveries": (p, a) => collect(p.webhooks.deliveries(a.app_id, a.webhook_id), a.max),
  "webhooks.redeliver": (p, a) => p.webhooks.redeliver(a.app_id, a.webhook_id, a.delivery_id),
  "events.list": (p, a) => collect(p.events.list(a.app_id, { ...page(a), ...(a.after ? { after: a.after } : {}) }), a.max),
  "events.trigger": (p, a) => p.events.trigger(a.app_id, a.type),
  "test_accounts.list": (p, a) => collect(p.testAccounts.list(a.app_id), a.max),
  "test_accounts.create": (p, a) => p.testAccounts.create(a.app_id),
  "test_accounts.fund": (p, a) => p.testAccounts.fund(a.app_id, a.account_id, a.amount_mc),
  "test_accounts.delete": async (p, a) => await p.testAccounts.delete(a.app_id, a.account_id) ?? null,
  "connections.list": (p, a) => collect(p.connections.list(page(a)), a.max),
  "connections.get": (p, a) => p.connections.get(a.connection_id),
  "connections.revoke": (p, a) => p.connections.revoke(a.connection_id),
  "verify_webhook": (p, a) => verifyWebhook(a.body, a.headers, a.secret,
    a.tolerance_s === undefined ? {} : { toleranceSeconds: a.tolerance_s }),
};

function describeError(e) {
  return {
    status: e.status,
    code: e.code,
    message: e.message,
    type: e.type,
    request_id: e.requestID,
    doc_url: e.docURL,
    details: e.details,
    retry_after: e.retryAfter,
    should_retry: e.shouldRetry,
    action: e.action,
    connection_id: e.connectionID,
    increase_url: e.increaseURL,
    review_url: e.reviewURL,
  };
}

const shared = connect();

async function answer({ id, op, client, args = {} }) {
  const operation = operations[op];
  if (!operation) return { id, unsupported: true };
  try {
    const purser = client ? connect(client) : shared;
    const connection = args.token ? purser.withToken(args.token)
      : args.connection_id ? purser.connection(args.connection_id) : undefined;
    return { id, result: await operation(purser, args, connection) ?? null };
  } catch (error) {
    if (error instanceof PurserError) return { id, error: describeError(error) };
    return { id, crash: String(error?.stack ?? error) };
  }
}

if (process.argv[2] === "token") {
  const [, , , store, connectionID] = process.argv;
  writeSync(1, `${await connect({ store }).connection(connectionID).accessToken()}\n`);
} else {
  for await (const line of createInterface({ input: process.stdin })) {
    if (line.trim()) writeSync(1, `${JSON.stringify(await answer(JSON.parse(line)))}\n`);
  }
}
