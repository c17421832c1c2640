"""The answers of the corpus: what models say, in each dialect that can say it, and what providers do besides.

Each function yields (name, dialect, events, body); body is what is sent if the provider is asked for a whole body, and
None where it is always asked for events.
"""

import send
from send import dump, usage_of

CHAT, RESPONSES, ANTHROPIC, GOOGLE = "chat", "responses", "anthropic", "google"
ALL = (CHAT, RESPONSES, ANTHROPIC, GOOGLE)
THINKING = (RESPONSES, ANTHROPIC, GOOGLE)


def text(s, phase=None):
    return ("text", s, phase)


def refusal(s):
    return ("refusal", s)


def thought(s, opaque="c2lnbmVk"):
    return ("reasoning", s, opaque)


def call(i, name, arguments, signature=None):
    return ("call", i, name, arguments, signature)


def write(dialect, blocks, end="stop", usage=None, reports=True):
    """The events and the body of an answer."""
    u = usage_of(usage)
    streams = {CHAT: send.chat_stream, RESPONSES: send.responses_stream, ANTHROPIC: send.anthropic_stream}
    usages = {CHAT: send.chat_usage, RESPONSES: send.responses_usage, ANTHROPIC: send.anthropic_usage}
    wholes = {CHAT: send.chat_whole, GOOGLE: send.google_whole}
    u = usages.get(dialect, send.google_usage)(u) if reports else None
    events = streams.get(dialect, send.google_stream)(blocks, end, u)
    return events, wholes[dialect](blocks, end, u) if dialect in wholes else None


LONG = "Ж" * 40 + "𝄞" * 20 + "漢字かな" * 10
ODD = 'quotes " back \\ slash / <b>&amp; tab\t line\r\n sep\u2028\u2029 del\x7f bell\x07 𝄞 é é'
WEATHER = '{"city":"Oslo"}'

