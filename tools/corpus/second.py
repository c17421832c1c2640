"""What a provider gets of its own answer, which a client has sent back as it came (decisions 176 and 177)."""

import re

import pass_on
from requests import ask, result

MODEL_TURNS = {"chat": "messages", "responses": "input", "anthropic": "messages", "google": "contents"}


def name_for(name):
    """A name that no provider takes is made to fit."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)


def parsed(value):
    """Arguments that are an object are compared as one: clients of two APIs have nothing else."""
    if isinstance(value, list):
        return [parsed(v) for v in value]
    if not isinstance(value, dict):
        return value
    out = {k: parsed(v) for k, v in value.items()}
    if isinstance(out.get("arguments"), str):
        try:
            arguments = pass_on.views.numbered(out["arguments"])
        except ValueError:
            return out
        out["arguments"] = arguments if isinstance(arguments, dict) else out["arguments"]
    return out


def turns(answer, dialect, route, to):
    """The next request: the question, the answer, and the results of its calls, or another question."""
    blocks, results, ids = [], [], {}
    for n, b in enumerate(answer.blocks):
        rest = answer.blocks[n + 1:]
        if b["kind"] == "call":
            ids[b["id"]] = ids.get(b["id"], 0) + 1
            i = b["id"] if ids[b["id"]] == 1 or not b["id"] else f"{b['id']}_{ids[b['id']]}"
            arguments = b["arguments"]
            if route in ("messages", "contents"):  # they are an object there
                arguments = pass_on.dump_object(arguments)
            blocks.append(("call", i, name_for(b["name"]), arguments, b.get("signature") if to == dialect else None))
            results.append(result(i, name_for(b["name"]), "rain"))
        elif b["kind"] == "text" and b["text"]:
            more = {} if route == "messages" else {"phase": b.get("phase"), "signature": b.get("signature") if to == dialect else None}
            blocks.append(("text", b["text"], more))
        elif b["kind"] == "refusal":
            same = n > 0 and b.get("message") and b["message"] == answer.blocks[n - 1].get("message")
            joined = bool(blocks) and blocks[-1][0] == "text" and (same or route == "chat")
            if route in ("chat", "responses"):
                blocks.append(("refusal", b["text"], {"joined": joined}))
            elif joined and b.get("message") == "the one":
                blocks[-1] = ("text", blocks[-1][1] + b["text"], {})
            else:
                blocks.append(("text", b["text"], {}))
        elif b["kind"] in ("reasoning", "redacted"):
            if to != dialect or dialect in ("chat", "google") or dialect == "anthropic" and b["kind"] == "reasoning" and not b["signature"]:
                continue  # nothing to send back, or another provider's
            if route == "chat" and not any(r["kind"] == "call" for r in rest):
                continue  # Chat Completions has a place for it beside a call alone
            if not [r for r in rest if r["kind"] not in ("reasoning", "redacted")]:
                continue  # nothing follows, and no provider takes it as the end of a turn
            if b["kind"] == "redacted":
                blocks.append(("redacted", b["data"]))
            else:
                blocks.append(("reasoning", b["text"], b["opaque"] if dialect == "responses" else b["signature"]))
    if not blocks:
        return None
    return [ask("PLAY-0 What is it?"), ("assistant", blocks), *(results or [ask("And?")])]


def expect(answer, dialect, to, model):
    """What follows the first question at a model, by route; nothing where this program cannot know it."""
    if any(b["kind"] == "call" and (len(b["id"] or "") > 40 or len(b["name"]) > 64) for b in answer.blocks):
        return []  # there are hashes in it
    if to != dialect and any(b["kind"] == "call" and not b["id"] for b in answer.blocks):
        return []  # the id is Purser's
    encode = {"chat": pass_on.to_chat, "responses": pass_on.to_responses, "anthropic": pass_on.to_anthropic,
              "google": pass_on.to_google}[to]
    out = []
    for route in ("chat", "messages", "responses", "contents"):
        said = turns(answer, dialect, route, to)
        if said:
            body = pass_on.numbered(encode({"turns": said, "max_tokens": 400}, model, route))
            list_ = parsed(body[MODEL_TURNS[to]][1:])
            same = [o for o in out if o["list"] == list_]
            if not same:
                out.append({"at": [], "list": list_})
            (same or out[-1:])[0]["at"].append(f"{route} {model}")
    return out
