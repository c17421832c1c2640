"""Reads what a provider sends: the second reader, by the provider notes alone.

An answer becomes {"blocks", "end", "usage", "failed"}: end is a finish_reason of Chat Completions, usage the tokens by
class or None, failed what broke it off or None.
"""

import json


class Answer:
    def __init__(self):
        self.blocks, self.end, self.usage, self.failed, self.sequence = [], None, None, None, None

    def add(self, kind, text, new=False):
        """Appends to the last block if it is of the kind."""
        if new or not self.blocks or self.blocks[-1]["kind"] != kind:
            self.blocks.append({"kind": kind, "text": ""})
        self.blocks[-1]["text"] += text
        return self.blocks[-1]


def events(frames):
    """The data of each server-sent event."""
    for frame in "".join(frames).replace("\r\n", "\n").split("\n\n"):
        data = [line[5:].removeprefix(" ") for line in frame.split("\n") if line.startswith("data:")]
        if data:
            yield "\n".join(data)


def classes(prompt, cached, written, output, reasoning):
    """The tokens by class of a provider whose prompt includes what was cached."""
    return {"input": prompt - cached - written, "cached": cached, "cache_write": written, "output": output,
            "reasoning": reasoning}


def number(of, *path):
    for name in path:
        of = (of or {}).get(name)
    return of or 0


# --- A.3 to A.5


def chat_usage(u):
    if not u:
        return None
    details, out = u.get("prompt_tokens_details"), u.get("completion_tokens_details")
    return classes(number(u, "prompt_tokens"), number(details, "cached_tokens"), number(details, "cache_write_tokens"),
                   number(u, "completion_tokens"), number(out, "reasoning_tokens"))


def chat_message(a, m, calls):
    """A message or a delta."""
    if m.get("reasoning_content"):
        a.add("reasoning", m["reasoning_content"])
    if m.get("content"):
        a.add("text", m["content"])["message"] = "the one"
    if m.get("refusal"):
        a.add("refusal", m["refusal"])["message"] = "the one"
    for n, c in enumerate(m.get("tool_calls") or []):
        i = c.get("index", n)
        f = c.get("function") or {}
        if i not in calls:
            calls[i] = {"kind": "call", "id": c.get("id"), "name": f.get("name"), "arguments": ""}
            a.blocks.append(calls[i])
        calls[i]["arguments"] += f.get("arguments") or ""


def chat_finish(a, reason, calls):
    if reason:
        a.end = "tool_calls" if reason == "stop" and calls else reason


def read_chat(frames):
    a, calls = Answer(), {}
    for data in events(frames):
        if data == "[DONE]":
            break
        e = json.loads(data)
        if e.get("error"):
            a.failed = e["error"]
            break
        a.usage = chat_usage(e.get("usage")) or a.usage
        for c in e.get("choices") or []:
            chat_message(a, c.get("delta") or {}, calls)
            chat_finish(a, c.get("finish_reason"), calls)
    return a


def read_chat_body(body):
    a, calls, r = Answer(), {}, json.loads(body)
    choice = r["choices"][0]
    chat_message(a, choice["message"], calls)
    chat_finish(a, choice["finish_reason"], calls)
    a.usage = chat_usage(r.get("usage"))
    return a


# --- A.10


def responses_usage(u):
    if not u:
        return None
    details, out = u.get("input_tokens_details"), u.get("output_tokens_details")
    return classes(number(u, "input_tokens"), number(details, "cached_tokens"), number(details, "cache_write_tokens"),
                   number(u, "output_tokens"), number(out, "reasoning_tokens"))


def read_responses(frames):
    a, items = Answer(), {}
    for data in events(frames):
        e = json.loads(data)
        kind = e.get("type")
        if kind == "response.output_item.added":
            item = e["item"]
            if item["type"] == "message":
                items[item["id"]] = {"phase": item.get("phase"), "parts": []}
            elif item["type"] == "function_call":
                b = {"kind": "call", "id": item["call_id"], "name": item["name"], "arguments": ""}
                b["whole"] = item.get("arguments") or ""
                items[item["id"]] = b
                a.blocks.append(b)
            elif item["type"] == "reasoning":
                b = {"kind": "reasoning", "text": "", "opaque": None, "parts": 0}
                items[item["id"]] = b
                a.blocks.append(b)
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            m = items[e["item_id"]]
            name = "text" if kind == "response.output_text.delta" else "refusal"
            if not m["parts"] or m["parts"][-1]["kind"] != name:
                m["parts"].append({"kind": name, "text": "", "phase": m["phase"], "message": e["item_id"]})
                a.blocks.append(m["parts"][-1])
            m["parts"][-1]["text"] += e["delta"]
        elif kind == "response.reasoning_summary_text.delta":
            b = items[e["item_id"]]
            if e["summary_index"] >= b["parts"] > 0:
                b["text"] += "\n\n"
            b["parts"] = e["summary_index"] + 1
            b["text"] += e["delta"]
        elif kind == "response.function_call_arguments.delta":
            items[e["item_id"]]["arguments"] += e["delta"]
        elif kind == "response.output_item.done":
            item = e["item"]
            if item["type"] == "reasoning":
                items[item["id"]]["opaque"] = item
            elif item["type"] == "function_call":
                items[item["id"]]["arguments"] = items[item["id"]]["arguments"] or item.get("arguments") or "{}"
        elif kind in ("response.completed", "response.incomplete"):
            r = e["response"]
            a.usage = responses_usage(r.get("usage"))
            reason = number(r, "incomplete_details", "reason") if kind == "response.incomplete" else None
            a.end = {"max_output_tokens": "length", "content_filter": "content_filter"}.get(reason) or "stop"
            if a.end == "stop" and any(b["kind"] == "call" for b in a.blocks):
                a.end = "tool_calls"
        elif kind in ("error", "response.failed"):
            a.failed = e.get("error") or number(e, "response", "error") or e
            break
    return a


