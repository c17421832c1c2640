"""Writes a request as the clients of each API do."""

import json


def parts(blocks, kinds):
    return [kinds[b[0]](b) for b in blocks]


def one_text(blocks, write):
    """A text alone is mostly written as one."""
    return blocks[0][1] if len(blocks) == 1 and blocks[0][0] == "text" and not blocks[0][2] else write


def url(b):
    return f"data:{b[1]};base64,{b[2]}"


def marked(b, part):
    return {**part, **({"cache_control": {"type": "ephemeral"}} if b[2].get("cache") else {})}


def some(**members):
    """The members that are said."""
    return {k: v for k, v in members.items() if v is not None}


# --- Chat Completions


def chat(r):
    kinds = {
        "text": lambda b: marked(b, {"type": "text", "text": b[1]}),
        "image": lambda b: {"type": "image_url", "image_url": {"url": url(b)}},
    }
    messages = []
    for role, blocks in r["turns"]:
        if role == "tool":
            _, i, _, s, _ = blocks[0]
            messages.append({"role": "tool", "tool_call_id": i, "content": s})
            continue
        said = [b for b in blocks if b[0] != "call"]
        m = {"role": role, "content": one_text(said, parts(said, kinds)) if said else None}
        calls = [b for b in blocks if b[0] == "call"]
        if calls:
            m["tool_calls"] = [{"id": i, "type": "function", "function": {"name": n, "arguments": a}}
                               for _, i, n, a in calls]
        messages.append(m)
    choice = r.get("choice")
    if isinstance(choice, list):
        choice = {"type": "function", "function": {"name": choice[0]}}
    return some(
        messages=messages, max_tokens=r.get("max_tokens"), tools=r.get("tools") and [
            {"type": "function", "function": some(name=t["name"], description=t["description"], parameters=t["schema"],
                                                  strict=t["strict"])} for t in r["tools"]],
        tool_choice=choice, parallel_tool_calls=r.get("parallel"), stop=r.get("stop"), reasoning_effort=r.get("effort"),
        temperature=r.get("temperature"), top_p=r.get("top_p"), response_format=r.get("schema") and {
            "type": "json_schema", "json_schema": {"name": "it", "strict": True, "schema": r["schema"]}})


# --- Responses


def responses(r):
    kinds = {
        "text": lambda b: {"type": "input_text", "text": b[1]},
        "image": lambda b: {"type": "input_image", "image_url": url(b)},
    }
    items = []
    for role, blocks in r["turns"]:
        if role == "tool":
            _, i, _, s, _ = blocks[0]
            items.append({"type": "function_call_output", "call_id": i, "output": s})
        elif role == "assistant":
            for b in blocks:
                if b[0] == "call":
                    items.append({"type": "function_call", "call_id": b[1], "name": b[2], "arguments": b[3]})
                else:
                    items.append({"type": "message", "role": role, "content": [{"type": "output_text", "text": b[1]}]})
        else:
            items.append({"type": "message", "role": role, "content": one_text(blocks, parts(blocks, kinds))})
    choice = r.get("choice")
    if isinstance(choice, list):
        choice = {"type": "function", "name": choice[0]}
    return some(
        input=items, max_output_tokens=r.get("max_tokens"), store=False, tools=r.get("tools") and [
            some(type="function", name=t["name"], description=t["description"], parameters=t["schema"],
                 strict=t["strict"]) for t in r["tools"]],
        tool_choice=choice, parallel_tool_calls=r.get("parallel"),
        reasoning=r.get("effort") and {"effort": r["effort"]}, temperature=r.get("temperature"), top_p=r.get("top_p"),
        text=r.get("schema") and {"format": {"type": "json_schema", "name": "it", "strict": True,
                                             "schema": r["schema"]}})


# --- Messages


def messages(r):
    kinds = {
        "text": lambda b: marked(b, {"type": "text", "text": b[1]}),
        "image": lambda b: {"type": "image", "source": {"type": "base64", "media_type": b[1], "data": b[2]}},
        "call": lambda b: {"type": "tool_use", "id": b[1], "name": b[2], "input": json.loads(b[3] or "{}")},
        "result": lambda b: some(type="tool_result", tool_use_id=b[1], content=b[3], is_error=b[4] or None),
    }
    system, out = [], []
    for role, blocks in r["turns"]:
        if role in ("system", "developer"):
            system += parts(blocks, kinds)
            continue
        role = "user" if role == "tool" else role
        content = one_text(blocks, parts(blocks, kinds))
        if out and out[-1]["role"] == role == "user" and isinstance(out[-1]["content"], list) and isinstance(content, list):
            out[-1]["content"] += content
        else:
            out.append({"role": role, "content": content})
    choice = r.get("choice")
    if choice:
        choice = ({"type": "tool", "name": choice[0]} if isinstance(choice, list) else
                  {"type": {"required": "any"}.get(choice, choice)})
    if r.get("parallel") is False:
        choice = {**(choice or {"type": "auto"}), "disable_parallel_tool_use": True}
    return some(
        messages=out, system=system or None, max_tokens=r.get("max_tokens", 300), tools=r.get("tools") and [
            some(name=t["name"], description=t["description"], input_schema=t["schema"] or {"type": "object"},
                 strict=t["strict"]) for t in r["tools"]],
        tool_choice=choice, stop_sequences=r.get("stop"), temperature=r.get("temperature"), top_p=r.get("top_p"),
        output_config=some(effort=r.get("effort"), format=r.get("schema") and {
            "type": "json_schema", "schema": r["schema"]}) or None)


# --- Google's contents


def contents(r):
    kinds = {
        "text": lambda b: {"text": b[1]},
        "image": lambda b: {"inlineData": {"mimeType": b[1], "data": b[2]}},
        "call": lambda b: {"functionCall": {"id": b[1], "name": b[2], "args": json.loads(b[3] or "{}")}},
        "result": lambda b: {"functionResponse": {"id": b[1], "name": b[2],
                                                  "response": {"error" if b[4] else "output": b[3]}}},
    }
    system, out = [], []
    for role, blocks in r["turns"]:
        if role in ("system", "developer"):
            system += parts(blocks, kinds)
            continue
        results = role == "tool"
        role = {"assistant": "model", "tool": "user"}.get(role, role)
        if results and out and "functionResponse" in out[-1]["parts"][0]:
            out[-1]["parts"] += parts(blocks, kinds)
        else:
            out.append({"role": role, "parts": parts(blocks, kinds)})
    choice = r.get("choice")
    if choice:
        mode = {"none": "NONE", "auto": "AUTO"}.get(choice, "ANY") if isinstance(choice, str) else "ANY"
        choice = {"functionCallingConfig": some(mode=mode, allowedFunctionNames=choice if mode == "ANY" and
                                                isinstance(choice, list) else None)}
    config = some(
        maxOutputTokens=r.get("max_tokens"), stopSequences=r.get("stop"), temperature=r.get("temperature"),
        topP=r.get("top_p"), thinkingConfig=r.get("effort") and {"thinkingLevel": r["effort"].upper()},
        responseMimeType=r.get("schema") and "application/json", responseJsonSchema=r.get("schema"))
    return some(
        contents=out, systemInstruction={"parts": system} if system else None, generationConfig=config or None,
        tools=r.get("tools") and [{"functionDeclarations": [
            some(name=t["name"], description=t["description"], parametersJsonSchema=t["schema"]) for t in r["tools"]]}],
        toolConfig=choice)


WRITERS = {"chat": chat, "responses": responses, "messages": messages, "contents": contents}