# name: blocks, end, dialects
SAID = {
    "one text": ([text("Hello, world.")], "stop", ALL),
    "one letter": ([text("x")], "stop", ALL),
    "long text": ([text(LONG)], "stop", ALL),
    "odd characters": ([text(ODD)], "stop", ALL),
    "NUL in text": ([text("a\0b")], "stop", ALL),
    "only white space": ([text(" \n\t ")], "stop", ALL),
    "text like our frames": ([text('data: [DONE]\n\ndata: {"svc_final":{}}\n\nevent: error')], "stop", ALL),
    "json text": ([text('{"a":[1,2,{"b":null}]}')], "stop", ALL),
    "text, cut": ([text("Hello, wor")], "cut", ALL),
    "text, filtered": ([text("How to")], "filter", (CHAT, RESPONSES, GOOGLE)),
    "one call": ([call("call_1", "weather", WEATHER)], "calls", ALL),
    "call without arguments": ([call("call_1", "weather", "{}")], "calls", ALL),
    "call with empty arguments": ([call("call_1", "weather", "")], "calls", ALL),
    "nested arguments": ([call("call_1", "weather", '{"a":{"b":[1,2.50,{"c":"é𝄞\\"\\\\"}],"d":null},"e":true}')], "calls", ALL),
    "large numbers": ([call("call_1", "weather", '{"n":12345678901234567890,"f":1e400}')], "calls", (CHAT, RESPONSES, ANTHROPIC)),
    "spaces in arguments": ([call("call_1", "weather", '{ "city" : "Oslo" }')], "calls", (CHAT, RESPONSES, ANTHROPIC)),
    "NUL in arguments": ([call("call_1", "weather", '{"city":"a\\u0000b"}')], "calls", ALL),
    "escapes in arguments": ([call("call_1", "weather", '{"city":"\\ud834\\udd1e \\u00e9 \\/"}')], "calls", ALL),
    "two calls": ([call("call_1", "weather", WEATHER), call("call_2", "clock", '{"zone":"CET"}')], "calls", ALL),
    "five calls": ([call(f"call_{i}", "weather", f'{{"n":{i}}}') for i in range(5)], "calls", ALL),
    "text and call": ([text("Let me see."), call("call_1", "weather", WEATHER)], "calls", ALL),
    "text and calls": ([text("I look."), call("call_1", "weather", WEATHER), call("call_2", "clock", "{}")], "calls", ALL),
    "shared ids": ([call("call_1", "weather", '{"n":1}'), call("call_1", "weather", '{"n":2}')], "calls", ALL),
    "invented name": ([call("call_1", "multi_tool_use.parallel", WEATHER)], "calls", ALL),
    "name of 80 letters": ([call("call_1", "n" * 80, WEATHER)], "calls", ALL),
    "long id": ([call("call_" + "7" * 60, "weather", WEATHER)], "calls", (CHAT, RESPONSES, ANTHROPIC)),
    "arguments, cut": ([call("call_1", "weather", '{"city": "Osl')], "cut", (CHAT, RESPONSES, ANTHROPIC)),
    "text and arguments, cut": ([text("So:"), call("call_1", "weather", '{"city"')], "cut", (CHAT, RESPONSES, ANTHROPIC)),
    "malformed arguments": ([call("call_1", "weather", '{city: Oslo}')], "calls", (CHAT, RESPONSES, ANTHROPIC)),
    "arguments are a list": ([call("call_1", "weather", "[1]")], "calls", (CHAT, RESPONSES, ANTHROPIC)),
    "arguments are a text": ([call("call_1", "weather", '"Oslo"')], "calls", (CHAT, RESPONSES, ANTHROPIC)),
    "calls, the second cut": (
        [call("call_1", "weather", WEATHER), call("call_2", "weather", '{"ci')], "cut", (CHAT, RESPONSES, ANTHROPIC)),
    "text behind a call": ([call("call_1", "weather", WEATHER), text("Wait.")], "calls", (RESPONSES, ANTHROPIC, GOOGLE)),
    "text, call, text, call": (
        [text("One."), call("call_1", "weather", WEATHER), text("Two."), call("call_2", "clock", "{}")], "calls",
        (RESPONSES, ANTHROPIC, GOOGLE)),
    "thought and text": ([thought("I think.\n\nSo."), text("Yes.")], "stop", ALL),
    "thought and call": ([thought("Hm."), call("call_1", "weather", WEATHER, "c2ln")], "calls", THINKING),
    "silent thought": ([thought(""), text("Yes.")], "stop", (RESPONSES, ANTHROPIC)),
    "silent thought and call": ([thought(""), call("call_1", "weather", WEATHER)], "calls", (RESPONSES, ANTHROPIC)),
    "odd thought": ([thought(ODD.strip()), text("Yes.")], "stop", ALL),
    "thought, text, call": ([thought("Hm."), text("See:"), call("call_1", "weather", WEATHER, "c2ln")], "calls", THINKING),
    "interleaved": (
        [thought("One.", "czE="), call("call_1", "weather", WEATHER), thought("Two.", "czI="), call("call_2", "clock", "{}")],
        "calls", (RESPONSES, ANTHROPIC)),
    "interleaved with texts": (
        [thought("One.", "czE="), text("First."), call("call_1", "weather", WEATHER), thought("Two.", "czI="),
         text("Then."), call("call_2", "clock", "{}")], "calls", (RESPONSES, ANTHROPIC)),
    "two thoughts": ([thought("One.", "czE="), thought("Two.", "czI="), text("Yes.")], "stop", (RESPONSES, ANTHROPIC)),
    "thought, cut": ([thought("I think and", "c2ln")], "cut", THINKING),
    "thought behind text": ([text("Yes."), thought("Or no?", "c2ln"), text("No.")], "stop", (RESPONSES, ANTHROPIC)),
    "two texts": ([text("One."), text("Two.")], "stop", (RESPONSES, ANTHROPIC)),
    "empty": ([], "stop", ALL),
    "empty, cut": ([], "cut", ALL),
    "refusal": ([refusal("I can't help with that.")], "stop", (CHAT, RESPONSES)),
    "text and refusal": ([text("Well, "), refusal("no.")], "stop", (CHAT, RESPONSES)),
    "phases": ([text("I look it up.", "commentary"), text("Done.", "final_answer")], "stop", (RESPONSES,)),
    "phase and call": ([text("I look.", "commentary"), call("call_1", "weather", WEATHER)], "calls", (RESPONSES,)),
    "thought, phase, thought, phase": (
        [thought("Hm.", "czE="), text("I look.", "commentary"), thought("Ah.", "czI="), text("Done.", "final_answer")],
        "stop", (RESPONSES,)),
    "redacted thought": ([("redacted", "b3BhcXVl"), text("Yes.")], "stop", (ANTHROPIC,)),
    "redacted thought and call": ([("redacted", "b3BhcXVl"), call("toolu_1", "weather", WEATHER)], "calls", (ANTHROPIC,)),
    "thought and redacted thought": (
        [thought("Hm.", "czE="), ("redacted", "b3BhcXVl"), call("toolu_1", "weather", WEATHER)], "calls", (ANTHROPIC,)),
    "calls signed on the first": (
        [call("", "weather", WEATHER, "c2ln"), call("", "clock", '{"zone":"CET"}')], "calls", (GOOGLE,)),
    "calls signed each": ([call("a", "weather", WEATHER, "czE="), call("b", "clock", "{}", "czI=")], "calls", (GOOGLE,)),
    "call without an id": ([call("", "weather", WEATHER)], "calls", (GOOGLE,)),
}

