"""The app's pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Chat</title>
<style>
  :root { color-scheme: light dark; background: Canvas; color: CanvasText; }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 2rem auto; padding: 0 1rem; }
  header { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; }
  header span { margin-right: auto; }
  form { margin: .5rem 0; }
  label { display: block; margin: .5rem 0; }
  #messages p { white-space: pre-wrap; overflow-wrap: anywhere; padding: .25rem .75rem; margin: .5rem 0; }
  .user { border-left: .25rem solid; }
  #messages .bill { font-size: .85rem; }
  textarea, input { font: inherit; box-sizing: border-box; width: 100%%; padding: .5rem; }
  button { font: inherit; padding: .5rem 1rem; }
</style>
</head>
<body>
%s
</body>
</html>
"""

SCRIPT = """
const form = document.getElementById("ask"), list = document.getElementById("messages");
const left = document.getElementById("left");
function add(name, text) {
  const p = document.createElement("p");
  p.className = name;
  p.textContent = text;
  list.append(p);
  return p;
}
async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const whole = (rest + part.value).split("\\n");
    rest = whole.pop();
    yield* whole.map((line) => JSON.parse(line));
  }
}
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = form.text.value.trim();
  if (!text) return;
  form.text.value = "";
  add("user", text);
  const answer = add("assistant", "");
  const headers = { "Content-Type": "application/x-www-form-urlencoded", Accept: "application/x-ndjson" };
  const response = await fetch("/messages", { method: "POST", headers, body: new URLSearchParams({ text }) });
  if (!response.ok) { location.reload(); return; }
  for await (const line of lines(response)) {
    if (line.text) answer.textContent += line.text;
    if (line.cost) { add("bill", line.cost + " charged"); left.textContent = line.left; }
    if (line.error) {
      const p = add("bill", line.error + " ");
      if (line.link) {
        const a = document.createElement("a");
        a.href = line.link;
        a.textContent = line.label;
        p.append(a);
      }
    }
  }
});
"""


def sign_in(problem: str = "") -> str:
    """Return the page on which a user signs in or creates an account."""
    return FRAME % f"""<main>
<h1>Chat</h1>
<p role="alert">{escape(problem)}</p>
<form method="post" action="/sign-in">
  <label>Name <input name="name" autocomplete="username" required></label>
  <label>Password <input name="password" type="password" required></label>
  <button>Sign in</button>
  <button formaction="/sign-up">Create account</button>
</form>
</main>"""


def chat(name: str, messages: Sequence[dict[str, str]], left: str | None, notice: str) -> str:
    """Return the chat. ``left`` is what remains of the spend cap, or None without a connection."""
    said = "".join(show_message(message) for message in messages)
    if left is None:
        status = "You pay for your own answers, and set the limit."
        action = '<a href="/connect">Connect Purser</a>'
        ask = ""
    else:
        status = f'<b id="left">{escape(left)}</b> left'
        action = '<form method="post" action="/disconnect"><button>Disconnect</button></form>'
        ask = f"""<form id="ask" method="post" action="/messages">
  <label>Message <textarea name="text" rows="2" required></textarea></label>
  <button>Send</button>
</form>
<script>{SCRIPT}</script>"""
    return FRAME % f"""<header>
  <span>{escape(name)}: {status}</span>
  {action}
  <form method="post" action="/sign-out"><button>Sign out</button></form>
</header>
<main>
<h1>Chat</h1>
<p role="status">{escape(notice)}</p>
<div id="messages" aria-live="polite">{said}</div>
{ask}
</main>"""


def show_message(message: dict[str, str]) -> str:
    """Return a message and, below an answer, what it cost."""
    text = f'<p class="{escape(message["role"])}">{escape(message["content"])}</p>'
    if message["cost"]:
        text += f'<p class="bill">{escape(message["cost"])} charged</p>'
    return text


def problem(text: str, link: str | None = None, label: str | None = None) -> str:
    """Return a page that says what went wrong, and where a link leads that helps."""
    help_link = f'<p><a href="{escape(link)}">{escape(label or link)}</a></p>' if link else ""
    return FRAME % f'<main><h1>That did not work</h1><p>{escape(text)}</p>{help_link}<a href="/">Back</a></main>'
