// A page to talk with a model. The user of the page connects Purser, and pays for the conversation. The audio goes from
// the browser to the model directly; this server creates the session, says what it has cost, and ends it.
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { FileTokenStore, Purser, PurserError, type Connection, type ConnectAttempt } from "@purser/sdk";
import { settings } from "./settings.js";

const { BASE_URL, CLIENT_ID, CLIENT_SECRET, DATA, MODEL, ORIGIN, PORT, REDIRECT_URI } = settings;

const purser = new Purser({
  baseURL: BASE_URL,
  clientID: CLIENT_ID,
  clientSecret: CLIENT_SECRET,
  redirectURI: REDIRECT_URI,
  tokens: new FileTokenStore(`${DATA}/tokens`),
});

/** One browser. It lives as long as the process. */
interface Visitor {
  attempt?: ConnectAttempt;
  connection?: Connection;
}
const visitors = new Map<string, Visitor>();
const missing = new Map<string, NodeJS.Timeout>(); // the end of each session whose page is not heard from

/** findVisitor returns who sends a request, and gives a new browser its cookie. Behind HTTPS add Secure. */
function findVisitor(req: IncomingMessage, res: ServerResponse): Visitor {
  const known = visitors.get(/(?:^|; *)visitor=([0-9a-f-]+)/.exec(req.headers.cookie ?? "")?.[1] ?? "");
  if (known) return known;
  const id = randomUUID(), visitor: Visitor = {};
  visitors.set(id, visitor);
  res.setHeader("Set-Cookie", `visitor=${id}; Path=/; HttpOnly; SameSite=Lax`);
  return visitor;
}

type Handler = (req: IncomingMessage, res: ServerResponse, visitor: Visitor, id: string) => Promise<void>;

// A name in braces is the id of a voice session.
const routes: [string, Handler][] = [
  ["GET /", (_, res) => sendFile(res, "../public/index.html", "text/html")],
  ["GET /style.css", (_, res) => sendFile(res, "../public/style.css", "text/css")],
  ["GET /browser.js", (_, res) => sendFile(res, "browser.js", "text/javascript")],
  ["GET /connect", async (_, res, visitor) => {
    visitor.attempt = await purser.connect.start({ allocationMC: 200_000_000 }); // $2.00; the user can change it
    redirect(res, visitor.attempt.url);
  }],
  ["GET /callback", async (req, res, visitor) => {
    const { attempt } = visitor;
    delete visitor.attempt;
    if (attempt) visitor.connection = await purser.connect.finish(req.url!, attempt);
    redirect(res, "/");
  }],
  ["GET /state", async (_, res, visitor) => {
    const state = await visitor.connection?.get();
    sendJSON(res, { connected: state?.status === "active", left: state?.allocation_remaining_display });
  }],
  ["POST /sessions", async (_, res, visitor) => {
    const session = await need(visitor).voice.start({
      model: MODEL,
      instructions: "You are a friendly companion. Be brief.",
      max_duration_s: 600,
      max_cost_mc: 50_000_000, // $0.50
    });
    sendJSON(res, { id: session.id, client: session.client }); // no secret of this app
  }],
  ["GET /sessions/{id}", async (_, res, visitor, id) => {
    const { status, charged_display, receipts } = await need(visitor).voice.get(id);
    sendJSON(res, { status, charged: charged_display, replies: receipts.length });
  }],
  ["POST /sessions/{id}/alive", async (_, res, visitor, id) => {
    hearFrom(need(visitor), id);
    sendJSON(res, {});
  }],
  ["POST /sessions/{id}/end", async (_, res, visitor, id) => {
    clearTimeout(missing.get(id));
    await need(visitor).voice.end(id, "immediate");
    sendJSON(res, {});
  }],
];

createServer(async (req, res) => {
  const { pathname } = new URL(req.url ?? "/", ORIGIN);
  const [path, id = ""] = /^\/sessions\/(rts_\w+)/.test(pathname)
    ? [pathname.replace(/rts_\w+/, "{id}"), /rts_\w+/.exec(pathname)![0]] : [pathname];
  const handler = routes.find(([route]) => route === `${req.method} ${path}`)?.[1];
  try {
    if (!handler) return void res.writeHead(404).end();
    // Other sites can't post here: browsers name the origin.
    if (req.method === "POST" && (req.headers.origin ?? ORIGIN) !== ORIGIN) return void res.writeHead(403).end();
    await handler(req, res, findVisitor(req, res), id);
  } catch (error) {
    sendFailure(res, error);
  }
}).listen(PORT, "localhost", () => console.log(`Open ${ORIGIN}`));

/** hearFrom notes that a page is there. Nobody else can tell that its tab was killed, or is offline. */
function hearFrom(connection: Connection, id: string): void {
  clearTimeout(missing.get(id));
  missing.set(id, setTimeout(() => {
    missing.delete(id);
    connection.voice.end(id, "immediate").catch(console.error);
  }, 25_000));
}

function need({ connection }: Visitor): Connection {
  if (!connection) throw new Error("not connected");
  return connection;
}

/** sendFailure says what the user can do about an error. */
function sendFailure(res: ServerResponse, error: unknown): void {
  const e = error instanceof PurserError ? error : undefined;
  const notice = {
    raise_cap: { text: "Your spend cap is too low for this.", url: e?.increaseURL, link: "Raise it" },
    ask_user: { text: "Your connection is paused.", url: e?.reviewURL, link: "Review it" },
    connect_again: { text: "Your connection has ended.", url: "/connect", link: "Connect again" },
  }[e?.action as string] ?? { text: e?.code === "access_denied" ? "You have declined." : "That did not work. Try again." };
  if (!e || e.action === "fix_request") console.error(error);
  sendJSON(res, { notice }, 400);
}

function sendJSON(res: ServerResponse, value: object, status = 200): void {
  res.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(value));
}

async function sendFile(res: ServerResponse, name: string, type: string): Promise<void> {
  res.setHeader("Content-Security-Policy", `default-src 'self'; connect-src 'self' ${BASE_URL} ${BASE_URL.replace(/^http/, "ws")}; media-src blob:`);
  res.setHeader("Content-Type", `${type}; charset=utf-8`).end(await readFile(new URL(name, import.meta.url)));
}

function redirect(res: ServerResponse, to: string): void {
  res.writeHead(303, { Location: to }).end();
}