# What is reported besides the usual, for a short text: name: usage, dialects
USED = {
    "nothing cached": ({"cached": 0, "reasoning": 0}, ALL),
    "all cached": ({"input": 0, "cached": 45}, ALL),
    "written to the cache": ({"cache_write": 30}, (CHAT, RESPONSES, ANTHROPIC)),
    "read and written": ({"input": 1, "cached": 20, "cache_write": 24}, (CHAT, RESPONSES, ANTHROPIC)),
    "all written": ({"input": 0, "cached": 0, "cache_write": 45}, (CHAT, RESPONSES, ANTHROPIC)),
    "all output is reasoning": ({"output": 64, "reasoning": 64}, ALL),
    "one token each": ({"input": 1, "cached": 0, "output": 1, "reasoning": 0}, ALL),
    "no output": ({"output": 0, "reasoning": 0}, ALL),
    "below the step": ({"input": 899, "cached": 100}, ALL),
    "at the step": ({"input": 900, "cached": 100}, ALL),
    "above the step": ({"input": 901, "cached": 100}, ALL),
    "above the step by what is cached": ({"input": 1, "cached": 1000}, ALL),
    "above the step by what is written": ({"input": 1, "cached": 0, "cache_write": 1000}, (CHAT, RESPONSES, ANTHROPIC)),
    "odd amounts": ({"input": 333, "cached": 77, "output": 201, "reasoning": 13}, ALL),
}
# These are not believed: the call is estimated.
ABSURD = {
    "far too much input": ({"input": 900_000}, ALL),
    "far too much cached": ({"cached": 800_000}, ALL),
    "far too much output": ({"output": 900_000}, ALL),
    "nothing at all": ({"input": 0, "cached": 0, "output": 0, "reasoning": 0}, ALL),
    "negative output": ({"output": -5, "reasoning": 0}, ALL),
    "negative input": ({"input": -5}, ALL),
    "more reasoning than output": ({"output": 5, "reasoning": 9}, (CHAT, RESPONSES, ANTHROPIC)),
}


def said():
    for name, (blocks, end, dialects) in SAID.items():
        for d in dialects:
            yield name, d, *write(d, blocks, end)


def used():
    short = [text("Hello, world.")]
    for kind, table in (("usage", USED), ("absurd usage", ABSURD)):
        for name, (usage, dialects) in table.items():
            for d in dialects:
                yield f"{kind}: {name}", d, *write(d, short, usage=usage)
    for output in (0, 1, 16, 17, 27, 28):
        for d in ALL:
            for end in ("stop", "cut"):
                usage = {"output": output, "reasoning": 11 if output > 17 else 0}
                yield f"empty with {output} tokens, {end}", d, *write(d, [], end, usage)
    for d in ALL:
        yield "empty but for a thought", d, *write(d, [thought("Hm.")], "stop", {"output": 20})
        yield "empty with one letter", d, *write(d, [text("x")], "stop", {"output": 1, "reasoning": 0})
        yield "usage: none", d, *write(d, short, reports=False)