# --- B.6, B.7, B.10


def read_anthropic(frames):
    a, u, blocks = Answer(), None, {}
    for data in events(frames):
        e = json.loads(data)
        kind = e.get("type")
        if kind == "message_start":
            u = {k: v for k, v in (e["message"].get("usage") or {}).items() if not k.startswith("output_tokens")}
        elif kind == "content_block_start":
            c = e["content_block"]
            if c["type"] == "text":
                b = {"kind": "text", "text": c.get("text") or ""}
            elif c["type"] == "thinking":
                b = {"kind": "reasoning", "text": c.get("thinking") or "", "signature": c.get("signature") or ""}
            elif c["type"] == "redacted_thinking":
                b = {"kind": "redacted", "data": c["data"]}
            elif c["type"] == "tool_use":
                b = {"kind": "call", "id": c["id"], "name": c["name"], "arguments": "", "whole": c.get("input")}
            else:
                continue
            blocks[e["index"]] = b
            a.blocks.append(b)
        elif kind == "content_block_delta" and e["index"] in blocks:
            d, b = e["delta"], blocks[e["index"]]
            if d["type"] == "text_delta":
                b["text"] += d["text"]
            elif d["type"] == "thinking_delta":
                b["text"] += d["thinking"]
            elif d["type"] == "signature_delta":
                b["signature"] += d["signature"]
            elif d["type"] == "input_json_delta":
                b["arguments"] += d["partial_json"]
        elif kind == "content_block_stop" and e["index"] in blocks:
            b = blocks[e["index"]]
            if b["kind"] == "call" and not b["arguments"]:
                b["arguments"] = json.dumps(b["whole"] or {}, ensure_ascii=False, separators=(",", ":"))
        elif kind == "message_delta":
            if e.get("usage"):
                u = {**(u or {}), **{k: v for k, v in e["usage"].items() if v is not None}}
            d = e["delta"]
            if d.get("stop_reason") == "pause_turn":
                a.failed = d
                break
            if d.get("stop_reason"):
                called = any(b["kind"] == "call" for b in a.blocks)
                a.end = {
                    "end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls", "max_tokens": "length",
                    "model_context_window_exceeded": "length", "refusal": "content_filter",
                }.get(d["stop_reason"], "tool_calls" if called else "stop")
                a.sequence = d.get("stop_sequence")
                if d["stop_reason"] == "refusal" and number(d, "stop_details", "explanation"):
                    a.add("refusal", d["stop_details"]["explanation"], new=True)
        elif kind == "error":
            a.failed = e["error"]
            break
    if u:
        a.usage = {
            "input": number(u, "input_tokens"), "cached": number(u, "cache_read_input_tokens"),
            "cache_write": number(u, "cache_creation_input_tokens"), "output": number(u, "output_tokens"),
            "reasoning": number(u, "output_tokens_details", "thinking_tokens"),
        }
    return a


# --- C.7, C.8


def google_response(a, r, u):
    """One response of a stream, or the whole."""
    for name, n in (r.get("usageMetadata") or {}).items():
        if n:
            u[name] = n
    if r.get("error"):
        a.failed = r["error"]
        return
    for c in r.get("candidates") or []:
        for p in (c.get("content") or {}).get("parts") or []:
            if "functionCall" in p:
                f = p["functionCall"]
                args = json.dumps(f.get("args") or {}, ensure_ascii=False, separators=(",", ":"))
                a.blocks.append({"kind": "call", "id": f.get("id") or "", "name": f["name"], "arguments": args,
                                 "signature": p.get("thoughtSignature")})
            elif p.get("thought"):
                if p.get("text"):
                    a.add("reasoning", p["text"])
            elif p.get("text"):
                a.add("text", p["text"])
            if p.get("thoughtSignature") and "functionCall" not in p and a.blocks and a.blocks[-1]["kind"] == "text":
                a.blocks[-1]["signature"] = p["thoughtSignature"]
        if f := c.get("finishReason"):
            called = any(b["kind"] == "call" for b in a.blocks)
            if f == "STOP":
                a.end = "tool_calls" if called else "stop"
            elif f in ("MAX_TOKENS", "CONTINUATION"):
                a.end = "length"
            elif f in ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE") or f.startswith("IMAGE_"):
                a.end = "content_filter"
            elif f in ("MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"):
                a.failed = {"message": f}
            elif a.blocks:
                a.end = "tool_calls" if called else "stop"
            else:
                a.failed = {"message": f}
    if number(r, "promptFeedback", "blockReason") and not r.get("candidates"):
        a.end = "content_filter"


def google_usage(u):
    if not u:
        return None
    thoughts = number(u, "thoughtsTokenCount")
    return classes(number(u, "promptTokenCount") + number(u, "toolUsePromptTokenCount"),
                   number(u, "cachedContentTokenCount"), 0, number(u, "candidatesTokenCount") + thoughts, thoughts)


def read_google(frames):
    a, u = Answer(), {}
    for data in events(frames):
        google_response(a, json.loads(data), u)
        if a.failed:
            break
    a.usage = google_usage(u)
    return a


def read_google_body(body):
    a, u = Answer(), {}
    google_response(a, json.loads(body), u)
    a.usage = google_usage(u)
    return a


READERS = {
    "chat": (read_chat, read_chat_body),
    "responses": (read_responses, None),
    "anthropic": (read_anthropic, None),
    "google": (read_google, read_google_body),
}


def read(dialect, frames, body):
    """The answer as it is streamed, and as it is sent whole."""
    stream, whole = READERS[dialect]
    streamed = stream(frames)
    return streamed, whole(body) if body is not None else streamed
