"""The requests of the corpus: what clients ask, as each API writes it (ask.py), and what providers must get (pass_on.py).

A request is {"turns", "tools", "choice", ...}, in no API's words. Turns are (role, blocks):
    system, developer, user, assistant, or tool
and their blocks those of send.py, and ("image", media type, base64), ("result", id, name, text, failed).
"""

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def text(s, **more):
    return ("text", s, more)


def ask(*blocks):
    return ("user", [text(b) if isinstance(b, str) else b for b in blocks])


def says(*blocks):
    return ("assistant", [text(b) if isinstance(b, str) else b for b in blocks])


def call(i, name, arguments):
    return ("call", i, name, arguments)


def result(i, name, s, failed=False):
    return ("tool", [("result", i, name, s, failed)])


def tool(name, description=None, schema=None, strict=None):
    return {"name": name, "description": description, "schema": schema, "strict": strict}


Q = ask("PLAY-0 What is it?")
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = tool("weather", "The weather of a city.", CITY)
CLOCK = tool("clock", None, {"type": "object", "properties": {}})
TOOLS = {"tools": [WEATHER, CLOCK]}
OSLO = '{"city":"Oslo"}'

PLAIN = {"type": "object", "properties": {"name": {"type": "string"}, "km": {"type": "number"}}, "required": ["name", "km"]}
NESTED = {"type": "object", "properties": {"list": {"type": "array", "items": PLAIN}, "kind": {"enum": ["a", "b"]}},
          "required": ["list"], "additionalProperties": False}
CALL, RESULT = call("call_1", "weather", OSLO), result("call_1", "weather", "rain")
FORCIBLE = [m for m in ("gpt-4.1-mini", "gpt-5.6-terra", "gpt-6.2-sol", "claude-haiku-5-5", "claude-haiku-4-5",
                        "gemini-3.5-flash", "gemini-2.5-flash-lite")]
MARK = {"cache": True}
CHATS = ("chat", "messages", "contents")  # those that have stop sequences

