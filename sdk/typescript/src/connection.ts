import type { Purser } from "./client.js";
import { isTemporary, newError, PurserError } from "./errors.js";
import { describeCapture, describeRelease, wait, type AccessTokens, type RequestOptions } from "./http.js";
import { page, type ListOptions } from "./management.js";
import { maxSilenceMS, readEvents } from "./sse.js";
import { CallStream } from "./stream.js";
import { FixedToken, StoredTokens } from "./tokens.js";
import type {
  AllocationRequest, Bill, CallBody, Child, ChildWithToken, Completion, ConnectionEvent, ConnectionState, Estimate, Hold,
  Receipt, Revocation,
} from "./types.js";
import { Voice } from "./voice.js";

/** The options of a call. */
export interface CallOptions {
  /** The slug of the feature that the call is for. */
  feature?: string;
  /** A UUID; random if it is missing. A call with the key of an earlier one returns the answer of that one, and is not billed again. */
  idempotencyKey?: string;
  /** true: lower the output cap of a call that does not fit, instead of refusing it. false: refuse it. */
  fit?: boolean;
  /** Cancels the call. */
  signal?: AbortSignal;
}

/** The answer to a call. */
export interface Answer {
  /** The text of the first choice; "" if it has none. */
  text: string;
  /** What the call cost. */
  bill: Bill;
  /** The id of the call, for its receipt. */
  requestID: string;
  /** Whether this is the stored answer of an earlier call with the same key. */
  replayed: boolean;
  /** The whole body, as OpenAI's chat completions. */
  raw: Completion & Record<string, unknown>;
}

/** A user's grant to the app: what it may spend, and the calls that it pays for. */
export class Connection {
  /** The id, `conn_…`; undefined if only an access token is known. */
  readonly id: string | undefined;
  /** What the user has allowed, in micro-cents; only after `connect.finish`. */
  readonly allocationMC: number | undefined;
  /** Receipts of calls. */
  readonly receipts: Receipts;
  /** Money held for the app's own work. */
  readonly holds: ConnectionHolds;
  /** Parts of the budget that are passed on. */
  readonly children: Children;
  /** Voice sessions. */
  readonly voice: Voice;
  /** @internal */
  readonly purser: Purser;
  readonly #tokens: AccessTokens;

  /** @internal */
  constructor(purser: Purser, facts: { id?: string; token?: string; allocationMC?: number | undefined }) {
    this.purser = purser;
    this.id = facts.id;
    this.allocationMC = facts.allocationMC;
    this.#tokens = facts.token !== undefined
      ? new FixedToken(facts.token) : new StoredTokens(facts.id!, purser.tokens, purser.transport);
    this.receipts = new Receipts(this);
    this.holds = new ConnectionHolds(this);
    this.children = new Children(this);
    this.voice = new Voice(this);
  }

  /** accessToken returns a token that is valid for at least a minute. It refreshes the tokens if it must. */
  accessToken(): Promise<string> {
    return this.#tokens.get();
  }

  /** call sends a request to a model, and returns its whole answer with the bill. */
  call(model: string, body: CallBody, options: CallOptions = {}): Promise<Answer> {
    return this.#call(`/v1/ai/${encodeURIComponent(model)}`, body, options);
  }

  /** callFeature calls the model that is set for a feature. */
  callFeature(slug: string, body: CallBody, options: Omit<CallOptions, "feature"> = {}): Promise<Answer> {
    return this.#call(`/v1/ai/features/${encodeURIComponent(slug)}`, body, options);
  }

  /** stream calls a model, and yields its answer piece by piece. The call begins with the first iteration. */
  stream(model: string, body: CallBody, options: CallOptions = {}): CallStream {
    return this.#stream(`/v1/ai/${encodeURIComponent(model)}`, body, options);
  }

  /** streamFeature calls the model that is set for a feature, and yields its answer piece by piece. */
  streamFeature(slug: string, body: CallBody, options: Omit<CallOptions, "feature"> = {}): CallStream {
    return this.#stream(`/v1/ai/features/${encodeURIComponent(slug)}`, body, options);
  }

  /** estimate says what a call would be held for and may cost, and whether it would be admitted. Nothing is held. */
  async estimate(model: string, body: CallBody, options: CallOptions = {}): Promise<Estimate> {
    const { idempotencyKey: _, ...rest } = describeCall(body, options);
    return this.send({ ...rest, path: "/v1/estimate", body: { ...body, model } });
  }

  /** get returns allocation, consumption and status. */
  get(): Promise<ConnectionState> {
    return this.send({ method: "GET", path: "/v1/connection" });
  }