HI = [text("Hello, world.")]


def with_usage(d, usage):
    """A short answer with the JSON of a usage as it is."""
    stream = {CHAT: send.chat_stream, RESPONSES: send.responses_stream, ANTHROPIC: send.anthropic_stream,
              GOOGLE: send.google_stream}[d]
    whole = {CHAT: send.chat_whole, GOOGLE: send.google_whole}.get(d)
    return stream(HI, "stop", usage), whole and whole(HI, "stop", usage)


def put(events, at, *more):
    """The events with more of them before the one at an index."""
    return [*events[:at], *more, *events[at:]]


def odd_chat():
    """OpenAI's Chat Completions: A.3 to A.6."""
    good = send.chat_usage(usage_of(None))
    for name, over in {
        "sum that is 10 more": {"total_tokens": 132},
        "no total": {"total_tokens": None},
        "details are null": {"prompt_tokens_details": None, "completion_tokens_details": None},
        "no details": {"prompt_tokens_details": {}, "completion_tokens_details": {}},
        "audio and predictions": {"completion_tokens_details": {
            "reasoning_tokens": 1, "audio_tokens": 0, "accepted_prediction_tokens": 3, "rejected_prediction_tokens": 9}},
        "unknown members": {"cost": 0.5, "prompt_cache_hit": {"a": [1]}},
        "more cached than prompt": {"prompt_tokens_details": {"cached_tokens": 46}},
        "a text for a number": {"completion_tokens": "77"},
        "a fraction": {"completion_tokens": 77.5},
    }.items():
        yield f"usage: {name}", CHAT, *with_usage(CHAT, {**good, **over})
    events, body = write(CHAT, HI)
    each = [e.replace('"usage":null', '"usage":' + dump({**good, "completion_tokens": n}), 1) if n < 4 else e
            for n, e in enumerate(events)]
    yield "usage: with each chunk", CHAT, each, body
    yield "usage: twice", CHAT, put(events, len(events) - 1, events[-2]), body
    last = events[-3].replace('"usage":null', '"usage":' + dump(good))
    yield "usage: with the finish reason", CHAT, [*events[:-3], last, events[-1]], body
    yield "usage: with the finish reason, and behind it", CHAT, [*events[:-3], last, *events[-2:]], body
    noise = [e[:-3] + ',"obfuscation":"a8Xk","x":{"y":[null]}}\n\n' if e.endswith("}\n\n") else e for e in events]
    yield "unknown members", CHAT, noise, body[:-1] + ',"x":{"y":[null]}}'
    yield "comments and a name", CHAT, put(events, 2, ": waiting\n\n", "event: x\nid: 7\nretry: 9\n: x\n" + events[2]), body
    yield "no space behind the colon", CHAT, [e.replace("data: ", "data:") for e in events], body
    yield "CRLF", CHAT, [e.replace("\n", "\r\n") for e in events], body
    yield "no role chunk", CHAT, events[1:], body
    yield "several choices", CHAT, [e.replace('"choices":[{', '"choices":[{').replace(
        '"finish_reason":null}]', '"finish_reason":null,"logprobs":null}]') for e in events], body
    called, whole = write(CHAT, [call("call_1", "weather", WEATHER)], "calls")
    yield "stop with calls", CHAT, [e.replace('"finish_reason":"tool_calls"', '"finish_reason":"stop"') for e in called], (
        whole.replace('"finish_reason":"tool_calls"', '"finish_reason":"stop"'))
    yield "no DONE", CHAT, events[:-1], body
    for code in ("server_error", "rate_limit_exceeded", "insufficient_quota"):
        e = "data: " + dump({"error": {"message": "No.", "type": code, "param": None, "code": code}}) + "\n\n"
        yield f"error {code} at first", CHAT, [e], None
        yield f"error {code} after some text", CHAT, [*events[:3], e], None
    yield "breaks off within", CHAT, events[:3], None
    yield "breaks off before the finish reason", CHAT, events[:-3], None


