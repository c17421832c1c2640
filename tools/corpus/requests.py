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


CHAT_TOOLS = [{"type": "function", "function": {"name": "weather", "description": "The weather of a city.", "parameters": CITY}},
              {"type": "function", "function": {"name": "clock", "parameters": CLOCK["schema"]}}]
MESSAGES_TOOLS = [{"name": "weather", "description": "The weather of a city.", "input_schema": CITY},
                  {"name": "clock", "input_schema": CLOCK["schema"]}]
SAY = [{"role": "user", "content": "PLAY-0 What is it?"}]
PARTS = [{"role": "user", "parts": [{"text": "PLAY-0 What is it?"}]}]
OPENAI, CLAUDE = ["gpt-4.1-mini", "gpt-5.6-terra", "gpt-6.2-sol"], ["claude-haiku-5-5", "claude-sonnet-5-5", "claude-haiku-4-5"]
GEMINI = ["gemini-3.5-flash", "gemini-2.5-flash-lite"]
REASONING = ["gpt-5.6-terra", "gpt-6.2-sol", "claude-haiku-5-5", "claude-sonnet-5-5", "gemini-3.5-flash"]
FUNCTION = [{"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": OSLO}}]


def body(route, **members):
    """A body with a cap and a question, unless it says others."""
    rest = {"chat": {"messages": SAY, "max_tokens": 300}, "messages": {"messages": SAY, "max_tokens": 300},
            "responses": {"input": "PLAY-0 What is it?", "max_output_tokens": 300},
            "contents": {"contents": PARTS, "generationConfig": {"maxOutputTokens": 300}}}[route]
    return {k: v for k, v in {**rest, **members}.items() if v is not None}


def config(**members):
    return body("contents", generationConfig={"maxOutputTokens": 300, **members})


