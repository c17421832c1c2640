"""Writes what a provider sends for an answer, as the provider notes (A, B, C) describe it.

An answer is a list of blocks:
    ("text", text, phase)        phase: None, or that of a message of OpenAI's
    ("refusal", text)
    ("reasoning", text, opaque)  readable text, which may be empty, and what goes back with the next request
    ("redacted", data)           Anthropic's
    ("call", id, name, arguments, signature)
"""

import json


def dump(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def pieces(text):
    """A text as it is streamed: in two pieces, the first of which is short."""
    return [p for p in (text[:3], text[3:]) if p]


USAGE = {"input": 40, "cached": 5, "cache_write": 0, "output": 77, "reasoning": 11}


def usage_of(over):
    return {**USAGE, **(over or {})}


# --- OpenAI: Chat Completions (A.3 to A.5)

CHAT_END = {"stop": "stop", "calls": "tool_calls", "cut": "length", "filter": "content_filter"}


def chat_usage(u):
    prompt = u["input"] + u["cached"] + u["cache_write"]
    return {
        "prompt_tokens": prompt,
        "completion_tokens": u["output"],
        "total_tokens": prompt + u["output"],
        "prompt_tokens_details": {"cached_tokens": u["cached"], "cache_write_tokens": u["cache_write"]},
        "completion_tokens_details": {"reasoning_tokens": u["reasoning"]},
    }


def chat_chunk(delta=None, finish=None, usage=None, **more):
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {"id": "chatcmpl-9", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": choices}
    return dump({**head, "usage": usage, **more})


def chat_stream(blocks, end, usage):
    out = [chat_chunk({"role": "assistant", "content": ""})]
    calls = 0
    for kind, *b in blocks:
        if kind == "text":
            out += [chat_chunk({"content": p}) for p in pieces(b[0])]
        elif kind == "refusal":
            out += [chat_chunk({"refusal": p}) for p in pieces(b[0])]
        elif kind == "reasoning":
            out += [chat_chunk({"reasoning_content": p}) for p in pieces(b[0])]
        elif kind == "call":
            f = {"name": b[1], "arguments": ""}
            out.append(chat_chunk({"tool_calls": [{"index": calls, "id": b[0], "type": "function", "function": f}]}))
            for p in pieces(b[2]):
                out.append(chat_chunk({"tool_calls": [{"index": calls, "function": {"arguments": p}}]}))
            calls += 1
    out.append(chat_chunk({}, CHAT_END[end]))
    if usage:
        out.append(chat_chunk(None, None, usage))
    return [f"data: {e}\n\n" for e in [*out, "[DONE]"]]


def chat_whole(blocks, end, usage):
    def join(kind):
        return "".join(b[0] for k, *b in blocks if k == kind)

    message = {"role": "assistant", "content": join("text") or None, "refusal": join("refusal") or None}
    if join("reasoning"):
        message["reasoning_content"] = join("reasoning")
    calls = [
        {"id": b[0], "type": "function", "function": {"name": b[1], "arguments": b[2]}}
        for k, *b in blocks
        if k == "call"
    ]
    if calls:
        message["tool_calls"] = calls
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": CHAT_END[end]}
    head = {"id": "chatcmpl-9", "object": "chat.completion", "created": 7, "model": "m", "choices": [choice]}
    return dump({**head, **({"usage": usage} if usage else {}), "service_tier": "default"})


# --- OpenAI: Responses (A.10)


def responses_usage(u):
    prompt = u["input"] + u["cached"] + u["cache_write"]
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": u["cached"], "cache_write_tokens": u["cache_write"]},
        "output_tokens": u["output"],
        "output_tokens_details": {"reasoning_tokens": u["reasoning"]},
        "total_tokens": prompt + u["output"],
    }


def responses_event(kind, **members):
    return f"event: {kind}\ndata: {dump({'type': kind, **members})}\n\n"


def responses_end(end, usage, output=()):
    status, kind, more = "completed", "response.completed", {}
    if end in ("cut", "filter"):
        status, kind = "incomplete", "response.incomplete"
        more = {"incomplete_details": {"reason": "max_output_tokens" if end == "cut" else "content_filter"}}
    r = {"id": "resp_1", "object": "response", "status": status, **more, "output": list(output), "usage": usage}
    return responses_event(kind, response=r)


def responses_stream(blocks, end, usage):
    begun = {"id": "resp_1", "object": "response", "status": "in_progress", "output": [], "usage": None}
    out = [responses_event("response.created", response=begun), responses_event("response.in_progress", response=begun)]
    done = []
    for i, (kind, *b) in enumerate(blocks):
        item, ref = f"item_{i}", {"item_id": f"item_{i}", "output_index": i}
        if kind in ("text", "refusal"):
            head = {"id": item, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
            if kind == "text" and b[1]:
                head["phase"] = b[1]
            part = {"type": "output_text", "annotations": [], "text": b[0]}
            name = "output_text"
            if kind == "refusal":
                part, name = {"type": "refusal", "refusal": b[0]}, "refusal"
            middle = [responses_event(f"response.{name}.delta", **ref, content_index=0, delta=p) for p in pieces(b[0])]
            last = {**head, "status": "completed", "content": [part]}
        elif kind == "reasoning":
            head = {"id": f"rs_{i}", "type": "reasoning", "summary": []}
            middle = []
            for n, text in enumerate(b[0].split("\n\n") if b[0] else []):
                at = {"item_id": f"rs_{i}", "output_index": i, "summary_index": n}
                part = {"type": "summary_text", "text": ""}
                middle.append(responses_event("response.reasoning_summary_part.added", **at, part=part))
                name = "response.reasoning_summary_text.delta"
                middle += [responses_event(name, **at, delta=p) for p in pieces(text)]
            summary = [{"type": "summary_text", "text": t} for t in b[0].split("\n\n")] if b[0] else []
            last = {**head, "summary": summary, "encrypted_content": b[1]}
        else:
            head = {"id": item, "type": "function_call", "status": "in_progress", "call_id": b[0], "name": b[1]}
            head["arguments"] = ""
            name = "response.function_call_arguments"
            middle = [responses_event(f"{name}.delta", **ref, delta=p) for p in pieces(b[2])]
            middle.append(responses_event(f"{name}.done", **ref, arguments=b[2]))
            last = {**head, "status": "completed", "arguments": b[2]}
        out.append(responses_event("response.output_item.added", output_index=i, item=head))
        out += middle
        out.append(responses_event("response.output_item.done", output_index=i, item=last))
        done.append(last)
    return [*out, responses_end(end, usage, done)]


# --- Anthropic: Messages (B.6, B.7, B.10)

ANTHROPIC_END = {"stop": "end_turn", "calls": "tool_use", "cut": "max_tokens", "filter": "refusal"}


def anthropic_usage(u):
    return {
        "input_tokens": u["input"],
        "cache_creation_input_tokens": u["cache_write"],
        "cache_read_input_tokens": u["cached"],
        "output_tokens": u["output"],
        "output_tokens_details": {"thinking_tokens": u["reasoning"]},
    }


def anthropic_event(kind, **members):
    return f"event: {kind}\ndata: {dump({'type': kind, **members})}\n\n"


def anthropic_start(usage):
    m = {"id": "msg_01", "type": "message", "role": "assistant", "model": "m", "content": []}
    m |= {"stop_reason": None, "stop_sequence": None}
    return anthropic_event("message_start", message={**m, **({"usage": {**usage, "output_tokens": 1}} if usage else {})})


def anthropic_block(i, start, deltas):
    out = [anthropic_event("content_block_start", index=i, content_block=start)]
    out += [anthropic_event("content_block_delta", index=i, delta=d) for d in deltas]
    return [*out, anthropic_event("content_block_stop", index=i)]


def anthropic_end(end, usage, sequence=None):
    reason = "stop_sequence" if sequence else ANTHROPIC_END.get(end, end)
    delta = {"stop_reason": reason, "stop_sequence": sequence}
    if reason == "refusal":
        delta["stop_details"] = {"type": "refusal", "category": "cyber", "explanation": "Not that."}
    more = {"usage": usage} if usage else {}
    return [anthropic_event("message_delta", delta=delta, **more), anthropic_event("message_stop")]


def anthropic_stream(blocks, end, usage, sequence=None):
    out = [anthropic_start(usage), anthropic_event("ping")]
    for i, (kind, *b) in enumerate(blocks):
        if kind == "text":
            start, deltas = {"type": "text", "text": ""}, [{"type": "text_delta", "text": p} for p in pieces(b[0])]
        elif kind == "reasoning":
            start = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": p} for p in pieces(b[0])]
            deltas.append({"type": "signature_delta", "signature": b[1]})
        elif kind == "redacted":
            start, deltas = {"type": "redacted_thinking", "data": b[0]}, []
        else:
            start = {"type": "tool_use", "id": b[0], "name": b[1], "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": p} for p in ["", *pieces(b[2])]]
        out += anthropic_block(i, start, deltas)
    return out + anthropic_end(end, usage, sequence)


# --- Google: generateContent (C.7, C.8)

GOOGLE_END = {"stop": "STOP", "calls": "STOP", "cut": "MAX_TOKENS", "filter": "SAFETY"}


def google_usage(u):
    prompt = u["input"] + u["cached"]
    return {
        "promptTokenCount": prompt,
        "cachedContentTokenCount": u["cached"],
        "candidatesTokenCount": u["output"] - u["reasoning"],
        "thoughtsTokenCount": u["reasoning"],
        "totalTokenCount": prompt + u["output"],
    }


def google_parts(blocks, split):
    out = []
    for kind, *b in blocks:
        if kind == "text":
            out += [{"text": p} for p in (pieces(b[0]) if split else [b[0]])]
        elif kind == "reasoning":
            out += [{"text": p, "thought": True} for p in (pieces(b[0]) if split else [b[0]]) if p]
        else:
            call = {"name": b[1], "args": json.loads(b[2] or "{}")}
            if b[0]:
                call["id"] = b[0]
            out.append({"functionCall": call, **({"thoughtSignature": b[3]} if b[3] else {})})
    return out


def google_chunk(parts, finish=None, usage=None, **more):
    c = {"content": {"parts": parts, "role": "model"}, "index": 0, **({"finishReason": finish} if finish else {})}
    r = {"candidates": [c], "modelVersion": "m", "responseId": "r1", **({"usageMetadata": usage} if usage else {})}
    return dump({**r, **more})


def google_stream(blocks, end, usage):
    out = [google_chunk([p]) for p in google_parts(blocks, True)]
    out.append(google_chunk([{"text": ""}], GOOGLE_END.get(end, end), usage))
    return [f"data: {e}\r\n\r\n" for e in out]


def google_whole(blocks, end, usage):
    return google_chunk(google_parts(blocks, False), GOOGLE_END.get(end, end), usage)