def odd_responses():
    """OpenAI's Responses: A.10."""
    good = send.responses_usage(usage_of(None))
    for name, over in {
        "sum that is 10 more": {"total_tokens": 132},
        "no total": {"total_tokens": None},
        "no details": {"input_tokens_details": None, "output_tokens_details": None},
        "unknown members": {"context_details": [{"x": 1}]},
        "more cached than input": {"input_tokens_details": {"cached_tokens": 46}},
    }.items():
        yield f"usage: {name}", RESPONSES, *with_usage(RESPONSES, {**good, **over})
    events, _ = write(RESPONSES, HI)
    e = send.responses_event
    yield "unknown event whose delta is an object", RESPONSES, put(events, 4, e(
        "response.hologram.delta", delta={"x": 1}, code={"y": 2}, item={"type": 7}, response=[1])), None
    yield "unknown item", RESPONSES, put(events, 2, e(
        "response.output_item.added", output_index=9, item={"id": "x", "type": "hologram", "content": 7}), e(
        "response.output_item.done", output_index=9, item={"id": "x", "type": "hologram", "content": 7})), None
    yield "queued at first", RESPONSES, put(events, 1, e("response.queued", response={"id": "resp_1"})), None
    yield "keepalive", RESPONSES, put(events, 3, e("keepalive", sequence_number=3)), None
    yield "sequence numbers and obfuscation", RESPONSES, [
        x.replace('{"type"', f'{{"sequence_number":{n},"obfuscation":"x","type"', 1) for n, x in enumerate(events)], None
    yield "no event names", RESPONSES, [x[x.index("data:"):] for x in events], None
    called, _ = write(RESPONSES, [call("call_1", "weather", WEATHER)], "calls")
    yield "arguments only when they are done", RESPONSES, [x for x in called if "arguments.delta" not in x], None
    yield "arguments only in the item", RESPONSES, [x for x in called if "function_call_arguments" not in x], None
    yield "incomplete for an unknown reason", RESPONSES, [x.replace(
        "response.completed", "response.incomplete").replace('"status":"completed","output"',
        '"status":"incomplete","incomplete_details":{"reason":"boredom"},"output"') for x in events], None
    for code in ("insufficient_quota", "rate_limit_exceeded", "server_error"):
        error = {"type": "server_error", "code": code, "message": "No.", "param": None}
        for form, bad in {
            "nested": e("error", error=error), "flat": e("error", **{"code": code, "message": "No.", "param": None}),
            "failed": e("response.failed", response={"id": "resp_1", "status": "failed", "error": error, "usage": None}),
        }.items():
            yield f"error {code}, {form}, at first", RESPONSES, [*events[:2], bad], None
            yield f"error {code}, {form}, after some text", RESPONSES, [*events[:4], bad], None
    yield "breaks off within", RESPONSES, events[:4], None
    yield "breaks off before the end", RESPONSES, events[:-1], None


