"""A chat with accounts, whose users pay for their own answers through Purser.

A user signs in here, connects Purser once, and sees what each answer cost. The app keeps users,
messages and connections in SQLite, and the tokens of connections in a FileTokenStore.
"""

from __future__ import annotations

import json
import os
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pages
from database import Database, User
from purser import ConnectAgainError, ConnectAttempt, DeclinedError, FileTokenStore, Purser, PurserError

MAX_TOKENS = 300  # a smaller cap holds less of the user's money while the answer is written
SUGGESTED_CAP_MC = 500_000_000  # $5.00 in micro-cents
MAX_BODY_BYTES = 20_000


def load_dotenv(path: Path) -> None:
    """Read NAME=value lines. Variables of the environment win."""
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            name, equals, value = line.strip().partition("=")
            if equals and not name.startswith("#"):
                os.environ.setdefault(name.strip(), value.strip().strip("\"'"))


load_dotenv(Path(".env"))
MODEL = os.environ.get("MODEL", "gpt-6-luna")
PORT = int(os.environ.get("PORT", "3000"))
ORIGIN = f"http://localhost:{PORT}"
DATA = Path(os.environ.get("DATA", "data"))
tokens = FileTokenStore(DATA / "tokens")
purser = Purser(
    os.environ.get("BASE_URL", "http://localhost:8080"),
    os.environ["CLIENT_ID"],
    os.environ["CLIENT_SECRET"],
    redirect_uri=os.environ.get("REDIRECT_URI", ORIGIN + "/callback"),
    tokens=tokens,
)
database = Database(DATA / "chat.db")


