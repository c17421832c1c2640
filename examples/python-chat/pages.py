"""The app's pages."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Chat</title>
<style>
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 2rem auto; padding: 0 1rem; }
  header { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; }
  header form, .fields { display: flex; gap: .5rem; flex-wrap: wrap; }
  header span { margin-right: auto; }
  #messages p { white-space: pre-wrap; border-radius: .5rem; padding: .5rem .75rem; margin: .5rem 0; }
  .user { background: #e8eefc; } .assistant { background: #f2f2f2; }
  .bill { font-size: .85rem; color: #555; }
  textarea, input { font: inherit; flex: 1; padding: .5rem; }
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
  const response = await fetch("/messages", { method: "POST", body: text });
  if (!response.ok) { location.reload(); return; }
  for await (const line of lines(response)) {
    if (line.text) answer.textContent += line.text;
    if (line.cost) { add("bill", line.cost); left.textContent = line.left; }
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
    """Return the page on which a user signs in or signs up."""
    return FRAME % f"""<h1>Chat</h1>
<p role="alert">{escape(problem)}</p>
<form method="post" action="/sign-in" class="fields">
  <input name="name" aria-label="Name" placeholder="Name" autocomplete="username" required>
  <input name="password" type="password" aria-label="Password" placeholder="Password" required>
  <button>Sign in</button>
  <button formaction="/sign-up">Sign up</button>
</form>"""


def chat(name: str, messages: Sequence[dict[str, str]], left: str | None) -> str:
    """Return the chat. ``left`` is what remains of the spend cap, or None without a connection."""
    said = "".join(f'<p class="{escape(each["role"])}">{escape(each["content"])}</p>' for each in messages)
    if left is None:
        status = "You pay for your own answers, and set the limit."
        action = '<form method="post" action="/connect"><button>Connect Purser</button></form>'
        ask = ""
    else:
        status = f'<b id="left">{escape(left)}</b> left'
        action = '<form method="post" action="/disconnect"><button>Disconnect</button></form>'
        ask = f"""<form id="ask" class="fields">
  <textarea name="text" rows="2" aria-label="Message" required></textarea><button>Send</button>
</form>
<script>{SCRIPT}</script>"""
    return FRAME % f"""<header>
  <span>{escape(name)} · {status}</span>
  {action}
  <form method="post" action="/sign-out"><button>Sign out</button></form>
</header>
<main><div id="messages" aria-live="polite">{said}</div>{ask}</main>"""


def problem(text: str) -> str:
    """Return a page that says what went wrong."""
    return FRAME % f'<h1>That did not work</h1><p>{escape(text)}</p><p><a href="/">Back</a></p>'
