import type { Connection } from "./connection.js";

// Other SDKs insist on a key. The hooks' fetch replaces it by a fresh access token.
const placeholder = "access-token-of-the-connection";

/** openAIOptions gives the official OpenAI SDK a fresh access token for each request: `new OpenAI(openAIOptions(connection))`. */
export function openAIOptions(connection: Connection): { baseURL: string; apiKey: string; fetch: typeof fetch } {
  return { baseURL: `${connection.purser.options.baseURL}/openai/v1`, apiKey: placeholder, fetch: connection.fetch };
}

/** anthropicOptions does so for Anthropic's SDK: `new Anthropic(anthropicOptions(connection))`. */
export function anthropicOptions(
  connection: Connection,
): { baseURL: string; authToken: string; apiKey: null; fetch: typeof fetch } {
  const baseURL = `${connection.purser.options.baseURL}/anthropic`;
  return { baseURL, authToken: placeholder, apiKey: null, fetch: connection.fetch };
}

/**
 * vercelOptions does so for the providers of the Vercel AI SDK: `createOpenAI(vercelOptions(connection))`,
 * `createOpenAICompatible(vercelOptions(connection))`, or `createAnthropic(vercelOptions(connection, "anthropic"))`.
 */
export function vercelOptions(
  connection: Connection, provider: "openai" | "anthropic" = "openai",
): { name: string; baseURL: string; apiKey: string; fetch: typeof fetch } {
  const baseURL = `${connection.purser.options.baseURL}/${provider}/v1`;
  return { name: "purser", baseURL, apiKey: placeholder, fetch: connection.fetch };
}
