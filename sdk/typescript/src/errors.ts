import { byStatus, rules } from "./generated/errors.js";

/**
 * What the app does about an error:
 *
 * - `connect_again`: forget the tokens, and send the user through the consent screen.
 * - `raise_cap`: send the user to `increaseURL`, or request an allocation.
 * - `ask_user`: show `reviewURL` if there is one. Keep the tokens, and do not repeat the call by itself.
 * - `wait`: try again after `retryAfter` seconds.
 * - `retry`: try again, with the same idempotency key.
 * - `fix_request`: the program or its settings are wrong.
 * - `contact_developer`: the user can do nothing; the developer of the app can.
 */
export type Action =
  | "connect_again" | "raise_cap" | "ask_user" | "wait" | "retry" | "fix_request" | "contact_developer";

/** The facts of a {@link PurserError}. */
export interface ErrorFacts {
  status: number;
  code: string;
  message: string;
  type?: string;
  requestID?: string | null;
  docURL?: string | null;
  details?: Record<string, unknown>;
  retryAfter?: number | null;
  shouldRetry?: boolean;
  connectionID?: string | null;
  increaseURL?: string | null;
  reviewURL?: string | null;
  clientCredentials?: boolean;
  raw?: unknown;
  cause?: unknown;
}

/** Every failure of this SDK. Decide by `action`, or by `code`; `message` is for a developer to read and may change. */
export class PurserError extends Error {
  override readonly name = "PurserError";
  /** HTTP status; 0 if no response came, or if the error is the SDK's own. */
  readonly status: number;
  /** The code of the API, such as `allocation_exhausted`, of OAuth, or of the SDK, such as `connection_error`. */
  readonly code: string;
  /** The category of the code. */
  readonly type: string;
  /** The id of the request, for a report. */
  readonly requestID: string | null;
  /** The page that explains the code. */
  readonly docURL: string | null;
  /** Facts for a program, such as `max_tokens_that_fit`. */
  readonly details: Record<string, unknown>;
  /** Seconds to wait; null if the wait is not known, or does not help. */
  readonly retryAfter: number | null;
  /** Whether the same request may succeed when it is repeated soon. */
  readonly shouldRetry: boolean;
  /** What to do. */
  readonly action: Action;
  /** The connection that the error is about. */
  readonly connectionID: string | null;
  /** Where the user can raise the spend cap. */
  readonly increaseURL: string | null;
  /** Where the user can resume a frozen connection. */
  readonly reviewURL: string | null;
  /** The error as the API sent it, also with members that this version does not know. */
  readonly raw: unknown;

  constructor(facts: ErrorFacts) {
    super(facts.message, facts.cause === undefined ? {} : { cause: facts.cause });
    this.status = facts.status;
    this.code = facts.code;
    this.type = facts.type ?? "sdk";
    this.requestID = facts.requestID ?? null;
    this.docURL = facts.docURL ?? null;
    this.details = facts.details ?? {};
    this.retryAfter = facts.retryAfter ?? null;
    this.shouldRetry = facts.shouldRetry ?? false;
    this.connectionID = facts.connectionID ?? null;
    this.increaseURL = facts.increaseURL ?? null;
    this.reviewURL = facts.reviewURL ?? null;
    this.action = chooseAction(facts);
    this.raw = facts.raw;
  }
}

function chooseAction(f: ErrorFacts): Action {
  const rule = rules[f.code];
  if (!rule) return byStatus[f.status] ?? (f.status >= 500 ? "retry" : "fix_request");
  if (typeof rule === "string") return rule;
  const [action, facts] = rule;
  return facts[String(f.details?.reason)] ??
    (f.details?.retry === false ? facts.not_retryable : undefined) ??
    (f.retryAfter == null ? facts.no_retry_after : undefined) ??
    (f.clientCredentials ? facts.client_credentials : undefined) ?? action;
}

/** newError makes an error of the SDK itself. */
export function newError(code: string, message: string, cause?: unknown): PurserError {
  return new PurserError({ status: 0, code, message, cause, shouldRetry: code === "connection_error" });
}

/** isTemporary reports whether the same request may be answered later, although it was not now. */
export function isTemporary(e: PurserError): boolean {
  return e.status >= 500 || e.status === 408 || e.status === 429 ||
    ["connection_error", "invalid_response", "stream_broken"].includes(e.code);
}

/** What an error's body and headers say. */
export interface ErrorResponse {
  status: number;
  headers: Headers;
  body: unknown;
  clientCredentials: boolean;
}

/** parseError reads the error envelope, and the form of RFC 6749 that the device flow has. */
export function parseError({ status, headers, body, clientCredentials }: ErrorResponse): PurserError {
  const envelope = (body && typeof body === "object" ? body : {}) as Record<string, any>;
  const e = envelope.error && typeof envelope.error === "object" ? envelope.error : {
    code: typeof envelope.error === "string" ? envelope.error : undefined,
    message: envelope.error_description,
    details: envelope.details,
  };
  const retryAfter = parseRetryAfter(headers.get("retry-after"));
  return new PurserError({
    status,
    code: e.code || `http_${status}`, // not from the service: a proxy, for example
    message: e.message ?? `The server answered ${status} without an explanation.`,
    type: e.type ?? "unknown",
    requestID: headers.get("x-request-id"),
    docURL: e.doc_url,
    details: e.details,
    retryAfter,
    shouldRetry: isRetryable(status, headers.get("x-should-retry"), retryAfter),
    connectionID: e.connection_id,
    increaseURL: e.increase_url,
    reviewURL: e.review_url,
    clientCredentials,
    raw: body,
  });
}

/** The longest Retry-After, in seconds, that the SDK waits for by itself. */
export const maxWaitSeconds = 60;

function isRetryable(status: number, advice: string | null, retryAfter: number | null): boolean {
  if (advice === "false" || (retryAfter ?? 0) > maxWaitSeconds) return false;
  return status === 408 || (status === 429 && retryAfter !== null) || status >= 500;
}

const leastWaitSeconds = 1; // what a Retry-After of 0 says

// Proxies send a date.
function parseRetryAfter(text: string | null): number | null {
  if (!text) return null;
  if (/^\d+(\.\d+)?$/.test(text)) return Math.max(Number(text), leastWaitSeconds);
  const at = /^[A-Z][a-z]{2,8}, /.test(text) ? Date.parse(text) : NaN;
  return Number.isNaN(at) ? null : Math.max((at - Date.now()) / 1000, leastWaitSeconds);
}
