"""What a provider must get for a request, by the provider notes (A, B, C) and the decisions 170 to 179."""

import json

import views
from ask import marked, some, url

LEVELS = ["none", "minimal", "low", "medium", "high", "xhigh", "max"]
MODELS = {  # provider, the efforts it takes, and whether it thinks: unless told not to, when asked, always
    "gpt-4.1-mini": ("openai", [], None),
    "gpt-5.6-terra": ("openai", ["none", *LEVELS[2:]], "on"),
    "gpt-6.2-sol": ("openai", LEVELS[2:], "always"),
    "claude-haiku-5-5": ("anthropic", ["none", *LEVELS[2:]], "on"),
    "claude-sonnet-5-5": ("anthropic", LEVELS[2:], "always"),
    "claude-haiku-4-5": ("anthropic", ["none", "low", "medium", "high"], "asked"),
    "gemini-3.5-flash": ("google", LEVELS[1:5], "always"),
    "gemini-2.5-flash-lite": ("google", ["none", "low", "medium", "high"], "on"),
}
BUDGETS = {"low": 1024, "medium": 8192, "high": 24576}  # of Claude Haiku 4.5 (decision 170) and Gemini 2.5 (C.2)
CEILINGS = {"gpt-4.1-mini": 32768, "claude-haiku-4-5": 64000, "gemini-3.5-flash": 65536, "gemini-2.5-flash-lite": 65535}
NO_ARGUMENTS = {"type": "object", "properties": {}}
FAILED = "The tool failed. "


def effort_for(r, model):
    """The nearest effort that the model has; None if there is none, or none was asked for (decision 170)."""
    effort, levels = r.get("effort"), MODELS[model][1]
    if not effort or not levels:
        return None
    if effort == "none":
        return "none" if "none" in levels else levels[0]
    at = LEVELS.index(effort)
    return min((v for v in levels if v != "none"), key=lambda v: (abs(LEVELS.index(v) - at), LEVELS.index(v)))


def is_forced(r):
    return r.get("choice") not in (None, "auto", "none")


def merged(turns, route):
    """Neighbouring turns of a user are one in these APIs (B.2, C.3)."""
    if route not in ("messages", "contents"):
        return turns
    out = []
    for role, blocks in turns:
        if role in ("user", "system") and out and out[-1][0] == role:
            out[-1] = (role, out[-1][1] + blocks)
        else:
            out.append((role, blocks))
    return out


def cap(r, model):
    return r["max_tokens"] or CEILINGS.get(model, 128_000)


def choice_of(r, route):
    """Anthropic's API has the wish for one call at a time in the choice."""
    return r.get("choice") or ("auto" if route == "messages" and r.get("parallel") is False else None)


def mark_end(blocks):
    blocks[-1]["cache_control"] = {"type": "ephemeral"}


def mark(r, tools, system, out):
    """Where Purser marks a long conversation by itself (decision 071)."""
    spoke = [n for n, m in enumerate(out) if m["role"] == "assistant"]
    if not r.get("long") or not spoke and not (tools and r.get("choice") in (None, "auto")):
        return
    for end in (system or tools, out[spoke[-1] - 1]["content"] if spoke else None, out[-1]["content"]):
        if end:
            mark_end(end)


def form(r, route):
    """The name and the strictness of a schema, which two of the APIs do not have."""
    return {"name": "it", "strict": True} if route in ("chat", "responses") else {"name": "response"}


def result_text(b):
    """A result for an API that does not know failures (A.2)."""
    return FAILED + b[3] if b[4] else b[3]


def dump_object(arguments):
    """Arguments as an object that a client sends back."""
    value = json.dumps(views.as_object(arguments), ensure_ascii=False, separators=(",", ":"))
    return value if "invalid_json" in value else arguments or "{}"


# --- A.2


def to_chat(r, model, route):
    messages = []
    for role, blocks in merged(r["turns"], route):
        if role == "tool":
            messages.append({"role": "tool", "tool_call_id": blocks[0][1], "content": result_text(blocks[0])})
            continue
        said = [{"type": "text", "text": b[1]} if b[0] == "text" else {"type": "image_url", "image_url": {"url": url(b)}}
                for b in blocks if b[0] in ("text", "image")]
        m = {"role": role, "content": said[0]["text"] if len(said) == 1 and said[0]["type"] == "text" else said or None}
        if refusals := [b[1] for b in blocks if b[0] == "refusal"]:
            m["refusal"] = refusals[0]
        calls = [b for b in blocks if b[0] == "call"]
        if calls:
            m["tool_calls"] = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}}
                               for _, i, n, a, *_ in calls]
        messages.append(m)
    choice = choice_of(r, route)
    if isinstance(choice, list):
        choice = {"type": "function", "function": {"name": choice[0]}}
    effort = effort_for(r, model)
    free = not MODELS[model][2] or effort == "none"
    return some(
        model=model, messages=messages, max_completion_tokens=cap(r, model), tools=r.get("tools") and [
            {"type": "function", "function": some(name=t["name"], description=t["description"], parameters=t["schema"],
                                                  strict=t["strict"])} for t in r["tools"]],
        tool_choice=choice, parallel_tool_calls=r.get("parallel"),
        stop=r.get("stop") if free else None, reasoning_effort=effort, temperature=r.get("temperature") if free and r.get("temperature") != 1 else None,
        top_p=r.get("top_p") if free else None, response_format=r.get("schema") and {
            "type": "json_schema", "json_schema": {**form(r, route), "schema": r["schema"]}})


