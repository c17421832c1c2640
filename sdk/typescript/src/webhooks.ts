import { newError } from "./errors.js";
import type { Event } from "./types.js";

/** The options of {@link verifyWebhook}. */
export interface VerifyOptions {
  /** The oldest signature that is accepted, and the one furthest in the future; default 300. */
  toleranceSeconds?: number;
}

/** Headers of a request: of the web's `Request`, of Node.js, or a plain object. */
export type HeaderSource = Headers | Record<string, string | string[] | undefined>;

/**
 * verifyWebhook checks the signature of a delivery, and returns its event. It throws a PurserError with the code
 * `invalid_signature`, also if a secret is empty: anyone could sign with it.
 *
 * @param body The raw body. Parsed JSON that is serialized again has another signature.
 * @param secret The endpoint's `whsec_…`, or several while one replaces the other.
 */
export async function verifyWebhook(
  body: string | Uint8Array | ArrayBuffer, headers: HeaderSource, secret: string | string[], options: VerifyOptions = {},
): Promise<Event> {
  const secrets = Array.isArray(secret) ? secret : [secret];
  if (!secrets.length || secrets.some((one) => !one?.trim().replace(/^whsec_/, ""))) {
    throw refuse("the secret is empty");
  }
  const bytes = typeof body === "string" ? encode(body) : new Uint8Array(body);
  const own = getHeader(headers, "svc-signature");
  const { time, signatures, prefix, hex } = own ? parseOwn(own) : parseStandard(headers);
  const age = Math.abs(Date.now() / 1000 - Number(time));
  if (!/^\d{1,12}$/.test(time) || !signatures.length) throw refuse("no valid signature header");
  if (age > (options.toleranceSeconds ?? 300)) throw refuse("the signature is too old");
  const signed = concat(encode(`${prefix}${time}.`), bytes);
  for (const one of secrets) {
    const raw = hex ? encode(one) : decodeBase64(one.replace(/^whsec_/, ""));
    if (!raw?.length) continue; // no key of this scheme
    const key = await crypto.subtle.importKey("raw", raw, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
    for (const signature of signatures) {
      // WebCrypto compares in constant time.
      if (await crypto.subtle.verify("HMAC", key, signature, signed)) {
        return JSON.parse(new TextDecoder().decode(bytes)) as Event;
      }
    }
  }
  throw refuse("the signature is wrong");
}

interface Signed {
  time: string;
  signatures: Uint8Array<ArrayBuffer>[];
  prefix: string;
  hex: boolean;
}

// Svc-Signature: t=<unix seconds>,v1=<hex>
function parseOwn(header: string): Signed {
  const parts = header.split(",").map((part) => part.trim().split("=", 2) as [string, string?]);
  const signatures = parts.filter(([name, value]) => name === "v1" && /^([0-9a-f]{2})+$/.test(value ?? ""))
    .map(([, value]) => Uint8Array.from(value!.match(/../g)!, (byte) => parseInt(byte, 16)));
  return { time: parts.find(([name]) => name === "t")?.[1] ?? "", signatures, prefix: "", hex: true };
}

// Standard Webhooks: webhook-signature has base64 signatures of <id>.<time>.<body>, separated by spaces.
function parseStandard(headers: HeaderSource): Signed {
  const signatures = (getHeader(headers, "webhook-signature") ?? "").split(" ")
    .filter((part) => part.startsWith("v1,")).map((part) => decodeBase64(part.slice(3)))
    .filter((signature) => signature !== undefined);
  const time = getHeader(headers, "webhook-timestamp") ?? "";
  return { time, signatures, prefix: `${getHeader(headers, "webhook-id")}.`, hex: false };
}

function getHeader(headers: HeaderSource, name: string): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined;
  const value = Object.entries(headers).find(([key]) => key.toLowerCase() === name)?.[1];
  return Array.isArray(value) ? value.join(",") : value;
}

function decodeBase64(text: string): Uint8Array<ArrayBuffer> | undefined {
  try {
    return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  } catch {
    return undefined;
  }
}

function concat(a: Uint8Array, b: Uint8Array): Uint8Array<ArrayBuffer> {
  const both = new Uint8Array(a.length + b.length);
  both.set(a);
  both.set(b, a.length);
  return both;
}

const encode = (text: string) => new TextEncoder().encode(text);
const refuse = (why: string) => newError("invalid_signature", `The webhook can't be trusted: ${why}.`);