class Handler(BaseHTTPRequestHandler):
    """Answers the requests of browsers."""

    def do_GET(self) -> None:
        """Show a page, or finish an attempt to connect."""
        user = self.find_user()
        path = urlsplit(self.path).path
        if path == "/callback" and user is not None:
            self.finish_connect(user)
        elif path == "/connect" and user is not None:
            self.start_connect(user)
        elif path == "/" and user is None:
            self.show(pages.sign_in())
        elif path == "/" and user is not None:
            self.show_chat(user)
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        """Change something. Other sites can't post here: the browser names the origin."""
        if self.headers.get("Origin", ORIGIN) != ORIGIN:
            self.send_error(403)
            return
        length = int(self.headers.get("Content-Length", "0"))
        if length > MAX_BODY_BYTES:
            self.send_error(413)
            return
        body = self.rfile.read(length).decode("utf-8", "replace")
        form = {name: values[0] for name, values in parse_qs(body).items()}
        user = self.find_user()
        if self.path in ("/sign-in", "/sign-up"):
            self.open_session(form)
        elif user is None:
            self.redirect("/")
        elif self.path == "/sign-out":
            database.end_sessions(user)
            self.redirect("/")
        elif self.path == "/disconnect":
            self.disconnect(user)
        elif self.path == "/messages":
            self.answer(user, form.get("text", ""))
        else:
            self.send_error(404)

    # The app's own accounts

    def find_user(self) -> User | None:
        """Return the user of the session, or None."""
        cookies: SimpleCookie[str] = SimpleCookie(self.headers.get("Cookie", ""))
        cookie = cookies.get("session")
        return database.find_user(cookie.value) if cookie else None

    def open_session(self, form: dict[str, str]) -> None:
        """Sign in or sign up."""
        name, password = form.get("name", ""), form.get("password", "")
        if self.path == "/sign-up":
            session, problem = database.sign_up(name, password), "This name is taken, or the password is too short."
        else:
            session, problem = database.sign_in(name, password), "Incorrect name or password."
        if session is None:
            self.show(pages.sign_in(problem), status=401)
        else:  # behind HTTPS add Secure
            self.redirect("/", cookie=f"session={session}; Path=/; HttpOnly; SameSite=Lax; Max-Age=2592000")

    # Purser

    def start_connect(self, user: User) -> None:
        """Send the browser to the consent screen, and keep the attempt with the user."""
        attempt = purser.connect.start(allocation_mc=SUGGESTED_CAP_MC)
        database.save_attempt(user, json.dumps([attempt.url, attempt.state, attempt.verifier]))
        self.redirect(attempt.url)

    def finish_connect(self, user: User) -> None:
        """Exchange the code that the browser brought back."""
        attempt = database.take_attempt(user)
        if attempt is None:
            self.redirect("/")
            return
        try:
            connection = purser.connect.finish(ORIGIN + self.path, ConnectAttempt(*json.loads(attempt)))
        except DeclinedError:
            self.redirect("/")
        except PurserError as error:
            self.show(pages.problem(str(error)), status=400)
        else:
            database.save_connection(user, connection.connection_id)
            self.redirect("/")

    def disconnect(self, user: User) -> None:
        """End the connection. What was not spent returns to the user's balance."""
        if user.connection_id is not None:
            purser.connection(user.connection_id).revoke()
            tokens.delete(user.connection_id)
            database.save_connection(user, None)
        self.redirect("/?disconnected")

    def show_chat(self, user: User) -> None:
        """Show the messages, and what is left."""
        left = None
        if user.connection_id is not None:
            try:
                left = purser.connection(user.connection_id).get().allocation_remaining_display
            except ConnectAgainError:  # the user ended it on the dashboard
                database.save_connection(user, None)
            except PurserError:
                left = "unknown"
        notice = "Disconnected. What you did not spend is yours again." if self.path == "/?disconnected" else ""
        self.show(pages.chat(user.name, database.messages(user), left, notice))

    def answer(self, user: User, text: str) -> None:
        """Answer a message: as lines of JSON while it is written, or without JavaScript by the page."""
        if user.connection_id is None or not text:
            self.redirect("/")
            return
        history = [{"role": each["role"], "content": each["content"]} for each in database.messages(user)]
        messages = [*history, {"role": "user", "content": text}]
        stream = purser.connection(user.connection_id).stream(MODEL, {"messages": messages, "max_tokens": MAX_TOKENS})
        with_lines = "application/x-ndjson" in self.headers.get("Accept", "")
        if with_lines:
            self.send_response(200)
            self.send_header("Content-Type", "application/x-ndjson")
            self.end_headers()
        said, problem = "", None
        try:
            for chunk in stream:
                said += chunk.text
                if with_lines:
                    self.send_line({"text": chunk.text})
            bill = stream.bill()
            database.add_exchange(user, text, said, bill.user_charge_display)
            if with_lines:
                self.send_line({"cost": bill.user_charge_display, "left": bill.allocation_remaining_display})
        except PurserError as error:
            problem = describe(error)
            if isinstance(error, ConnectAgainError):
                database.save_connection(user, None)
        if with_lines and problem is not None:
            self.send_line(problem)
        elif problem is not None:
            self.show(pages.problem(problem["error"] or "", problem["link"], problem["label"]), status=402)
        elif not with_lines:
            self.redirect("/")

    # Responses

    def send_line(self, value: object) -> None:
        """Send one line of JSON at once."""
        self.wfile.write(json.dumps(value).encode() + b"\n")
        self.wfile.flush()

    def show(self, page: str, status: int = 200) -> None:
        """Send a page."""
        content = page.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def redirect(self, location: str, cookie: str | None = None) -> None:
        """Send the browser to another page."""
        self.send_response(303)
        self.send_header("Location", location)
        if cookie is not None:
            self.send_header("Set-Cookie", cookie)
        self.send_header("Content-Length", "0")
        self.end_headers()


def describe(error: PurserError) -> dict[str, str | None]:
    """Return what the user reads, and where a link leads that helps."""
    if error.action == "raise_cap":
        return {"error": "Your spend cap is too low for this.", "link": error.increase_url, "label": "Raise it"}
    if error.action == "ask_user":
        return {"error": "You have paused this.", "link": error.review_url, "label": "Review it"}
    if error.action == "connect_again":
        return {"error": "Your connection has ended.", "link": "/", "label": "Connect again"}
    if error.action in ("wait", "retry"):
        return {"error": "That did not work just now. Try again in a moment.", "link": None, "label": None}
    return {"error": f"That did not work: {error.message}", "link": None, "label": None}


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
    print(f"Open {ORIGIN}", flush=True)
    server.serve_forever()