# --- A.10


def to_responses(r, model, route):
    items = []
    for role, blocks in merged(r["turns"], route):
        if role == "tool":
            items.append({"type": "function_call_output", "call_id": blocks[0][1], "output": result_text(blocks[0])})
        elif role == "assistant":
            for b in blocks:
                if b[0] == "call":
                    items.append({"type": "function_call", "call_id": b[1], "name": b[2], "arguments": b[3]})
                elif b[0] == "reasoning":
                    items.append(b[2])
                else:
                    part = {"type": "output_text", "text": b[1]} if b[0] == "text" else {"type": "refusal", "refusal": b[1]}
                    phase = {"phase": b[2]["phase"]} if len(b) > 2 and b[2].get("phase") else {}
                    if len(b) > 2 and b[2].get("joined"):
                        items[-1]["content"].append(part)
                    else:
                        items.append({"type": "message", "role": role, **phase, "content": [part]})
        else:
            content = [{"type": "input_text", "text": b[1]} if b[0] == "text" else
                       {"type": "input_image", "image_url": url(b), "detail": "auto"} for b in blocks]
            role = {"system": "developer"}.get(role, role)
            items.append({"type": "message", "role": role, "content": content})
    choice = choice_of(r, route)
    if isinstance(choice, list):
        choice = {"type": "function", "name": choice[0]}
    strict = None if route == "responses" else False
    return some(
        model=model, input=items, max_output_tokens=cap(r, model), tools=r.get("tools") and [
            some(type="function", name=t["name"], description=t["description"], parameters=t["schema"] or NO_ARGUMENTS,
                 strict=strict if t["strict"] is None else t["strict"]) for t in r["tools"]],
        tool_choice=choice, parallel_tool_calls=r.get("parallel"), 
        reasoning=some(effort=effort_for(r, model),
                       summary="auto" if r.get("show") and route != "messages" else None) or None, text=r.get("schema") and {"format": {
            "type": "json_schema", **form(r, route), "schema": r["schema"]}},
        include=["reasoning.encrypted_content"])


# --- B.2 to B.8


