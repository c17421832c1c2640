import { newError, parseError, PurserError } from "./errors.js";
import { version } from "./generated/version.js";

/** The credentials of a request: the app's, none, or an access token. */
export type Auth = "client" | "none" | AccessTokens;

/** AccessTokens gives the token of a connection. */
export interface AccessTokens {
  /** get returns a token. `rejected` is one that the server refused: it is refreshed, if it can be. */
  get(rejected?: string): Promise<string>;
}

/** What a request may say. */
export interface RequestOptions {
  method: string;
  path: string;
  auth: Auth;
  query?: Record<string, string | number | undefined> | undefined;
  body?: unknown;
  form?: Record<string, string> | undefined;
  headers?: Record<string, string> | undefined;
  idempotencyKey?: string | undefined;
  /** Whether a POST without a key may be carried out twice. */
  repeatable?: boolean | undefined;
  signal?: AbortSignal | undefined;
  /** The time limit of all tries and the waits between them. */
  limitMS?: number | undefined;
  /** The time limit of one try, if that is shorter than the client's. */
  timeoutMS?: number | undefined;
}

/**
 * The time limit of a request that uses up a token or a code, with all its tries and waits. What the service has done,
 * it answers again to the same key: a first try whose answer does not come is given up soon.
 */
export const exchangeLimitMS = 15_000;
const firstTryLimitMS = 5_000;

/** The settings of a transport. */
export interface TransportOptions {
  baseURL: string;
  clientID: string;
  clientSecret?: string | undefined;
  fetch: typeof fetch;
  maxRetries: number;
  timeoutMS: number;
}

/** A Transport sends requests with credentials, and repeats those that may be repeated. */
export class Transport {
  constructor(readonly options: TransportOptions) {}

  /** getJSON sends a request, and reads the whole answer. */
  async getJSON<T>(request: RequestOptions): Promise<{ data: T; headers: Headers }> {
    return this.#repeat(request, async (response) => {
      const text = await response.text();
      try {
        return { data: (text ? JSON.parse(text) : null) as T, headers: response.headers };
      } catch (cause) {
        throw newError("invalid_response", "The answer is not JSON.", cause);
      }
    });
  }

  /** open sends a request, and returns the answer when its headers have come. */
  open(request: RequestOptions): Promise<Response> {
    return this.#repeat(request, async (response) => response);
  }

  /**
   * pages yields the items of a list, page by page. The next page is the query of the header Link, sent to the same
   * address: a link never chooses where credentials go.
   */
  async *pages<T>(request: RequestOptions): AsyncGenerator<T, void, void> {
    for (let query = request.query; query; ) {
      const { data, headers } = await this.getJSON<T[]>({ ...request, query });
      yield* data;
      const link = /<([^>]*)>\s*;\s*rel="?next"?/.exec(headers.get("link") ?? "")?.[1];
      // A list that grows always has a next page.
      query = link === undefined || data.length === 0 ? undefined : Object.fromEntries(new URL(link, "http://localhost").searchParams);
    }
  }

  async #repeat<T>(request: RequestOptions, read: (response: Response) => Promise<T>): Promise<T> {
    let refreshed = false;
    let rejected: string | undefined;
    const began = performance.now();
    for (let tries = 0; ; ) {
      // A refresh goes on when its caller stops waiting: its tokens are saved.
      const token = typeof request.auth === "object"
        ? await untilAborted(request.auth.get(rejected), request.signal) : undefined;
      const leftMS = (request.limitMS ?? Infinity) - (performance.now() - began);
      const mayRepeat = tries === 0 && this.options.maxRetries > 0;
      try {
        return await this.#send(request, token, read,
          request.limitMS !== undefined && mayRepeat ? Math.min(leftMS, firstTryLimitMS) : leftMS);
      } catch (error) {
        const e = error as PurserError;
        if (e.status === 401 && token && !refreshed) {
          refreshed = true;
          rejected = token;
          // The token is refreshed by the next get. A token that cannot be refreshed is refused with this error.
          if (await untilAborted(canRefresh(request.auth as AccessTokens, token), request.signal)) continue;
        }
        if (!(error instanceof PurserError) || !isRepeatable(request, e) || tries >= this.options.maxRetries) throw error;
        const seconds = e.retryAfter ?? 0.5 * 2 ** tries * (0.75 + Math.random() / 2);
        if (performance.now() - began + seconds * 1000 >= (request.limitMS ?? Infinity)) throw error;
        await wait(seconds, request.signal);
        tries++;
      }
    }
  }

  async #send<T>(
    request: RequestOptions, token: string | undefined, read: (response: Response) => Promise<T>, leftMS: number,
  ): Promise<T> {
    const { baseURL, clientID, clientSecret } = this.options;
    const timeoutMS = Math.max(Math.min(this.options.timeoutMS, request.timeoutMS ?? Infinity, leftMS), 1);
    const url = new URL(baseURL + request.path);
    for (const [name, value] of Object.entries(request.query ?? {})) {
      if (value !== undefined) url.searchParams.set(name, String(value));
    }
    const headers = new Headers({ accept: "application/json", ...request.headers });
    if (!("document" in globalThis)) headers.set("user-agent", `purser-sdk-typescript/${version}`);
    if (token) headers.set("authorization", `Bearer ${token}`);
    const usesClient = request.auth === "client" && clientSecret !== undefined;
    if (usesClient) headers.set("authorization", `Basic ${encodeBasic(clientID, clientSecret)}`);
    if (request.idempotencyKey) headers.set("idempotency-key", request.idempotencyKey);
    let body: string | undefined;
    if (request.form) {
      const form = request.auth === "client" && !usesClient ? { ...request.form, client_id: clientID } : request.form;
      headers.set("content-type", "application/x-www-form-urlencoded");
      body = new URLSearchParams(form).toString();
    } else if (request.body !== undefined) {
      headers.set("content-type", "application/json");
      body = JSON.stringify(request.body);
    }
    request.signal?.throwIfAborted();
    const timeLimit = new AbortController();
    const timer = setTimeout(() => timeLimit.abort(new Error(`no answer within ${Math.round(timeoutMS)} ms`)), timeoutMS);
    const stop = () => timeLimit.abort(request.signal?.reason);
    request.signal?.addEventListener("abort", stop, { once: true });
    try {
      const response = await this.options.fetch(url, {
        method: request.method,
        headers,
        signal: timeLimit.signal,
        redirect: "manual", // credentials must not follow
        ...(body === undefined ? {} : { body }),
      });
      if (response.type === "opaqueredirect") throw newError("invalid_response", "The answer is a redirect."); // a browser's
      if (!response.ok) {
        const text = await response.text();
        throw parseError({ status: response.status, headers: response.headers, body: parse(text), clientCredentials: usesClient });
      }
      return await read(response);
    } catch (error) {
      request.signal?.throwIfAborted();
      if (error instanceof PurserError) throw error;
      throw newError("connection_error", `${request.method} ${url.pathname}: ${describe(error)}`, error);
    } finally {
      clearTimeout(timer);
      request.signal?.removeEventListener("abort", stop);
    }
  }
}