  /**
   * events yields what happens to the connection while it happens. It reconnects by itself, and ends when the
   * connection is revoked. Leave the loop to close it.
   *
   * @param options `after`: the `event_id` after which to begin.
   */
  async *events(options: { after?: string; signal?: AbortSignal } = {}): AsyncGenerator<ConnectionEvent, void, void> {
    const { signal } = options;
    for (let last = options.after, failures = 0; ; ) {
      const headers: Record<string, string> = { accept: "text/event-stream" };
      if (last) headers["last-event-id"] = last;
      const response = await this.purser.transport.open({
        method: "GET",
        path: "/v1/connection/events",
        auth: this.#tokens,
        headers,
        signal,
        timeoutMS: maxSilenceMS,
      }).catch((error) => {
        signal?.throwIfAborted();
        if (error instanceof PurserError && isTemporary(error)) return undefined; // it reconnects
        throw error;
      });
      if (response) try {
        for await (const { data, id } of readEvents(response.body!, signal)) {
          failures = 0;
          const event = JSON.parse(data) as ConnectionEvent;
          if (event.type === "end" && event.reconnect) break;
          if (id) last = id;
          yield id ? { ...event, event_id: id } : event;
          if (event.type === "end") return;
        }
      } catch {
        // The stream broke: another one follows.
      }
      signal?.throwIfAborted();
      await wait(Math.min(30, 0.25 * 2 ** failures++), signal);
    }
  }

  /** requestAllocation asks the user for a higher spend cap. Send them to `approval_url`. It needs the client secret. */
  async requestAllocation(request: { amountMC: number; reason?: string }): Promise<AllocationRequest> {
    const { data } = await this.purser.transport.getJSON<AllocationRequest>({
      method: "POST",
      path: `/v1/connections/${await this.#findID()}/allocation-requests`,
      auth: "client",
      body: { target_allocation_mc: request.amountMC, ...(request.reason ? { reason: request.reason } : {}) },
    });
    return data;
  }

