/**
 * Purser lets the users of an app pay for its AI calls, each from their own balance.
 *
 * Objects of the API keep the API's names, such as `user_charge_mc`. Amounts are integers of micro-cents of US dollars:
 * 100,000,000 are $1.00. A number is exact up to 2^53 of them, which is 90 million dollars.
 *
 * @module
 */
export { Purser, type PurserOptions } from "./client.js";
export { Connect, Device, type ConnectAttempt, type ConnectRequest, type StartOptions } from "./connect.js";
export {
  Children, Connection, ConnectionHolds, Receipts, type Answer, type CallOptions, type ChildRequest, type HoldRequest,
} from "./connection.js";
export { PurserError, type Action, type ErrorFacts } from "./errors.js";
export { version } from "./generated/version.js";
export { anthropicOptions, openAIOptions, vercelOptions } from "./hooks.js";
export {
  Apps, Connections, Events, Features, Holds, Models, TestAccounts, Webhooks, type DeliveryListOptions, type ListOptions,
  type Recovered,
} from "./management.js";
export { CallStream, type StreamChunk } from "./stream.js";
export { FileTokenStore, MemoryTokenStore, type Tokens, type TokenStore } from "./tokens.js";
export type * from "./types.js";
export {
  joinVoice, Voice, VoiceControl, VoiceSession, type EndWhen, type JoinOptions, type VoiceCall, type WebSocketClass,
} from "./voice.js";
export { verifyWebhook, type HeaderSource, type VerifyOptions } from "./webhooks.js";