# Bodies that one API writes in its own way, and what they say: name, route, body, the request in no API's words.
WRITTEN = [
    ("the newer cap", "chat", body("chat", max_tokens=None, max_completion_tokens=77), {"max_tokens": 77}),
    ("one stop sequence", "chat", body("chat", stop="END"), {"stop": ["END"]}),
    ("unknown members", "chat", body("chat", user="u", seed=7, hologram={"a": [1]}, store=False), {}),
    ("store", "chat", body("chat", store=True), {}),
    ("an answer as it came", "chat", body("chat", messages=[*SAY, {
        "role": "assistant", "content": "A cat.", "refusal": None, "annotations": [], "audio": None,
        "reasoning_content": "Hm.", "function_call": None}, {"role": "user", "content": "Why?"}]),
     {"turns": [Q, says("A cat."), ask("Why?")]}),
    ("an empty list beside calls", "chat", body("chat", messages=[*SAY, {
        "role": "assistant", "content": [], "tool_calls": FUNCTION}, {
        "role": "tool", "tool_call_id": "call_1", "content": "rain"}], tools=CHAT_TOOLS),
     {"turns": [Q, says(CALL), RESULT], **TOOLS}),
    ("an empty text beside calls", "chat", body("chat", messages=[*SAY, {
        "role": "assistant", "content": "", "tool_calls": FUNCTION}, {
        "role": "tool", "tool_call_id": "call_1", "content": "rain"}], tools=CHAT_TOOLS),
     {"turns": [Q, says(CALL), RESULT], **TOOLS, "models": CLAUDE + GEMINI}),
    ("a result in parts", "chat", body("chat", messages=[*SAY, {
        "role": "assistant", "content": None, "tool_calls": FUNCTION}, {
        "role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "rain"}]}], tools=CHAT_TOOLS),
     {"turns": [Q, says(CALL), RESULT], **TOOLS}),
    ("allowed tools", "chat", body("chat", tools=CHAT_TOOLS, tool_choice={"type": "allowed_tools", "allowed_tools": {
        "mode": "auto", "tools": [{"type": "function", "function": {"name": "clock"}}]}}),
     {"tools": [CLOCK], "choice": "auto"}),
    ("a search beside tools", "chat", body("chat", tools=CHAT_TOOLS, web_search_options={}), TOOLS),
    ("a text as parts", "chat", body("chat", messages=[{"role": "user", "content": [
        {"type": "text", "text": "PLAY-0 What is it?"}]}]), {}),
    ("items without types", "responses", body("responses", input=[
        {"role": "user", "content": "PLAY-0 What is it?"}, {"role": "assistant", "content": "A cat."},
        {"role": "user", "content": [{"type": "input_text", "text": "Why?"}]}]),
     {"turns": [Q, says("A cat."), ask("Why?")]}),
    ("instructions", "responses", body("responses", instructions="Be short."),
     {"turns": [("system", [text("Be short.")]), Q]}),
    ("a summary", "responses", body("responses", reasoning={"summary": "auto"}), {"show": True, "models": REASONING}),
    ("a summary and an effort", "responses", body("responses", reasoning={"summary": "auto", "effort": "low"}),
     {"show": True, "effort": "low", "models": REASONING}),
    ("encrypted reasoning", "responses", body("responses", include=["reasoning.encrypted_content"]),
     {"models": ["gpt-5.6-terra", "gpt-6.2-sol"]}),
    ("allowed tools", "responses", body("responses", tools=[
        {"type": "function", "name": "weather", "description": "The weather of a city.", "parameters": CITY},
        {"type": "function", "name": "clock", "parameters": CLOCK["schema"]}], tool_choice={
        "type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "clock"}]}),
     {"tools": [CLOCK], "choice": "auto"}),
    ("a search beside tools", "responses", body("responses", tools=[{"type": "web_search"}, {
        "type": "function", "name": "clock", "parameters": CLOCK["schema"]}]), {"tools": [CLOCK]}),
    ("an item of its reasoning", "responses", body("responses", input=[
        {"role": "user", "content": "PLAY-0 What is it?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
        {"type": "message", "role": "assistant", "phase": "final_answer", "content": [
            {"type": "output_text", "text": "A cat.", "annotations": []}]}, {"role": "user", "content": "Why?"}]),
     {"turns": [Q, ("assistant", [("reasoning", "", {"type": "reasoning", "id": "rs_1", "summary": [],
                                                     "encrypted_content": "gAAA"}),
                                  ("text", "A cat.", {"phase": "final_answer"})]), ask("Why?")],
      "models": ["gpt-5.6-terra", "gpt-6.2-sol"]}),
    ("a system prompt as a text", "messages", body("messages", system="Be short."),
     {"turns": [("system", [text("Be short.")]), Q]}),
    ("unknown members", "messages", body("messages", top_k=5, metadata={"user_id": "u"}, hologram=1), {}),
    ("thinks", "messages", body("messages", thinking={"type": "adaptive"}), {"show": True, "models": REASONING}),
    ("does not think", "messages", body("messages", thinking={"type": "disabled"}), {"effort": "none"}),
    *[(f"thinks {n} tokens", "messages", body("messages", max_tokens=30_000, thinking={
        "type": "enabled", "budget_tokens": n}), {"show": True, "effort": e, "max_tokens": 30_000})
      for n, e in ((1024, "low"), (4095, "low"), (4096, "medium"), (16_383, "medium"), (16_384, "high"))],
    ("thinks more than the cap", "messages", body("messages", thinking={"type": "enabled", "budget_tokens": 2000}),
     {"show": True, "effort": "low"}),
    ("a result in blocks", "messages", body("messages", messages=[*SAY, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Oslo"}}]}, {"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "rain"}]}]}],
        tools=MESSAGES_TOOLS), {"turns": [Q, says(CALL), RESULT], **TOOLS}),
    ("a search beside tools", "messages", body("messages", tools=[*MESSAGES_TOOLS, {
        "type": "web_search_20250305", "name": "web_search"}]), TOOLS),
    ("names with lines", "contents", {"contents": PARTS, "generation_config": {"max_output_tokens": 300, "top_p": 0.5},
                                      "system_instruction": {"parts": [{"text": "Be short."}]}},
     {"turns": [("system", [text("Be short.")]), Q], "top_p": 0.5, "models": ["gpt-4.1-mini", *GEMINI]}),
    ("no role", "contents", body("contents", contents=[{"parts": PARTS[0]["parts"]}]), {}),
    ("what is dropped", "contents", {**config(seed=7, topK=5, candidateCount=1), "safetySettings": [], "store": True}, {}),
    ("thoughts", "contents", config(thinkingConfig={"includeThoughts": True}), {"show": True, "models": REASONING}),
    *[(f"thinks {n} tokens", "contents", body("contents", generationConfig={
        "maxOutputTokens": 30_000, "thinkingConfig": {"thinkingBudget": n}}), {"effort": e, "max_tokens": 30_000, "thinks": n < 0})
      for n, e in ((0, "none"), (1000, "low"), (4096, "medium"), (16_384, "high"), (-1, None))],
    ("a schema of Google's kind", "contents", body("contents", tools=[{"functionDeclarations": [{
        "name": "weather", "description": "The weather of a city.", "parameters": {"type": "OBJECT", "properties": {
            "city": {"type": "STRING"}}, "required": ["city"]}}]}]), {"tools": [WEATHER]}),
    ("a result that is an object", "contents", body("contents", contents=[*PARTS, {"role": "model", "parts": [
        {"functionCall": {"id": "call_1", "name": "weather", "args": {"city": "Oslo"}}}]}, {"role": "user", "parts": [
        {"functionResponse": {"id": "call_1", "name": "weather", "response": {"sky": "rain"}}}]}],
        tools=[{"functionDeclarations": [{"name": "weather", "description": "The weather of a city.",
                                          "parametersJsonSchema": CITY}]}]),
     {"turns": [Q, says(CALL), result("call_1", "weather", '{"sky":"rain"}')], "tools": [WEATHER]}),
    ("a search beside tools", "contents", body("contents", tools=[{"googleSearch": {}}, {"functionDeclarations": [
        {"name": "clock", "parametersJsonSchema": CLOCK["schema"]}]}]), {"tools": [CLOCK]}),
    ("one of two allowed functions", "contents", body("contents", tools=[{"functionDeclarations": [
        {"name": "weather", "description": "The weather of a city.", "parametersJsonSchema": CITY},
        {"name": "clock", "parametersJsonSchema": CLOCK["schema"]}]}], toolConfig={"functionCallingConfig": {
            "mode": "ANY", "allowedFunctionNames": ["clock"]}}), {**TOOLS, "choice": ["clock"], "models": FORCIBLE}),
]
ALL_MODELS = [*OPENAI, *CLAUDE, *GEMINI]
RESULT_ALONE = [*SAY, {"role": "tool", "tool_call_id": "call_1", "content": "rain"}]
# What is refused before anything is sent: name, route, body, what the message names, models.
REFUSED = [
    ("no messages", "chat", body("chat", messages=[]), "messages", ALL_MODELS),
    ("two answers", "chat", body("chat", n=2), r"\bn\b", ALL_MODELS),
    ("functions", "chat", body("chat", functions=[{"name": "f"}]), "functions", ALL_MODELS),
    ("probabilities", "chat", body("chat", logprobs=True), "logprobs", ALL_MODELS),
    ("audio", "chat", body("chat", modalities=["audio"], audio={"voice": "a"}), "audio|modalities", ALL_MODELS),
    ("an unknown role", "chat", body("chat", messages=[{"role": "robot", "content": "x"}]), "role", ALL_MODELS),
    ("a cap of 0", "chat", body("chat", max_tokens=0), "max_tokens", ALL_MODELS),
    ("two caps", "chat", body("chat", max_completion_tokens=4), "max_completion_tokens", ALL_MODELS),
    ("hot", "chat", body("chat", temperature=3), "temperature", ALL_MODELS),
    ("129 tools", "chat", body("chat", tools=[{"type": "function", "function": {"name": f"f{i}"}} for i in range(129)]), "tools",
     ALL_MODELS),
    ("a name that is none", "chat", body("chat", tools=[{"type": "function", "function": {"name": "a b"}}]), "name", ALL_MODELS),
    ("two tools of a name", "chat", body("chat", tools=[CHAT_TOOLS[0], CHAT_TOOLS[0]]), "weather", ALL_MODELS),
    ("a choice without tools", "chat", body("chat", tool_choice="required"), "tool_choice", ALL_MODELS),
    ("a choice of no tool", "chat", body("chat", tools=CHAT_TOOLS, tool_choice={
        "type": "function", "function": {"name": "no"}}), "tool_choice", ALL_MODELS),
    ("parallel without tools", "chat", body("chat", parallel_tool_calls=True), "parallel_tool_calls", ALL_MODELS),
    ("a result without a call", "chat", body("chat", messages=RESULT_ALONE), "tool_call_id|call_1", CLAUDE + GEMINI),
    ("a call without a result", "chat", body("chat", messages=[*SAY, {
        "role": "assistant", "tool_calls": FUNCTION}, {"role": "user", "content": "And?"}], tools=CHAT_TOOLS), "call_1",
     CLAUDE + GEMINI),
    ("a forced call", "chat", body("chat", tools=CHAT_TOOLS, tool_choice="required"), "tool_choice", ["claude-sonnet-5-5"]),
    ("a search alone", "chat", body("chat", web_search_options={}), "search", ALL_MODELS),
    ("the model goes on", "chat", body("chat", messages=[*SAY, {"role": "assistant", "content": "A"}]), "messages",
     ["claude-haiku-5-5", "claude-sonnet-5-5"]),
    ("a recursive schema", "chat", body("chat", response_format={"type": "json_schema", "json_schema": {
        "name": "it", "schema": {"$ref": "#"}}}), "response_format", CLAUDE),
    ("a private address", "chat", body("chat", messages=[{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}}]}]), "image|address", CLAUDE + GEMINI),
    ("a GIF", "chat", body("chat", messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {
        "url": "data:image/gif;base64,R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs="}}]}]), "gif|GIF", GEMINI),
    ("sound", "chat", body("chat", messages=[{"role": "user", "content": [
        {"type": "input_audio", "input_audio": {"data": "x", "format": "wav"}}]}]), "type|input_audio", ALL_MODELS),
    ("an earlier response", "responses", body("responses", previous_response_id="resp_1"), "previous_response_id", ALL_MODELS),
    ("in the background", "responses", body("responses", background=True), "background", ALL_MODELS),
    ("a conversation", "responses", body("responses", conversation="conv_1"), "conversation", ALL_MODELS),
    ("a prompt", "responses", body("responses", prompt={"id": "p"}), "prompt", ALL_MODELS),
    ("a search alone", "responses", body("responses", tools=[{"type": "web_search"}]), "search", ALL_MODELS),
    ("a file search", "responses", body("responses", tools=[{"type": "file_search"}]), "tools", ALL_MODELS),
    ("a computer", "responses", body("responses", tools=[{"type": "computer_use_preview"}]), "tools", ALL_MODELS),
    ("a bound of calls", "responses", body("responses", max_tool_calls=3), "max_tool_calls", ALL_MODELS),
    ("probabilities", "responses", body("responses", top_logprobs=3), "top_logprobs", ALL_MODELS),
    ("a small cap", "responses", body("responses", max_output_tokens=15), "max_output_tokens", ["gpt-5.6-terra", "gpt-6.2-sol"]),
    ("a file", "responses", body("responses", input=[{"role": "user", "content": [
        {"type": "input_file", "file_id": "file-1"}]}]), "input", ALL_MODELS),
    ("an unknown reference", "responses", body("responses", input=[{"type": "item_reference", "id": "msg_1"}, {
        "role": "user", "content": "x"}]), "item_reference|msg_1|input", ALL_MODELS),
    ("a dear mode", "responses", body("responses", reasoning={"mode": "pro"}), "mode", ALL_MODELS),
    ("a tier", "responses", body("responses", service_tier="priority"), "service_tier", ALL_MODELS),
    ("no cap", "messages", body("messages", max_tokens=None), "max_tokens", ALL_MODELS),
    ("a document", "messages", body("messages", messages=[{"role": "user", "content": [
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}]}]), "document|type", ALL_MODELS),
    ("servers", "messages", body("messages", mcp_servers=[{"url": "https://example.com"}]), "mcp_servers", ALL_MODELS),
    ("a container", "messages", body("messages", container="c"), "container", ALL_MODELS),
    ("five stop sequences", "messages", body("messages", stop_sequences=["a", "b", "c", "d", "e"]), "stop_sequences", ALL_MODELS),
    ("a search alone", "messages", body("messages", tools=[{"type": "web_search_20250305", "name": "web_search"}]), "search",
     ALL_MODELS),
    ("code", "messages", body("messages", tools=[{"type": "code_execution_20250522", "name": "c"}]), "tools", ALL_MODELS),
    ("a system role", "messages", body("messages", messages=[{"role": "robot", "content": "x"}]), "role", ALL_MODELS),
    ("a file", "contents", body("contents", contents=[{"parts": [
        {"fileData": {"fileUri": "https://generativelanguage.googleapis.com/v1beta/files/x"}}]}]), "file", ALL_MODELS),
    ("what is cached", "contents", body("contents", cachedContent="cachedContents/x"), "cachedContent", ALL_MODELS),
    ("two candidates", "contents", config(candidateCount=2), "candidateCount", ALL_MODELS),
    ("a search alone", "contents", body("contents", tools=[{"googleSearch": {}}]), "search|Search", ALL_MODELS),
    ("code", "contents", body("contents", tools=[{"codeExecution": {}}]), "codeExecution", ALL_MODELS),
    ("pictures", "contents", config(responseModalities=["IMAGE"]), "responseModalities", ALL_MODELS),
    ("five stop sequences", "contents", config(stopSequences=["a", "b", "c", "d", "e"]), "stopSequences", ALL_MODELS),
    ("probabilities", "contents", config(responseLogprobs=True), "responseLogprobs", ALL_MODELS),
    ("nothing", "contents", body("contents", contents=[]), "contents", ALL_MODELS),
]


def all_requests():
    for name, (turns, rest) in ASKED.items():
        yield name, {"turns": turns, **rest}
