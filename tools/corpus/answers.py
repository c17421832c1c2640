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


LONG = "Ж" * 70 + "𝄞" * 30 + "漢字かな" * 20
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
    for d in ALL:
        yield "usage: none", d, *write(d, short, reports=False)


def all_answers():
    yield from said()
    yield from used()