def odd_anthropic():
    """Anthropic's Messages: B.6 to B.11."""
    good = send.anthropic_usage(usage_of(None))
    for name, over in {
        "no thinking tokens": {"output_tokens_details": None},
        "writes by their time": {"cache_creation_input_tokens": 30, "cache_creation": {
            "ephemeral_5m_input_tokens": 30, "ephemeral_1h_input_tokens": 0}},
        "null caches": {"cache_creation_input_tokens": None, "cache_read_input_tokens": None},
        "unknown members": {"service_tier": "standard", "speed": "x", "iterations": [1]},
    }.items():
        yield f"usage: {name}", ANTHROPIC, *with_usage(ANTHROPIC, {**good, **over})
    events, _ = write(ANTHROPIC, HI)
    e = send.anthropic_event

    def end(usage, reason="end_turn", **more):
        return e("message_delta", delta={"stop_reason": reason, "stop_sequence": None, **more}, usage=usage)

    yield "usage: only output at the end", ANTHROPIC, [*events[:-2], end({"output_tokens": 77}), events[-1]], None
    yield "usage: corrected at the end", ANTHROPIC, [*events[:-2], end({**good, "input_tokens": 50}), events[-1]], None
    yield "usage: nulls at the end", ANTHROPIC, [*events[:-2], end(
        {**{k: None for k in good}, "output_tokens": 77}), events[-1]], None
    yield "usage: cumulative", ANTHROPIC, put(events, len(events) - 2, e(
        "message_delta", delta={}, usage={"output_tokens": 9}), e("message_delta", delta={}, usage={"output_tokens": 20})), None
    yield "message_start twice", ANTHROPIC, put(events, 1, events[0]), None
    yield "message_start again behind a block", ANTHROPIC, put(events, 3, events[0]), None
    yield "unknown event", ANTHROPIC, put(events, 3, e("hologram", delta=7, index="x", message=[], usage=3)), None
    yield "pings", ANTHROPIC, put(put(events, 4, e("ping")), 2, e("ping")), None
    yield "unknown block", ANTHROPIC, put(events, 2, *send.anthropic_block(
        7, {"type": "hologram", "x": {}}, [{"type": "hologram_delta", "x": 1}])), None
    yield "unknown delta", ANTHROPIC, put(events, 4, e("content_block_delta", index=0, delta={"type": "x_delta", "text": 7})), None
    yield "citations", ANTHROPIC, put(events, 4, e(
        "content_block_delta", index=0, delta={"type": "citations_delta", "citation": {"x": 1}})), None
    yield "no event names", ANTHROPIC, [x[x.index("data:"):] for x in events], None
    rest = [e("content_block_stop", index=0)]
    for name, start in {
        "a call": {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}},
        "a text": {"type": "text", "text": "Hello, world."},
        "a thought": {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
    }.items():
        reason = send.anthropic_end("calls" if name == "a call" else "stop", good)
        yield f"{name} whole in its start", ANTHROPIC, [events[0], e(
            "content_block_start", index=0, content_block=start), *rest, *reason], None
    for reason in ("stop_sequence", "pause_turn", "refusal", "model_context_window_exceeded", "boredom"):
        yield f"ends by {reason}", ANTHROPIC, [*events[:-2], end(good, reason), events[-1]], None
    yield "stop sequence", ANTHROPIC, send.anthropic_stream(HI, "stop", good, "END"), None
    explained = {"type": "refusal", "category": "bio", "explanation": "No \u00e9."}
    yield "refusal that is explained", ANTHROPIC, [*events[:-2], end(good, "refusal", stop_details=explained), events[-1]], None
    yield "refusal without a word", ANTHROPIC, [events[0], end(good, "refusal", stop_details={
        "type": "refusal", "category": None, "explanation": None}), events[-1]], None
    for kind in ("overloaded_error", "api_error", "rate_limit_error"):
        bad = e("error", error={"type": kind, "message": "No."})
        yield f"error {kind} at first", ANTHROPIC, [bad], None
        yield f"error {kind} after an empty block", ANTHROPIC, [*events[:3], bad], None
        yield f"error {kind} after some text", ANTHROPIC, [*events[:4], bad], None
    yield "breaks off within", ANTHROPIC, events[:4], None
    yield "breaks off before the end", ANTHROPIC, events[:-2], None
    yield "no message_stop", ANTHROPIC, events[:-1], None


