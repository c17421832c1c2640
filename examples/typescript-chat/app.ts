// A chat with accounts of its own, whose users pay for their own answers through Purser. A user signs in, connects
// once, and sees what each answer cost and what is left.
import { readFile } from "node:fs/promises";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { FileTokenStore, Purser, PurserError } from "@purser/sdk";
import { Accounts, Sessions, type Message, type Notice, type Session } from "./accounts.js";
import { renderPage } from "./page.js";
import { settings } from "./settings.js";

const { BASE_URL, CLIENT_ID, CLIENT_SECRET, DATA, MODEL, ORIGIN, PORT, REDIRECT_URI } = settings;
const suggestedCapMC = 500_000_000; // $5.00 in micro-cents; the user can change it
const maxTokens = 1000; // a smaller cap holds less of the user's money while the answer is written
const maxQuestion = 8000; // characters

const purser = new Purser({
  baseURL: BASE_URL,
  clientID: CLIENT_ID,
  clientSecret: CLIENT_SECRET,
  redirectURI: REDIRECT_URI,
  tokens: new FileTokenStore(`${DATA}/tokens`),
});
const accounts = new Accounts(DATA);
const sessions = new Sessions();

type Handler = (req: IncomingMessage, res: ServerResponse, session: Session) => Promise<void>;

const routes: Record<string, Handler> = {
  "GET /": showPage,
  "POST /sign-up": (req, res) => openSession(req, res, "create"),
  "POST /sign-in": (req, res) => openSession(req, res, "check"),
  "POST /sign-out": async (_, res, session) => {
    sessions.end(session);
    redirect(res, "/", "session=; Path=/; Max-Age=0");
  },
  "GET /connect": connect,
  "GET /callback": finishConnect,
  "POST /disconnect": disconnect,
  "POST /messages": answer,
  "GET /app.js": (_, res) => sendFile(res, "app.js", "text/javascript"),
  "GET /style.css": (_, res) => sendFile(res, "style.css", "text/css"),
};

createServer(async (req, res) => {
  const { pathname } = new URL(req.url ?? "/", ORIGIN);
  const handler = routes[`${req.method} ${pathname}`];
  try {
    if (!handler) return void res.writeHead(404).end("Not found");
    // Other sites can't post here: browsers name the origin.
    if (req.method === "POST" && (req.headers.origin ?? ORIGIN) !== ORIGIN) return void res.writeHead(403).end();
    res.setHeader("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'");
    await handler(req, res, sessions.find(req.headers.cookie));
  } catch (error) {
    console.error(error);
    if (!res.headersSent) res.writeHead(500);
    res.end();
  }
}).listen(PORT, "localhost", () => console.log(`Open ${ORIGIN}`));

async function openSession(req: IncomingMessage, res: ServerResponse, how: "create" | "check"): Promise<void> {
  const form = await readForm(req);
  const name = form.get("name") ?? "";
  const failure = await accounts[how](name, form.get("password") ?? "");
  if (failure) return sendPage(res, 401, { notice: { text: failure } });
  redirect(res, "/", sessions.begin(name));
}

async function showPage(_: IncomingMessage, res: ServerResponse, session: Session): Promise<void> {
  const connectionID = accounts.connectionOf(session.user);
  let notice = session.takeNotice();
  let left: string | undefined;
  if (connectionID) {
    try {
      const state = await purser.connection(connectionID).get();
      if (state.status === "revoked") notice = await forget(session);
      else left = state.allocation_remaining_display;
    } catch (error) {
      notice = isOver(error) ? await forget(session) : explain(error);
    }
  }
  sendPage(res, 200, { session, connected: accounts.connectionOf(session.user) !== undefined, left, notice });
}

/** connect sends the user to the consent screen. The attempt waits in the session. */
async function connect(_: IncomingMessage, res: ServerResponse, session: Session): Promise<void> {
  if (!session.user) return redirect(res, "/");
  session.attempt = await purser.connect.start({ allocationMC: suggestedCapMC });
  redirect(res, session.attempt.url);
}

/** finishConnect takes the user back, and keeps the connection with the account. */
async function finishConnect(req: IncomingMessage, res: ServerResponse, session: Session): Promise<void> {
  const { attempt, user } = session;
  session.attempt = undefined;
  if (user && attempt) {
    try {
      const connection = await purser.connect.finish(req.url!, attempt);
      await accounts.setConnection(user, connection.id);
    } catch (error) {
      session.notice = explain(error);
    }
  }
  redirect(res, "/");
}

