import type { Notice, Session } from "./accounts.js";

/** What a page shows. Without a session it asks to sign in. */
export interface View {
  session?: Session;
  connected?: boolean;
  left?: string | undefined;
  notice?: Notice | undefined;
}

/** renderPage returns the page. Every value is escaped. */
export function renderPage({ session, connected, left, notice }: View): string {
  const user = session?.user;
  const link = notice?.url ? html` <a href="${notice.url}">${notice.link ?? notice.url}</a>` : safe("");
  return html`<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>Chat</title>
  <link rel="stylesheet" href="/style.css">
  <script src="/app.js" defer></script>
</head>
<body>
<header>
  <h1>Chat</h1>
  ${user ? html`<form method="post" action="/sign-out"><span>${user}</span> <button>Sign out</button></form>` : safe("")}
</header>
<main>
  <p id="notice" role="status"${safe(notice ? "" : " hidden")}>${notice?.text ?? ""}${link}</p>
  ${!session || !user ? signIn : connected ? renderChat(session, left ?? "") : invitation}
</main>
</body>
</html>
`.text;
}

const signIn = safe(`<form method="post" action="/sign-in" class="card">
    <label>Name <input name="name" autocomplete="username" required maxlength="80"></label>
    <label>Password <input name="password" type="password" autocomplete="current-password" required minlength="8"></label>
    <p><button>Sign in</button> <button formaction="/sign-up" class="plain">Create account</button></p>
  </form>`);

const invitation = safe(`<section class="card">
    <h2>Pay for your own answers</h2>
    <p>Connect Purser, and set how much this app may spend. You can stop at any time.</p>
    <p><a class="button" href="/connect">Connect Purser</a></p>
  </section>`);

function renderChat(session: Session, left: string): Safe {
  const messages = session.messages.map(({ role, content }) => html`<li class="${role}">${content}</li>`);
  return html`<ol id="messages" aria-live="polite">${messages}</ol>
  <form method="post" action="/messages" id="ask">
    <label>Message <textarea name="message" rows="3" required maxlength="8000"></textarea></label>
    <p><button>Send</button></p>
  </form>
  <footer>
    <p><span id="bill">${session.bill}</span> <span><span id="left">${left}</span> left</span></p>
    <form method="post" action="/disconnect"><button class="plain">Disconnect</button></form>
  </footer>`;
}

/** Text that is HTML already. */
interface Safe {
  text: string;
}

function safe(text: string): Safe {
  return { text };
}

function html(parts: TemplateStringsArray, ...values: (string | Safe | Safe[])[]): Safe {
  const write = (value: string | Safe | Safe[]): string =>
    Array.isArray(value) ? value.map(write).join("\n") : typeof value === "string" ? escape(value) : value.text;
  return safe(parts.map((part, i) => part + (i < values.length ? write(values[i]!) : "")).join(""));
}

const escapes: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (c) => escapes[c]!);
}
