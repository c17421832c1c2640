"""What a client reads of an answer, by the API that it speaks (decisions 074, 076, 167, 179).

A view has what is readable, in its order. What only a provider understands is in the second turn (turns.py).
"""

import json


def numbered(text):
    """A JSON text whose numbers are texts, so that no program rounds them."""
    return json.loads(text, parse_int=lambda n: "#" + n, parse_float=lambda n: "#" + n)


def as_object(arguments):
    """The arguments of a call where they must be an object."""
    try:
        value = numbered(arguments or "{}")
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"invalid_json": arguments}


def join(answer, kind):
    return "".join(b["text"] for b in answer.blocks if b["kind"] == kind)


def identified(b):
    """The id of a call; any, if the provider has given none."""
    return b["id"] or "*"


def chat(answer, shows):
    calls = [[identified(b), b["name"], b["arguments"]] for b in answer.blocks if b["kind"] == "call"]
    return {
        "content": join(answer, "text"), "refusal": join(answer, "refusal"),
        "reasoning": join(answer, "reasoning") if shows else "", "calls": calls, "end": answer.end,
    }


def refused(answer, end, refusal):
    """A refusal is a text for those whose API has none; how the answer has ended says that it is one."""
    return refusal if end != "tool_calls" and any(b["kind"] == "refusal" for b in answer.blocks) else end


def messages(answer, _):
    out = []
    last = {}
    for b in answer.blocks:
        if b["kind"] == "call":
            out.append(["call", identified(b), b["name"], as_object(b["arguments"])])
        elif b["kind"] == "reasoning" and b["text"]:
            out.append(["reasoning", b["text"]])
        elif b["kind"] in ("text", "refusal") and b["text"]:
            if b.get("message") and b["message"] == last.get("message"):
                out[-1][1] += b["text"]
            else:
                out.append(["text", b["text"]])
        last = b
    end = refused(answer, answer.end, "content_filter")
    end = {"stop": "end_turn", "tool_calls": "tool_use", "length": "max_tokens", "content_filter": "refusal"}[end]
    return {"blocks": out, "end": "stop_sequence" if answer.sequence else end, "sequence": answer.sequence}


def responses(answer, _):
    out = []
    last = {}
    for b in answer.blocks:
        if b["kind"] == "call":
            out.append(["call", identified(b), b["name"], b["arguments"]])
        elif b["kind"] == "reasoning" and b["text"]:
            out.append(["reasoning", b["text"]])
        elif b["kind"] in ("text", "refusal") and b["text"]:
            if b.get("message") and b["message"] == last.get("message"):
                out[-1][2].append([b["kind"], b["text"]])
            else:
                out.append(["message", b.get("phase"), [[b["kind"], b["text"]]]])
        last = b
    end = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(answer.end, "completed")
    return {"blocks": out, "end": end}


def contents(answer, _):
    out = []
    for b in answer.blocks:
        if b["kind"] == "call":
            out.append(["call", identified(b), b["name"], as_object(b["arguments"])])
        elif b["kind"] in ("reasoning", "text", "refusal") and b["text"]:
            kind = "reasoning" if b["kind"] == "reasoning" else "text"
            if out and out[-1][0] == kind:
                out[-1][1] += b["text"]
            else:
                out.append([kind, b["text"]])
    end = refused(answer, answer.end, "content_filter")
    end = {"stop": "STOP", "tool_calls": "STOP", "length": "MAX_TOKENS", "content_filter": "SAFETY"}[end]
    return {"blocks": out, "end": end}


VIEWS = {"chat": chat, "messages": messages, "responses": responses, "contents": contents}
