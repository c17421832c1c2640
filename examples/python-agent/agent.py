"""An agent with tools and a hard budget: it stops before its next call could exceed it.

    agent.py "What day is it, and how many days are left this year?"

The user connects once, by a code on another screen. Afterwards the tokens are in a file store.
"""

from __future__ import annotations

import ast
import json
import operator
import os
import sys
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

from purser import BudgetError, ConnectAgainError, Connection, DeclinedError, FileTokenStore, Purser, PurserError

MAX_TOKENS = 400  # of one answer
MAX_STEPS = 8
DOLLAR_MC = 100_000_000  # micro-cents


def load_dotenv(path: Path) -> None:
    """Read NAME=value lines. Variables of the environment win."""
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            name, equals, value = line.strip().partition("=")
            if equals and not name.startswith("#"):
                os.environ.setdefault(name.strip(), value.strip().strip("\"'"))


load_dotenv(Path(".env"))
MODEL = os.environ.get("MODEL", "gpt-6-luna")

# Tools. A wrong argument is an answer for the model, not the end of the agent.

OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.USub: operator.neg,
}


def today() -> str:
    """Return the date."""
    return date.today().isoformat()


def calculate(expression: str = "") -> str:
    """Compute an expression of numbers with + - * / and parentheses."""

    def compute(node: ast.AST) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        if isinstance(node, ast.BinOp):
            return OPERATORS[type(node.op)](compute(node.left), compute(node.right))
        if isinstance(node, ast.UnaryOp):
            return OPERATORS[type(node.op)](compute(node.operand))
        raise ValueError("only numbers and + - * /")

    return str(compute(ast.parse(expression[:200], mode="eval").body))


def days_between(first: str = "", last: str = "") -> str:
    """Count the days from one date to another."""
    return str((date.fromisoformat(last) - date.fromisoformat(first)).days)


TOOLS: dict[str, Callable[..., str]] = {"today": today, "calculate": calculate, "days_between": days_between}


def describe_tool(name: str, *parameters: str) -> dict[str, Any]:
    """Return a tool in the form of the request. All parameters are texts."""
    properties = {parameter: {"type": "string"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    description = TOOLS[name].__doc__
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOL_LIST = [
    describe_tool("today"),
    describe_tool("calculate", "expression"),
    describe_tool("days_between", "first", "last"),
]


def use_tool(call: Any) -> dict[str, Any]:
    """Run a tool that the model asks for, and return the message with its result."""
    name = call["function"]["name"]
    try:
        arguments = json.loads(call["function"]["arguments"] or "{}")
        result = TOOLS[name](**arguments)
    except Exception as error:
        result = f"error: {error}"
    print(f"tool {name}: {result}")
    return {"role": "tool", "tool_call_id": call["id"], "content": result}


# The loop


def run(connection: Connection, task: str, budget_mc: int) -> bool:
    """Work on a task. Return False if the budget, or the user's spend cap, ended it early."""
    messages: list[Any] = [{"role": "user", "content": task}]
    spent_mc = 0
    for _ in range(MAX_STEPS):
        body = {"messages": messages, "tools": TOOL_LIST, "max_tokens": MAX_TOKENS}
        estimate = connection.estimate(MODEL, body)
        largest_mc = estimate.largest.user_charge_mc  # the call costs no more than this
        if spent_mc + largest_mc > budget_mc:
            print(f"stopped: the next call may cost {dollars(largest_mc)}, and {dollars(budget_mc - spent_mc)} is left")
            return False
        try:
            answer = connection.call(MODEL, body)
        except BudgetError as error:
            explain_refusal(error)
            return False
        spent_mc += answer.bill.user_charge_mc
        messages.append(answer.message)
        if not answer.tool_calls:
            print(answer.text)
            print(f"spent {dollars(spent_mc)} of {dollars(budget_mc)}; your cap leaves "
                  f"{answer.bill.allocation_remaining_display}")
            return True
        messages.extend(use_tool(call) for call in answer.tool_calls)
    print(f"stopped: {MAX_STEPS} calls were not enough")
    return False


def explain_refusal(error: BudgetError) -> None:
    """Say what a 402 means and what helps. Nothing was charged."""
    print(f"refused ({error.code}): {error.message}")
    fits = error.details.get("max_tokens_that_fit")
    if fits:
        print(f"an answer of at most {fits} tokens would fit")
    if error.increase_url:
        print(f"raise the spend cap at {error.increase_url}")


def dollars(amount_mc: int) -> str:
    """Return micro-cents as text."""
    return f"${Decimal(amount_mc) / DOLLAR_MC:f}"


# Connecting


def connect(purser: Purser, saved: Path) -> Connection:
    """Return the user's connection. The first time, the user approves it on a page."""
    if saved.exists():
        connection = purser.connection(saved.read_text("utf-8"))
        try:
            connection.access_token()
            return connection
        except ConnectAgainError:
            print("your connection has ended")
    device = purser.device.start(allocation_mc=DOLLAR_MC)
    print(f"Open {device.verification_uri_complete}\nand check that it shows {device.user_code}", flush=True)
    connection = purser.device.wait(device)
    saved.write_text(str(connection.connection_id), "utf-8")
    return connection


def main() -> int:
    task = " ".join(sys.argv[1:]) or "What day is it, and how many days are left this year?"
    budget_mc = int(Decimal(os.environ.get("BUDGET_USD", "0.05")) * DOLLAR_MC)
    data = Path(os.environ.get("DATA", "data"))
    tokens = FileTokenStore(data)
    secret = os.environ.get("CLIENT_SECRET") or None
    base_url = os.environ.get("BASE_URL", "http://localhost:8080")
    with Purser(base_url, os.environ["CLIENT_ID"], secret, tokens=tokens) as purser:
        try:
            return 0 if run(connect(purser, data / "connection"), task, budget_mc) else 3
        except DeclinedError:
            print("you declined; nothing was spent")
        except PurserError as error:
            print(f"{error}; what to do: {error.action}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
