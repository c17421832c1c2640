// What programs in TypeScript rely on. It is only compiled: a line that must not compile says so.
import {
  FileTokenStore, Purser, PurserError, verifyWebhook, type Action, type Bill, type ConnectionEvent, type Event,
  type Receipt, type StreamBill, type TokenStore,
} from "@purser/sdk";

const store: TokenStore = new FileTokenStore("tokens");
const purser = new Purser({ baseURL: "https://purser.example.com", clientID: "a", clientSecret: process.env.S, tokens: store });
// @ts-expect-error: baseURL is missing
new Purser({ clientID: "a" });

export async function calls(): Promise<number> {
  const connection = purser.connection("conn_1");
  const answer = await connection.call("gpt-6-luna", { messages: [{ role: "user", content: "Hello" }] });
  const bill: Bill = answer.bill;
  // @ts-expect-error: not a member of a bill
  void bill.user_charge;
  // @ts-expect-error: no messages
  await connection.call("gpt-6-luna", {});
  const stream = connection.stream("gpt-6-luna", { messages: [{ role: "user", content: "Hello" }] });
  for await (const chunk of stream) process.stdout.write(chunk.text);
  const last: StreamBill | null = await stream.bill();
  if (last && last.settlement !== "pending") return last.user_charge_mc + last.usage.total_tokens;
  const receipt: Receipt = await connection.receipts.get("req_1");
  return receipt.charge?.user_charge_mc ?? bill.user_charge_mc;
}

export async function live(): Promise<void> {
  for await (const event of purser.withToken("t").events()) describe(event);
  for await (const feature of purser.features.list("app_1")) feature.slug.trim();
}

function describe(event: ConnectionEvent): string {
  switch (event.type) {
    case "balance": return event.connection.allocation_remaining_display;
    case "hold": return event.hold_amount_display;
    case "charge": case "refund": return event.entry.id;
    case "release": return event.released_display;
    case "end": return event.reason;
  }
}

export async function webhook(request: Request): Promise<string | null> {
  const event: Event = await verifyWebhook(await request.text(), request.headers, ["whsec_1", "whsec_2"]);
  switch (event.type) {
    case "connection.frozen": return event.data.review_url;
    case "connection.child_ended": return event.data.child.spent_display;
    case "allocation_change.approved": return event.data.allocation_request.id;
    case "app.spend_limit_reached": return event.data.app.limit_display;
    case "request.settled": return event.data.request.id;
    case "realtime_session.ended": return event.data.session.end_reason;
    default: return event.connection_id;
  }
}

export function act(error: unknown): Action | undefined {
  if (!(error instanceof PurserError)) return undefined;
  const url: string | null = error.increaseURL ?? error.reviewURL;
  return url ? error.action : "retry";
}