  /** revoke ends the connection. This can't be undone. It needs the client secret. */
  async revoke(): Promise<Revocation> {
    return this.purser.connections.revoke(await this.#findID());
  }

  /** fetch sends a request with a fresh access token to any address of the API. Other SDKs use it; see {@link openAIOptions}. */
  readonly fetch = async (input: string | URL | Request, init?: RequestInit): Promise<Response> => {
    const request = new Request(input, init);
    if (!request.url.startsWith(`${this.purser.options.baseURL}/`)) {
      throw newError("invalid_request", "An access token is for the API's own address only.");
    }
    const send = (token: string, copy: Request) => {
      copy.headers.set("authorization", `Bearer ${token}`);
      copy.headers.delete("x-api-key");
      return this.purser.transport.options.fetch(copy);
    };
    const again = request.clone();
    const token = await this.accessToken();
    const response = await send(token, request);
    if (response.status !== 401) return response;
    const next = await this.#tokens.get(token).catch(() => token);
    if (next === token) return response;
    await response.body?.cancel();
    return send(next, again);
  };

  /** @internal */
  async send<T>(request: Omit<RequestOptions, "auth">): Promise<T> {
    return (await this.purser.transport.getJSON<T>({ ...request, auth: this.#tokens })).data;
  }

  /** @internal */
  pages<T>(request: Omit<RequestOptions, "auth">): AsyncGenerator<T, void, void> {
    return this.purser.transport.pages({ ...request, auth: this.#tokens });
  }

  async #call(path: string, body: CallBody, options: CallOptions): Promise<Answer> {
    const { data, headers } = await this.purser.transport.getJSON<Answer["raw"]>(
      { ...describeCall(body, options), path, auth: this.#tokens });
    return {
      text: data.choices[0]?.message.content ?? "",
      bill: data.svc,
      requestID: headers.get("x-request-id") ?? "",
      replayed: headers.get("idempotent-replayed") === "true",
      raw: data,
    };
  }

  #stream(path: string, body: CallBody, options: CallOptions): CallStream {
    const request = describeCall({ ...body, stream: true }, options);
    const open = () => this.purser.transport.open({ ...request, path, auth: this.#tokens });
    return new CallStream(open, this.purser.transport.options.maxRetries, options.signal);
  }

  async #findID(): Promise<string> {
    return this.id ?? (await this.get()).id;
  }
}

/** Receipts of calls. */
export class Receipts {
  readonly #connection: Connection;

  /** @internal */
  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** get returns what a call cost and why, or why it was refused. */
  get(requestID: string): Promise<Receipt> {
    return this.#connection.send({ method: "GET", path: `/v1/requests/${encodeURIComponent(requestID)}` });
  }
}

/** What an app holds for work of its own. */
export interface HoldRequest {
  /** The most that the work may cost, in micro-cents. */
  amountMC: number;
  /** What the user pays for, at most 120 characters. It stands on their receipt. */
  description: string;
  /** The slug of the feature that the work is for. */
  feature?: string;
  /** A UUID; random if it is missing. A hold with the key of an earlier one is that one. */
  idempotencyKey?: string;
}

/** Money held for the app's own work. The app needs `own_work`, and its user must have connected since. */
export class ConnectionHolds {
  readonly #connection: Connection;

  /** @internal */
  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** create holds an amount. Capture or release it within ten minutes. */
  create(hold: HoldRequest): Promise<Hold> {
    return this.#connection.send({
      method: "POST",
      path: "/v1/holds",
      body: { amount_mc: hold.amountMC, description: hold.description },
      idempotencyKey: hold.idempotencyKey ?? crypto.randomUUID(),
      headers: hold.feature === undefined ? {} : { "x-svc-feature": hold.feature },
    });
  }

  /** get returns a hold as it is now. */
  get(holdID: string): Promise<Hold> {
    return this.#connection.send({ method: "GET", path: `/v1/holds/${encodeURIComponent(holdID)}` });
  }

  /** capture charges what the work came to, at most what is held, and gives the rest back. Without an amount it is all of it. */
  capture(holdID: string, options: { amountMC?: number | undefined } = {}): Promise<Hold> {
    return this.#connection.send(describeCapture(holdID, options.amountMC));
  }

  /** release gives all of a hold back, and charges nothing. */
  release(holdID: string): Promise<Hold> {
    return this.#connection.send(describeRelease(holdID));
  }
}

/** What a child gets. */
export interface ChildRequest {
  /** In micro-cents; at most what remains of the connection. It leaves what the connection can spend at once. */
  amountMC: number;
  /** Seconds until the child ends, 60 to 2,592,000; 3,600 if it is missing. It never outlives its parent. */
  expiresIn?: number;
  /** Who or what spends it, at most 60 characters. The user reads it. */
  label?: string;
  /** The slugs of the only features that its calls may name; all that the parent may if it is missing. */
  features?: string[];
  /** The only models that it may call; all that the parent may if it is missing. */
  models?: string[];
  /** A UUID; random if it is missing. A request with the key of an earlier one returns that child, with its token. */
  idempotencyKey?: string;
}

/** Parts of a connection's budget that are passed on. */
export class Children {
  readonly #connection: Connection;

  /** @internal */
  constructor(connection: Connection) {
    this.#connection = connection;
  }

  /** create makes a child. {@link Purser.withToken} makes a connection of its `token`, which no other answer has. */
  create(child: ChildRequest): Promise<ChildWithToken> {
    const { amountMC, expiresIn, idempotencyKey, ...rest } = child;
    return this.#connection.send({
      method: "POST",
      path: "/v1/connection/children",
      body: { ...rest, amount_mc: amountMC, expires_in: expiresIn },
      idempotencyKey: idempotencyKey ?? crypto.randomUUID(),
    });
  }

  /** list yields the children and theirs, newest first, ended ones too. */
  list(options: ListOptions = {}): AsyncGenerator<Child, void, void> {
    return this.#connection.pages({ method: "GET", path: "/v1/connection/children", query: page(options) });
  }

  /** get returns a child as it is now. */
  get(childID: string): Promise<Child> {
    return this.#connection.send({ method: "GET", path: `/v1/connection/children/${encodeURIComponent(childID)}` });
  }

  /** end ends a child and all below it. What is neither spent nor held comes back. */
  end(childID: string): Promise<Child> {
    const path = `/v1/connection/children/${encodeURIComponent(childID)}/end`;
    return this.#connection.send({ method: "POST", path, repeatable: true }); // the same end answers the same
  }
}

function describeCall(body: CallBody, { feature, fit, idempotencyKey, signal }: CallOptions) {
  return {
    method: "POST",
    body,
    idempotencyKey: idempotencyKey ?? crypto.randomUUID(),
    signal,
    headers: {
      ...(feature === undefined ? {} : { "x-svc-feature": feature }),
      ...(fit === undefined ? {} : { "x-svc-fit": fit ? "1" : "0" }),
    } as Record<string, string>,
  };
}