async function canRefresh(tokens: AccessTokens, rejected: string): Promise<boolean> {
  return (await tokens.get(rejected)) !== rejected;
}

// A POST that creates something has no idempotency key. It is repeated only when it was certainly not carried out.
function isRepeatable(request: RequestOptions, e: PurserError): boolean {
  if (!e.shouldRetry) return false;
  return request.method !== "POST" || request.repeatable || request.idempotencyKey !== undefined || e.status === 429 || e.status === 503;
}

/** describeCapture returns the request that charges for a hold. The same capture answers the same. */
export function describeCapture(holdID: string, amountMC?: number): Omit<RequestOptions, "auth"> {
  const path = `/v1/holds/${encodeURIComponent(holdID)}/capture`;
  return { method: "POST", path, repeatable: true, ...(amountMC === undefined ? {} : { body: { amount_mc: amountMC } }) };
}

/** describeRelease returns the request that gives a hold back. */
export function describeRelease(holdID: string): Omit<RequestOptions, "auth"> {
  return { method: "POST", path: `/v1/holds/${encodeURIComponent(holdID)}/release`, repeatable: true };
}

/** describe says in words why a connection failed. */
export function describe(error: unknown): string {
  const e = error as { message?: string; cause?: { message?: string } };
  return [e?.message, e?.cause?.message].filter(Boolean).join(": ") || String(error);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

// RFC 6749 §2.3.1 has both parts form-encoded before they are joined.
function encodeBasic(id: string, secret: string): string {
  const encode = (text: string) => new URLSearchParams({ _: text }).toString().slice(2);
  return btoa(`${encode(id)}:${encode(secret)}`);
}

/** untilAborted returns what a promise does, or fails when the signal does. */
export function untilAborted<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}

/** wait returns after some seconds, or fails when the signal does. */
export function wait(seconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal!.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, seconds * 1000);
    if (signal?.aborted) stop();
    signal?.addEventListener("abort", stop, { once: true });
  });
}