def odd_google():
    """Google's generateContent: C.7 to C.9."""
    good = send.google_usage(usage_of(None))
    for name, over in {
        "sum that is 10 more": {"totalTokenCount": 132},
        "no total": {"totalTokenCount": None},
        "no thoughts": {"thoughtsTokenCount": None},
        "nothing cached": {"cachedContentTokenCount": None},
        "tools of the provider": {"toolUsePromptTokenCount": 9},
        "details": {"promptTokensDetails": [{"modality": "TEXT", "tokenCount": 45}], "serviceTier": "x"},
        "only thoughts": {"candidatesTokenCount": None, "thoughtsTokenCount": 77},
        "more cached than prompt": {"cachedContentTokenCount": 46},
    }.items():
        usage = {k: v for k, v in {**good, **over}.items() if v is not None}
        yield f"usage: {name}", GOOGLE, *with_usage(GOOGLE, usage)
    events, body = write(GOOGLE, HI)

    def chunk(parts, finish=None, usage=None, **more):
        return f"data: {send.google_chunk(parts, finish, usage, **more)}\r\n\r\n"

    early = {"promptTokenCount": 45, "totalTokenCount": 45}
    growing = [chunk([{"text": "Hel"}], None, early), chunk([{"text": "lo"}], None, {**good, "candidatesTokenCount": 3})]
    yield "usage: grows", GOOGLE, [*growing, chunk([{"text": "."}], "STOP", good)], None
    yield "usage: the last lacks candidates", GOOGLE, [*growing, chunk([{"text": "."}], "STOP", {
        k: v for k, v in good.items() if k != "candidatesTokenCount"})], None
    yield "usage: behind the finish reason", GOOGLE, [*growing[:1], chunk([{"text": "."}], "STOP"), chunk([], None, good)], None
    yield "usage: alone", GOOGLE, [*growing[:1], chunk([{"text": "."}], "STOP"), "data: " + dump(
        {"usageMetadata": good, "modelVersion": "m", "responseId": "r1"}) + "\r\n\r\n"], None
    for reason in ("CONTINUATION", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "LANGUAGE", "IMAGE_SAFETY", "OTHER",
                   "FINISH_REASON_UNSPECIFIED", "HOLOGRAM", "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL",
                   "TOO_MANY_TOOL_CALLS"):
        yield f"ends by {reason}", GOOGLE, [*events[:-1], chunk([{"text": ""}], reason, good)], body.replace("STOP", reason)
        bare = {"candidates": [{"finishReason": reason, "index": 0}], "usageMetadata": {**good, "candidatesTokenCount": 0}}
        yield f"only {reason}", GOOGLE, [f"data: {dump(bare)}\r\n\r\n"], dump(bare)
    for reason in ("SAFETY", "OTHER", "BLOCKLIST", "PROHIBITED_CONTENT", "IMAGE_SAFETY"):
        blocked = {"promptFeedback": {"blockReason": reason, "safetyRatings": []}, "usageMetadata": {
            "promptTokenCount": 45, "totalTokenCount": 45}, "modelVersion": "m"}
        yield f"blocked prompt by {reason}", GOOGLE, [f"data: {dump(blocked)}\r\n\r\n"], dump(blocked)
    called = {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}}
    bare = {"functionCall": {"name": "weather"}}
    yield "call, and STOP in another chunk", GOOGLE, [chunk([called]), chunk([{"text": ""}], "STOP", good)], None
    yield "call without args", GOOGLE, [chunk([bare], "STOP", good)], send.google_chunk([bare], "STOP", good)
    yield "call with STOP at once", GOOGLE, [chunk([called], "STOP", good)], send.google_chunk([called], "STOP", good)
    signed = {"text": "", "thoughtSignature": "c2ln"}
    yield "signature on an empty text", GOOGLE, [*events[:-1], chunk([signed], "STOP", good)], (
        send.google_chunk([{"text": "Hello, world."}, signed], "STOP", good))
    unknown = {"hologram": {"x": 1}}
    yield "unknown part", GOOGLE, put(events, 1, chunk([unknown])), send.google_chunk([unknown, {"text": "Hi"}], "STOP", good)
    yield "no parts", GOOGLE, [chunk([], "STOP", {**good, "candidatesTokenCount": 0})], None
    bare = {"candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS"}], "usageMetadata": {
        **good, "candidatesTokenCount": 0, "thoughtsTokenCount": 77}}
    yield "thinks until it is cut", GOOGLE, [f"data: {dump(bare)}\r\n\r\n"], dump(bare)
    yield "LF instead of CRLF", GOOGLE, [e.replace("\r\n", "\n") for e in events], body
    bad = {"error": {"code": 503, "message": "No.", "status": "UNAVAILABLE"}}
    yield "error at first", GOOGLE, [f"data: {dump(bad)}\r\n\r\n"], None
    yield "error after some text", GOOGLE, [events[0], f"data: {dump(bad)}\r\n\r\n"], None
    yield "breaks off within", GOOGLE, events[:1], None
    yield "breaks off before the end", GOOGLE, events[:-1], None


def all_answers():
    yield from said()
    yield from used()
    yield from odd_chat()
    yield from odd_responses()
    yield from odd_anthropic()
    yield from odd_google()