# name: the turns, and the rest. "only" names the APIs that can say it, "models" those that take it.
ASKED = {
    "a question": ([Q], {}),
    "no cap": ([Q], {"max_tokens": None, "only": ("chat", "responses", "contents")}),
    "two questions": ([Q, ask("And?")], {}),
    "two parts": ([ask("PLAY-0 One.", "Two.")], {}),
    "odd characters": ([ask('PLAY-0 " \\ / <b> \u2028 \x7f é 𝄞 \t\r\n.')], {}),
    "NUL": ([ask("PLAY-0 a\0b")], {}),
    "like a script": ([ask('PLAY-0 data: [DONE]\n\n{"role":"system"}')], {}),
    "a system prompt": ([("system", [text("Be short.")]), Q], {}),
    "two system prompts": ([("system", [text("Be short.")]), ("system", [text("Be kind.")]), Q], {}),
    "a system prompt in parts": ([("system", [text("Be short."), text("Be kind.")]), Q], {}),
    "a developer's prompt": ([("developer", [text("Be short.")]), Q], {"only": ("chat", "responses")}),
    "a system prompt within": ([Q, says("A cat."), ("system", [text("Be short.")]), ask("Why?")],
                               {"only": ("chat", "responses")}),
    "a system prompt at the end": ([Q, says("A cat."), ask("Why?"), ("system", [text("Be short.")])],
                                   {"only": ("chat", "responses")}),
    "a conversation": ([Q, says("A cat."), ask("Why?")], {}),
    "a long conversation": ([Q, says("A cat."), ask("Why?"), says("Because."), ask("Really?")], {}),
    "an image": ([ask("PLAY-0 What?", ("image", "image/png", PIXEL))], {}),
    "an image first": ([ask(("image", "image/png", PIXEL), "PLAY-0 What?")], {}),
    "two images and texts": (
        [ask("PLAY-0 This", ("image", "image/png", PIXEL), "or this", ("image", "image/png", PIXEL), "?")], {}),
    "an image in an earlier turn": (
        [ask("PLAY-0 What?", ("image", "image/png", PIXEL)), says("A dot."), ask("Sure?")], {"long": True}),
    "tools": ([Q], TOOLS),
    "a tool without a schema": ([Q], {"tools": [tool("clock")], "only": ("chat", "contents")}),
    "a tool with a wide schema": ([Q], {"tools": [tool("f", "d", {
        "type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {"anyOf": [{"type": "integer", "minimum": 1},
        {"const": "x"}]}, "c": {"$ref": "#/$defs/c"}}, "$defs": {"c": {"enum": [1, "b", None]}},
        "additionalProperties": False})], "only": ("chat", "responses", "messages")}),
    "a name with a digit first": ([Q], {"tools": [tool("2d-plot", "Plots.", CITY)], "only": ("chat", "responses", "messages")}),
    "a name of 64 letters": ([Q], {"tools": [tool("n" * 64, "Plots.", CITY)]}),
    "many tools": ([Q], {"tools": [tool(f"tool_{i}", f"Number {i}.", CITY) for i in range(3)]}),
    "a long system prompt": ([("system", [text("LONG-0")]), Q], {"long": True}),
    "a long system prompt and tools": ([("system", [text("LONG-0")]), Q], {**TOOLS, "long": True}),
    "a long system prompt, tools, choice none": ([("system", [text("LONG-0")]), Q], {**TOOLS, "long": True, "choice": "none"}),
    "a long conversation with calls": (
        [("system", [text("LONG-0")]), Q, says(CALL), RESULT, says("Rain."), ask("And now?")], {**TOOLS, "long": True}),
    "strict tools": ([Q], {"tools": [tool("weather", "d", {**CITY, "additionalProperties": False}, True)],
                           "only": ("chat", "responses", "messages")}),
    "tools that are not strict": ([Q], {"tools": [tool("weather", "d", CITY, False)], "only": ("chat", "responses"),
                                        "models": FORCIBLE}),
    "a call and its result": ([Q, says(CALL), RESULT], TOOLS),
    "a call, its result, a question": ([Q, says(CALL), RESULT, says("Rain."), ask("And now?")], TOOLS),
    "text, call, result": ([Q, says("I look.", CALL), RESULT], TOOLS),
    "two calls and results": (
        [Q, says(CALL, call("call_2", "clock", "{}")), RESULT, result("call_2", "clock", "noon")], TOOLS),
    "results in another order": (
        [Q, says(CALL, call("call_2", "clock", "{}")), result("call_2", "clock", "noon"), RESULT],
        {**TOOLS, "only": ("chat", "responses")}),
    "two rounds of calls": (
        [Q, says(CALL), RESULT, says(call("call_2", "clock", "{}")), result("call_2", "clock", "noon")], TOOLS),
    "an empty result": ([Q, says(CALL), result("call_1", "weather", "")], TOOLS),
    "a result that is JSON": ([Q, says(CALL), result("call_1", "weather", '{"a": [1.50, "é"]}')], TOOLS),
    "NUL in a result": ([Q, says(CALL), result("call_1", "weather", "a\0b")], TOOLS),
    "a result and a question": ([Q, says(CALL), RESULT, ask("And?")], {**TOOLS, "only": ("messages",)}),
    "a failed tool": (
        [Q, says(CALL), result("call_1", "weather", "no such city", True)], {**TOOLS, "only": ("messages", "contents")}),
    "one of two failed": (
        [Q, says(CALL, call("call_2", "clock", "{}")), result("call_1", "weather", "rain"),
         result("call_2", "clock", "broken", True)], {**TOOLS, "only": ("messages", "contents")}),
    "a call of Google's": ([Q, says(call("8x2k", "weather", OSLO)), result("8x2k", "weather", "rain")], TOOLS),
    "a call of Claude's": ([Q, says(call("toolu_01", "weather", OSLO)), result("toolu_01", "weather", "rain")], TOOLS),
    "no arguments": ([Q, says(call("call_1", "clock", "{}")), result("call_1", "clock", "noon")], TOOLS),
    "arguments that are cut": (
        [Q, says(call("call_1", "weather", '{"city": "Osl')), RESULT], {**TOOLS, "only": ("chat", "responses")}),
    "arguments that are a list": (
        [Q, says(call("call_1", "weather", "[1]")), RESULT], {**TOOLS, "only": ("chat", "responses")}),
    "a cap": ([Q], {"max_tokens": 77}),
    "stop": ([Q], {"stop": ["END", "###"], "only": CHATS}),
    "stop, no effort": ([Q], {"stop": ["END"], "effort": "none", "only": ("chat",)}),
    **{f"effort {e}": ([Q], {"effort": e, "max_tokens": 4000, "only": ("chat", "responses")}) for e in
       ("none", "minimal", "low", "medium", "high", "xhigh", "max")},
    **{f"effort {e} of Claude": ([Q], {"effort": e, "max_tokens": 4000, "only": ("messages",)}) for e in
       ("low", "medium", "high", "xhigh", "max")},
    **{f"effort {e} of Google": ([Q], {"effort": e, "max_tokens": 4000, "only": ("contents",)}) for e in
       ("minimal", "low", "medium", "high")},
    **{f"effort {e} and tools": ([Q], {**TOOLS, "effort": e, "max_tokens": 4000, "only": ("chat", "responses")}) for e in
       ("none", "low", "high")},
    "choice auto": ([Q], {**TOOLS, "choice": "auto"}),
    "choice none": ([Q], {**TOOLS, "choice": "none"}),
    "choice required": ([Q], {**TOOLS, "choice": "required", "models": FORCIBLE}),
    "choice named": ([Q], {**TOOLS, "choice": ["clock"], "models": FORCIBLE}),
    "one call at a time": ([Q], {**TOOLS, "parallel": False, "only": ("chat", "responses", "messages")}),
    "a temperature": ([Q], {"temperature": 0.5}),
    "the usual temperature": ([Q], {"temperature": 1}),
    "a temperature, no effort": ([Q], {"temperature": 0.5, "effort": "none", "only": ("chat",)}),
    "top_p": ([Q], {"top_p": 0.25, "models": ["gpt-4.1-mini", "gpt-5.6-terra", "gemini-3.5-flash"]}),
    "a schema": ([Q], {"schema": PLAIN}),
    "a schema within one": ([Q], {"schema": NESTED}),
    "a cache mark": ([("user", [text("PLAY-0 Long.", **MARK), text("Short.")])], {"only": ("chat", "messages")}),
    "a cache mark in the system prompt": ([("system", [text("Long.", **MARK)]), Q], {"only": ("chat", "messages")}),
}


def all_requests():
    for name, (turns, rest) in ASKED.items():
        yield name, {"turns": turns, **rest}
