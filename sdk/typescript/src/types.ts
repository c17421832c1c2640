import type { Schemas } from "./generated/api.js";

/** What a call cost. Amounts end in `_mc`: integers of micro-cents, 100,000,000 are $1.00. `_display` is for people. */
export type Bill = Schemas["Svc"];
/** What a stream cost. `pending`: the charge follows by the event `request.settled`. */
export type StreamBill =
  | ({ settlement: "settled" | "estimated"; usage: Usage } & Omit<Bill, "settlement">)
  | ({ settlement: "pending"; usage: null } & { [K in Exclude<keyof Bill, "settlement">]?: undefined });
/** Tokens of a call. */
export type Usage = Schemas["Usage"];
/** The body of a call: OpenAI's chat completions. */
export type CallBody = Schemas["ChatRequest"];
/** A turn of a conversation. */
export type Message = Schemas["Message"];
/** A call of a tool by the model. */
export type ToolCall = Schemas["ToolCall"];
/** The body of an answer. */
export type Completion = Schemas["ChatCompletion"];
/** One chunk of a stream, as the provider sent it. */
export type CompletionChunk = Schemas["ChatCompletionChunk"];
/** What a call would be held for, and may cost. */
export type Estimate = Schemas["Estimate"];
/** Why a call cost what it cost. */
export type Receipt = Schemas["Receipt"];
/** Money held for the app's own work. */
export type Hold = Schemas["Hold"];
/** A part of a connection's budget, which another agent or job spends by a token of its own. */
export type Child = Schemas["Child"];
/** A child with its token, which only the answer that made it has. */
export type ChildWithToken = Child & Required<Pick<Child, "token">>;
/** A user's grant to the app. */
export type ConnectionState = Schemas["Connection"];
/** An event of {@link Connection.events}. `event_id` is where a later stream can go on. */
export type ConnectionEvent = Schemas["ConnectionStreamEvent"] & { event_id?: string };
/** A request to raise a connection's cap. */
export type AllocationRequest = Schemas["AllocationRequest"];
/** The end of a connection. */
export type Revocation = Schemas["Revocation"];
/** A model that can be called. */
export type Model = Schemas["Model"];
/** The app. */
export type App = Schemas["App"] & Required<Schemas["AppMembers"]>;
/** Changes of the app. */
export type AppChanges = Schemas["AppMembers"];
/** A feature of the app. */
export type Feature = Required<Schemas["FeatureMembers"]>;
/** A feature to register. */
export type NewFeature = Schemas["FeatureMembers"] &
  Required<Pick<Schemas["FeatureMembers"], "slug" | "display_name" | "description">>;
/** Changes of a feature. */
export type FeatureChanges = Schemas["FeatureMembers"];
/** A webhook endpoint. */
export type Webhook = Schemas["Webhook"] & Required<Schemas["WebhookMembers"]>;
/** A webhook endpoint with its secret, which is shown once. */
export type WebhookWithSecret = Schemas["NewWebhookSecret"] & Required<Schemas["WebhookMembers"]>;
/** A webhook endpoint to add. */
export type NewWebhook = Schemas["NewWebhook"];
/** Changes of a webhook endpoint. */
export type WebhookChanges = Schemas["WebhookMembers"];
/** One event on its way to an endpoint. */
export type Delivery = Schemas["Delivery"];
/** An event about the app's connections. `type` tells which `data` it has. */
export type Event = Schemas["Event"];
/** The types of {@link Event}. */
export type EventType = Schemas["EventType"];
/** A test account. */
export type TestAccount = Schemas["TestAccount"];
/** A test account with its password, which is shown once. */
export type NewTestAccount = Schemas["NewTestAccount"];
/** The settings of a voice session. */
export type NewVoiceSession = Schemas["NewVoiceSession"];
/** A voice session that waits for its browser. */
export type CreatedVoiceSession = Schemas["VoiceSessionCreated"];
/** What the browser needs for a voice session. It holds no secret of the app. */
export type VoiceClient = CreatedVoiceSession["client"];
/** A voice session with its receipts. */
export type VoiceSessionState = Schemas["VoiceSession"];
/** A voice session in a list. */
export type VoiceSessionSummary = Schemas["VoiceSessionSummary"];
/** An event of the control channel. */
export type VoiceControlEvent = Schemas["VoiceControlEvent"];
/** What the app may send on the control channel. */
export type VoiceControlRequest = Schemas["VoiceControlRequest"];
/** The answer of the device endpoint. */
export type DeviceAuthorization = Schemas["DeviceAuthorization"];
/** The answer of the token endpoint. */
export type TokenResponse = Schemas["TokenResponse"];
