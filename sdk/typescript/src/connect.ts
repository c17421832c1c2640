import { Connection } from "./connection.js";
import { isTemporary, newError, PurserError } from "./errors.js";
import { exchangeLimitMS, untilAborted, wait } from "./http.js";
import type { Purser } from "./client.js";
import { readTokens } from "./tokens.js";
import type { DeviceAuthorization, TokenResponse } from "./types.js";

/** What an app asks a user for. */
export interface ConnectRequest {
  /** The suggested spend cap in micro-cents, which the user can change. */
  allocationMC?: number;
  /** Slugs of the features that the app will use; all of its features if there are none. */
  features?: string[];
}

/** What `connect.start` takes. */
export interface StartOptions extends ConnectRequest {
  /** The value that binds the callback to the user's session; random if it is missing. */
  state?: string;
  /** Replaces the client's redirect URI, for example for a loopback port. */
  redirectURI?: string;
}

/** A consent that has begun. Keep it in the user's session until the callback; it can be written as JSON. */
export interface ConnectAttempt {
  /** Where to send the user's browser. */
  url: string;
  state: string;
  /** The secret of PKCE. */
  verifier: string;
  redirectURI: string;
}

/** Connects a user in a browser: the authorization code flow with PKCE. */
export class Connect {
  readonly #purser: Purser;
  #metadata: Promise<{ issuer: string; authorization_endpoint: string }> | undefined;

  /** @internal */
  constructor(purser: Purser) {
    this.#purser = purser;
  }

  /** start makes the address of the consent screen. */
  async start(options: StartOptions = {}): Promise<ConnectAttempt> {
    const redirectURI = options.redirectURI ?? this.#purser.options.redirectURI;
    if (!redirectURI) throw newError("invalid_request", "Connecting needs a redirectURI.");
    const state = options.state ?? randomText();
    const verifier = randomText();
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(verifier));
    const url = new URL((await this.#discover()).authorization_endpoint);
    const query = {
      response_type: "code",
      client_id: this.#purser.options.clientID,
      redirect_uri: redirectURI,
      code_challenge: encodeBase64URL(new Uint8Array(digest)),
      code_challenge_method: "S256",
      state,
      ...describeRequest(options),
    };
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    return { url: url.href, state, verifier, redirectURI };
  }

  /**
   * finish checks the callback, exchanges its code and saves the tokens. It throws a PurserError with the code
   * `access_denied` if the user declined, and `state_mismatch` if the callback belongs to another session.
   */
  async finish(callbackURL: string | URL, attempt: ConnectAttempt): Promise<Connection> {
    const query = new URL(callbackURL, "http://localhost").searchParams;
    if (query.get("state") !== attempt.state) {
      throw newError("state_mismatch", "The callback does not belong to this session.");
    }
    if (query.get("iss") !== (await this.#discover()).issuer) {
      throw newError("issuer_mismatch", "The callback comes from another server.");
    }
    const failure = query.get("error");
    if (failure) throw newError(failure, query.get("error_description") ?? "The user was not connected.");
    return exchange(this.#purser, {
      grant_type: "authorization_code",
      code: query.get("code") ?? "",
      redirect_uri: attempt.redirectURI,
      code_verifier: attempt.verifier,
    }, crypto.randomUUID());
  }

  #discover(): Promise<{ issuer: string; authorization_endpoint: string }> {
    this.#metadata ??= this.#purser.transport.getJSON<{ issuer: string; authorization_endpoint: string }>({
      method: "GET",
      path: "/.well-known/oauth-authorization-server",
      auth: "none",
    }).then(({ data }) => data, (error) => {
      this.#metadata = undefined;
      throw error;
    });
    return this.#metadata;
  }
}

/** Connects a user without a browser on this device (RFC 8628). */
export class Device {
  readonly #purser: Purser;

  /** @internal */
  constructor(purser: Purser) {
    this.#purser = purser;
  }

  /** start asks for a code. Show `user_code` and `verification_uri` to the user. */
  async start(options: ConnectRequest = {}): Promise<DeviceAuthorization> {
    const { data } = await this.#purser.transport.getJSON<DeviceAuthorization>({
      method: "POST",
      path: "/oauth/device_authorization",
      auth: "client",
      form: describeRequest(options),
    });
    return data;
  }

  /**
   * wait polls until the user has decided, and saves the tokens. While the service can't be reached it polls on, more
   * slowly. It throws `access_denied` if the user declined, and `expired_token` when the code has expired.
   */
  async wait(device: DeviceAuthorization, options: { signal?: AbortSignal } = {}): Promise<Connection> {
    const form = { grant_type: "urn:ietf:params:oauth:grant-type:device_code", device_code: device.device_code };
    const key = crypto.randomUUID(); // one for all polls: tokens whose answer was lost come again
    const end = performance.now() / 1000 + (device.expires_in || 600);
    for (let interval = device.interval || 5; ; ) {
      let left: number;
      try {
        return await untilAborted(exchange(this.#purser, form, key), options.signal);
      } catch (error) {
        if (!(error instanceof PurserError)) throw error;
        if (error.code === "slow_down") interval += 5;
        else if (isTemporary(error)) interval = Math.min(2 * interval, 30);
        else if (error.code !== "authorization_pending") throw error;
        left = end - performance.now() / 1000;
        if (left <= 0) throw newError("expired_token", "The code has expired.", error);
      }
      await wait(Math.min(interval, left), options.signal);
    }
  }
}

async function exchange(purser: Purser, form: Record<string, string>, idempotencyKey: string): Promise<Connection> {
  const { data } = await purser.transport.getJSON<TokenResponse>({
    method: "POST",
    path: "/oauth/token",
    auth: "client",
    form,
    idempotencyKey,
    limitMS: exchangeLimitMS,
  });
  const tokens = readTokens(data?.connection_id, data);
  await purser.tokens.save(tokens.connection_id, tokens);
  return new Connection(purser, { id: tokens.connection_id, allocationMC: data.allocation_mc });
}

function describeRequest({ allocationMC, features }: ConnectRequest): Record<string, string> {
  return {
    ...(allocationMC === undefined ? {} : { requested_allocation_mc: String(allocationMC) }),
    ...(features?.length ? { features: features.join(",") } : {}),
  };
}

// 32 random bytes: 43 characters, as RFC 7636 recommends for a verifier.
function randomText(): string {
  return encodeBase64URL(crypto.getRandomValues(new Uint8Array(32)));
}

function encodeBase64URL(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=/g, "");
}
