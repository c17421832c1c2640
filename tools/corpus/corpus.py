"""The second program: what providers send, and what must come of it.

It and Purser are two readings of the same notes (docs/internals/providers.md and the decisions that it names). Neither
may be written from the other: where they differ, one is wrong. TestCorpus in internal/gateway/inference plays the cases.

    python3 tools/corpus/corpus.py                   writes what must come of them to testdata/corpus
    python3 tools/corpus/corpus.py --print answers   prints that, and then what is sent
"""

import json
import pathlib
import sys
import zlib

import answers
import ask
import bill
import pass_on
import read
import requests
import second
import views

HERE = pathlib.Path(__file__).resolve().parents[2] / "internal/gateway/inference/testdata/corpus"
MODELS = {"chat": "gpt-4.1-mini", "responses": "gpt-6.2-sol", "anthropic": "claude-haiku-5-5",
          "google": "gemini-3.5-flash"}
MAX_TOKENS = 400


def is_believed(u, dialect, blocks):
    """Decision 019, of a request of a few words that may use MAX_TOKENS."""
    if dialect == "google" and u and u["output"] == 0 and blocks:
        return False  # C.8: the count was left out
    if u is None or not all(isinstance(n, int) for n in u.values()):
        return False
    if min(u.values()) < 0 or sum(u.values()) == 0 or u["reasoning"] > u["output"]:
        return False
    return u["input"] + u["cached"] + u["cache_write"] < 2000 and u["output"] <= 2 * MAX_TOKENS


def expect(answer, dialect, prices, turn):
    """What an answer is for the clients of each API, and for the ledger."""
    if answer.failed or not answer.end:
        return {"failed": True, "delivered": any(b.get("text") or b["kind"] == "call" for b in answer.blocks)}
    out = {name: view(answer, dialect == "chat") for name, view in views.VIEWS.items()}
    others = [d for d in MODELS if d != dialect]
    other = others[turn % len(others)]
    if again := (second.expect(answer, dialect, dialect, MODELS[dialect]) +
                 second.expect(answer, dialect, other, MODELS[other])):
        out["second"] = again
    if is_believed(answer.usage, dialect, answer.blocks):
        out |= {"usage": answer.usage, "bill": bill.bill(prices[MODELS[dialect]], answer.usage)}
        if answer.end == "stop" and answer.usage["output"] - answer.usage["reasoning"] <= 16:
            said = [b for b in answer.blocks if b.get("text") or b["kind"] == "call"]
            if not said:
                out["bill"] = bill.waive(out["bill"])
            elif dialect != "chat" and all(b["kind"] == "reasoning" for b in said):
                out["chat_bill"] = bill.waive(out["bill"])  # clients of Chat Completions do not see it
    return out


def all_answers():
    prices = bill.read_prices(HERE / "prices.yaml")
    for name, dialect, events, body in answers.all_answers():
        turn = zlib.crc32(name.encode())  # more answers change nothing of this one
        streamed, whole = (expect(a, dialect, prices, turn) for a in read.read(dialect, events, body))
        line = {"name": f"{name}, {dialect}", "want": streamed, **({"whole": whole} if whole != streamed else {})}
        yield line, {"dialect": dialect, "model": MODELS[dialect], "events": events, "body": body}


def wanted(r, bodies):
    """What must come of a request, by route and model; those that get the same stand together."""
    wants = {}
    for route in bodies:
        for model in r.get("models", pass_on.MODELS):
            want = pass_on.expect(r, model, route)
            wants.setdefault(json.dumps(want, sort_keys=True), {"at": [], **want})["at"].append(f"{route} {model}")
    return list(wants.values())


def all_requests():
    for name, r in requests.all_requests():
        r = {"max_tokens": 300, **r}
        bodies = {route: ask.WRITERS[route](r) for route in r.get("only", ask.WRITERS)}
        yield {"name": name, "wants": wanted(r, bodies)}, {"bodies": bodies}
    for name, route, body, r in requests.WRITTEN:
        r = {"max_tokens": 300, "turns": [requests.Q], **r}
        yield {"name": f"{name}, {route}", "wants": wanted(r, [route])}, {"bodies": {route: body}}
    for name, route, body, message, models in requests.REFUSED:
        want = {"at": [f"{route} {model}" for model in models], "refused": "400 " + message}
        yield {"name": f"refused: {name}, {route}", "wants": [want]}, {"bodies": {route: body}}


KINDS = {"answers": all_answers, "requests": all_requests}


def main():
    for kind, cases in KINDS.items():
        if len(sys.argv) > 1 and sys.argv[2] != kind:
            continue
        wants, sents = ([json.dumps(v, separators=(",", ":")) for v in side] for side in zip(*cases()))
        if len(sys.argv) > 1:
            print("\n".join([*wants, "", *sents]))
        else:
            (HERE / f"{kind}.jsonl").write_text("\n".join([*wants, ""]))


main()