/** disconnect ends the connection. What is left returns to the user's balance. */
async function disconnect(_: IncomingMessage, res: ServerResponse, session: Session): Promise<void> {
  const connectionID = accounts.connectionOf(session.user);
  if (connectionID) {
    const revocation = await purser.connection(connectionID).revoke();
    await accounts.setConnection(session.user!, undefined);
    session.notice = { text: `Disconnected. ${revocation.released_display} returned to your balance.` };
  }
  redirect(res, "/");
}

/** answer streams an answer as lines of JSON. Without JavaScript the page is shown again instead. */
async function answer(req: IncomingMessage, res: ServerResponse, session: Session): Promise<void> {
  const streams = req.headers.accept === "application/x-ndjson";
  const question = ((await readForm(req)).get("message") ?? "").trim();
  const connectionID = accounts.connectionOf(session.user);
  if (!connectionID || !question || question.length > maxQuestion) return redirect(res, "/");
  const send = (update: object) => void (streams && res.write(`${JSON.stringify(update)}\n`));
  if (streams) res.setHeader("Content-Type", "application/x-ndjson");
  const gone = new AbortController(); // leaving the page stops the call, and what it costs
  res.on("close", () => gone.abort());
  const asked: Message = { role: "user", content: question };
  try {
    const stream = purser.connection(connectionID).stream(MODEL,
      { messages: [...session.messages, asked], max_tokens: maxTokens }, { feature: "chat", signal: gone.signal });
    let said = "";
    for await (const { text } of stream) {
      said += text;
      if (text) send({ text });
    }
    const bill = await stream.bill();
    session.bill = bill?.settlement === "pending" ? "The charge follows" : `${bill?.user_charge_display} charged`;
    session.messages.push(asked, { role: "assistant", content: said });
    send({ bill: session.bill, left: bill?.allocation_remaining_display });
  } catch (error) {
    if (gone.signal.aborted) return;
    const notice = isOver(error) ? await forget(session) : explain(error);
    send({ notice });
    if (!streams) session.notice = notice;
  }
  if (streams) res.end();
  else redirect(res, "/");
}

/** forget removes the connection of an account whose tokens no longer work. */
async function forget(session: Session): Promise<Notice> {
  await accounts.setConnection(session.user!, undefined);
  return { text: "Your connection has ended.", url: "/connect", link: "Connect again" };
}

function isOver(error: unknown): boolean {
  return error instanceof PurserError && error.action === "connect_again";
}

/** explain says what the user can do about an error. */
function explain(error: unknown): Notice {
  if (!(error instanceof PurserError)) throw error;
  switch (error.action) {
    case "raise_cap":
      return { text: "Your spend cap is too low for this.", url: error.increaseURL ?? undefined, link: "Raise it" };
    case "ask_user":
      if (error.code === "access_denied") return { text: "Not connected: you have declined." };
      return { text: "Your connection is paused.", url: error.reviewURL ?? undefined, link: "Review it" };
    case "wait":
      return { text: `That is too much at once. Try again in ${error.retryAfter ?? 60} seconds.` };
    case "retry":
      return { text: "That did not work just now. Try again." };
    default:
      console.error(error);
      return { text: "That did not work." };
  }
}

async function readForm(req: IncomingMessage): Promise<URLSearchParams> {
  let text = "";
  for await (const part of req.setEncoding("utf8")) {
    text += part;
    if (text.length > 100_000) throw new Error("the form is too long");
  }
  return new URLSearchParams(text);
}

function sendPage(res: ServerResponse, status: number, view: Parameters<typeof renderPage>[0]): void {
  res.writeHead(status, { "Content-Type": "text/html; charset=utf-8" }).end(renderPage(view));
}

async function sendFile(res: ServerResponse, name: string, type: string): Promise<void> {
  res.setHeader("Content-Type", `${type}; charset=utf-8`).end(await readFile(new URL(`../public/${name}`, import.meta.url)));
}

function redirect(res: ServerResponse, to: string, cookie?: string): void {
  if (cookie) res.setHeader("Set-Cookie", cookie);
  res.writeHead(303, { Location: to }).end();
}