def closed(schema):
    """The schema, whose objects have no members but those that it names (decision 172)."""
    if isinstance(schema, list):
        return [closed(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: closed(v) for k, v in schema.items()}
    return {**out, "additionalProperties": False} if out.get("type") == "object" else out


def to_anthropic(r, model, route):
    system, out, body = [], [], False
    for role, blocks in r["turns"]:
        if role in ("system", "developer") and not body:
            system += [marked(b, {"type": "text", "text": b[1]}) for b in blocks]
            continue
        body = True
        content = []
        for b in blocks:
            if b[0] == "text":
                if b[1].strip():
                    content.append(marked(b, {"type": "text", "text": b[1]}))
            elif b[0] == "refusal":
                if not any(o[0] == "text" for o in blocks):
                    content.append({"type": "text", "text": b[1]})
            elif b[0] == "reasoning":
                content.append({"type": "thinking", "thinking": b[1], "signature": b[2]})
            elif b[0] == "redacted":
                content.append({"type": "redacted_thinking", "data": b[1]})
            elif b[0] == "image":
                content.append({"type": "image", "source": {"type": "base64", "media_type": b[1], "data": b[2]}})
            elif b[0] == "call":
                content.append({"type": "tool_use", "id": b[1], "name": b[2], "input": views.as_object(b[3])})
            else:
                content.append(some(type="tool_result", tool_use_id=b[1], content=b[3] or None, is_error=b[4] or None))
        role = "assistant" if role == "assistant" else "user"
        if not content:
            continue
        if out and out[-1]["role"] == role:
            out[-1]["content"] += content
        else:
            out.append({"role": role, "content": content})
    choice = choice_of(r, route)
    if choice:
        choice = ({"type": "tool", "name": choice[0]} if isinstance(choice, list) else
                  {"type": {"required": "any"}.get(choice, choice)})
    if r.get("parallel") is False:
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    effort, thinking = effort_for(r, model), None
    if is_forced(r) and MODELS[model][2] == "on" or effort == "none":
        thinking, effort = {"type": "disabled"}, None
    elif r.get("show") and MODELS[model][2] != "asked":
        thinking = {"type": "adaptive", "display": "summarized"}
    elif MODELS[model][2] == "asked":
        budget = min(BUDGETS.get(effort, BUDGETS["medium"] if r.get("thinks") else 0), cap(r, model) // 2)
        if (route != "messages" or r.get("show")) and budget >= 1024 and not is_forced(r):
            thinking = {"type": "enabled", "budget_tokens": budget}
        effort = None
    if MODELS[model][2] == "asked" and thinking and thinking["type"] == "disabled":
        thinking = None
    free = MODELS[model][2] == "asked" and not thinking
    tools = [
            some(name=t["name"], description=t["description"], input_schema=t["schema"] or NO_ARGUMENTS,
                 strict=t["strict"] or None) for t in r.get("tools") or ()]
    mark(r, tools, system, out)
    return some(
        thinking=thinking, temperature=r.get("temperature") if free and r.get("temperature", 1) < 1 else None,
        model=model, system=system or None, messages=out, max_tokens=cap(r, model), stop_sequences=r.get("stop"),
        tools=tools or None, tool_choice=None if choice == {"type": "auto"} else choice, output_config=some(effort=effort, format=r.get("schema") and {
            "type": "json_schema", "schema": closed(r["schema"])}) or None)


# --- C.2 to C.6


def given(i):
    """The id of a call, if Google gave it."""
    return {} if not i or i.startswith(("call_", "fc_", "toolu_")) else {"id": i}


def google_name(name):
    """A name begins with a letter there (C.5)."""
    return name if name[0].isalpha() or name[0] == "_" else "_" + name


def to_google(r, model, route):
    system, out, body = [], [], False
    for role, blocks in r["turns"]:
        if role in ("system", "developer") and not body:
            system += [{"text": b[1]} for b in blocks]
            continue
        body = True
        parts = []
        for b in blocks:
            if b[0] in ("text", "refusal"):
                signed = {"thoughtSignature": b[2]["signature"]} if len(b) > 2 and b[2].get("signature") else {}
                parts.append({"text": b[1], **signed})
            elif b[0] == "image":
                parts.append({"inlineData": {"mimeType": b[1], "data": b[2]}})
            elif b[0] == "call":
                parts.append({"functionCall": {**given(b[1]), "name": google_name(b[2]), "args": views.as_object(b[3])}})
                if model == "gemini-3.5-flash" and sum("functionCall" in p for p in parts) == 1:
                    parts[-1]["thoughtSignature"] = "skip_thought_signature_validator"
                if len(b) > 4 and b[4]:
                    parts[-1]["thoughtSignature"] = b[4]
            else:
                response = {"error" if b[4] else "output": b[3]}
                parts.append({"functionResponse": {**given(b[1]), "name": google_name(b[2]), "response": response}})
        results = role == "tool"
        role = "model" if role == "assistant" else "user"
        if out and out[-1]["role"] == role and results == ("functionResponse" in out[-1]["parts"][0]):
            out[-1]["parts"] += parts
        else:
            out.append({"role": role, "parts": parts})
    for said, after in zip(out, out[1:]):  # in the order of the calls
        names = [p["functionCall"]["name"] for p in said["parts"] if "functionCall" in p]
        if "functionResponse" in after["parts"][0]:
            after["parts"].sort(key=lambda p: names.index(p["functionResponse"]["name"]))
    choice = choice_of(r, route)
    if choice:
        mode = {"none": "NONE", "auto": "AUTO"}.get(choice, "ANY") if isinstance(choice, str) else "ANY"
        choice = {"functionCallingConfig": some(mode=mode, allowedFunctionNames=[google_name(n) for n in choice]
                                                if isinstance(choice, list) else None)}
    effort = effort_for(r, model)
    thinking = {"includeThoughts": True} if r.get("show") else {}
    if effort:
        thinking |= {"thinkingLevel": effort.upper()} if model != "gemini-2.5-flash-lite" else {
            "thinkingBudget": BUDGETS.get(effort, 0)}
    return some(
        contents=out, systemInstruction={"parts": system} if system else None,
        tools=r.get("tools") and [{"functionDeclarations": [
            some(name=google_name(t["name"]), description=t["description"], parametersJsonSchema=t["schema"])
            for t in r["tools"]]}],
        toolConfig=choice, generationConfig=some(
            maxOutputTokens=cap(r, model), stopSequences=r.get("stop"), temperature=r.get("temperature"), topP=r.get("top_p"),
            thinkingConfig=thinking or None, responseMimeType=r.get("schema") and "application/json",
            responseJsonSchema=r.get("schema")))


def goes_by_responses(r, model, route):
    """Decision 171, and A.10."""
    if model == "gpt-4.1-mini":
        return False
    return route == "responses" or bool(r.get("tools") or r.get("show")) and effort_for(r, model) != "none"


def numbered(value):
    return views.numbered(json.dumps(value))


def expect(r, model, route):
    """The end of the path and the body of what the provider gets."""
    provider = MODELS[model][0]
    if provider == "openai":
        by, path = (to_responses, "/responses") if goes_by_responses(r, model, route) else (to_chat, "/chat/completions")
    else:
        by, path = {"anthropic": (to_anthropic, "/messages"), "google": (to_google, f"/{model}:generateContent")}[provider]
    body = numbered(by(r, model, route))
    body.pop("model", None)
    return {"path": path.replace(model, "MODEL"), "body": body}
