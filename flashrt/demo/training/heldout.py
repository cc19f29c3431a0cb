"""Held-out tasks: wordings, tools and kinds that the generator never reads. Only `evaluate` does."""

import json
import random
from typing import Any

import attrs

Json = dict[str, Any]


@attrs.frozen
class Held:
    """A task, the call that is right, what the tool then says, and what the answer must hold."""

    kind: str
    ask: str
    tool: Json
    arguments: Json
    result: str
    copied: tuple[str, ...]


# Kind, tool name, description, parameters (name, type, description), wordings, result, copied.
TOOLS: list[tuple[str, str, str, list[tuple[str, str, str]], list[str], str, list[str]]] = [
    ("read", "peek_file", "Gives back everything a text file has in it", [("document", "string", "Which file")], ["I'd love to know what got written down in {file}", "Mind telling me the words inside {file}?", "{file} - what does it have in it?"], "{line}", ["{line}"]),
    ("shell", "console", "Passes one line to the system's shell", [("statement", "string", "The line for the shell")], ["Kindly have the machine perform `{command}`", "`{command}` - go!", "Try `{command}` and let me see what comes back"], "{line}", ["{line}"]),
    ("directory", "enumerate_dir", "Names everything that lies in a directory", [("where", "string", "The directory")], ["Which documents lie around in {folder}?", "I wonder what {folder} has inside", "Name everything below {folder}"], "{file}\n{file2}", ["{file}", "{file2}"]),
    ("write", "persist_text", "Puts a text into a file on the disk", [("destination", "string", "The file"), ("payload", "string", "The text")], ["I want {file} to hold \"{line}\"", "Fill {file} with \"{line}\"", "Let {file} read: \"{line}\""], "stored {file}", ["{file}"]),
    ("weather", "sky_report", "Tells the present weather somewhere", [("spot", "string", "The city")], ["Do people in {city} need an umbrella?", "Any sun over {city} today?", "Is {city} freezing at the moment?"], "{word}, {number} degrees", ["{word}", "{number}"]),
    ("sum", "tally_up", "Gives the sum of two whole numbers", [("one", "integer", "A number"), ("two", "integer", "Another number")], ["{number} and {number2} make how much together?", "Put {number} and {number2} together", "I have {number} apples and get {number2} more. How many?"], "{sum}", ["{sum}"]),
    ("exchange", "swap_currency", "Says what an amount of money is worth in another currency", [("amount", "integer", "How much money"), ("target", "string", "Code of the other currency")], ["How many {currency} do I get for {number} euros?", "{number} euros in {currency}, what would that be?"], "{number2} {currency}", ["{number2}"]),
    ("ride", "hail_driver", "Calls a driver who picks somebody up", [("passenger", "string", "Who is picked up"), ("pickup_time", "string", "When, HH:MM")], ["Have somebody pick up {person} at {clock}", "{person} needs a lift at {clock}"], json.dumps({"driver": "D", "ref": "{code}"}).replace('"D"', '"{person2}"'), ["{code}"]),
    ("library", "borrow_item", "Borrows an item of the library for a reader", [("signature", "string", "Signature of the item"), ("days", "integer", "For how many days")], ["Borrow {code} for {small} days", "I would like to keep {code} for {small} days"], json.dumps({"due": "DATE"}).replace("DATE", "{date}"), ["{date}"]),
    ("thermostat", "regulate_warmth", "Regulates how warm a room shall be", [("zone", "string", "Which room"), ("celsius", "integer", "Degrees wanted")], ["Make the {room} {small} degrees warm", "{small} degrees for the {room}, if you can"], "{room} now aims at {small}", ["{small}"]),
    ("stock", "quote_ticker", "Says what a share costs at the moment", [("ticker", "string", "Ticker symbol")], ["What do they want for one share of {ticker}?", "Where does {ticker} trade?"], json.dumps({"symbol": "T", "last": 0}).replace('"T"', '"{ticker}"').replace("0", "{number}"), ["{number}"]),
    ("newsletter", "subscribe_reader", "Puts somebody on the list of a newsletter", [("mailbox", "string", "The e-mail address"), ("weekly", "boolean", "true: weekly, false: daily")], ["Put {email} on the list, weekly enabled", "{email} wants the newsletter with weekly turned off"], "list entry {code}", ["{code}"]),
    ("roles", "grant_roles", "Gives roles to a member of the staff", [("employee", "string", "Who gets them"), ("roles", "array", "The roles")], ["Give {person} the roles {word} and {word2}", "{person} shall have the roles {word} and {word2}"], "granted under {code}", ["{code}"]),
]  # fmt: skip
JOINTS = {
    "two in order": ["Step one: {} Step two: {}", "{} Once you know: {}", "Begin with this: {} And when that is through: {}"],
    "two at once": ["{} Simultaneously: {}", "Both in one go: {} / {}", "{} + {} (in parallel)"],
}  # fmt: skip
POOLS: dict[str, list[str]] = {
    "file": "harbour.txt plans/q3.md src/lexer.py data/ports.csv NOTES.md etc/relay.conf lib/quay.ts".split(),
    "folder": "assets/icons /opt/relay docs/guide src/parsers backups photos/2031".split(),
    "line": ["The ferry leaves at nine.", "Tuesday is the deadline for Kestrel.", "Buy pears, rye and ink.", "Valve 7 stays shut.", "All 41 lamps were replaced."],
    "command": ["echo kestrel", "echo good day", "uname -r", "ls -l assets", "cat harbour.txt", "echo 'two words'"],
    "city": "Bergen Tallinn Porto Leeds Turin Malmo Galway Split".split(),
    "person": "Sigrid Tomas Bruno Odile Karim Yvonne Matteo Freya".split(),
    "word": "drizzly hazy gusty mild editor auditor keeper pilot".split(),
    "currency": "USD JPY CHF NOK GBP".split(), "room": "kitchen attic study cellar nursery".split(),
    "ticker": "KSTL QUAY FERR LMPX".split(), "clock": "06:40 17:25 21:55 08:05".split(),
    "email": "sigrid@harbour.example bruno@quay.example odile@lamp.example".split(),
}  # fmt: skip


def held_out(count: int, seed: int = 7) -> list[Held]:
    """The tasks, kinds in turn."""
    r = random.Random(seed)
    return [_one(r, *TOOLS[i % len(TOOLS)]) for i in range(count)]


def _one(r: random.Random, kind, name, said, parts, asks, result, copied) -> Held:
    values: dict[str, Any] = {key: r.choice(pool) for key, pool in POOLS.items()}
    for twice in ("file", "person", "word"):
        values[twice + "2"] = r.choice([v for v in POOLS[twice] if v != values[twice]])
    values |= {
        "number": r.randint(2, 9999),
        "number2": r.randint(2, 9999),
        "small": r.randint(5, 30),
    }
    values |= {
        "code": f"KX-{r.randint(100, 9999)}",
        "date": f"2031-0{r.randint(1, 9)}-1{r.randint(0, 9)}",
    }
    values["sum"] = values["number"] + values["number2"]
    ask = r.choice(asks)
    roles = {"document": "file", "statement": "command", "where": "folder", "destination": "file", "payload": "line", "spot": "city", "one": "number", "two": "number2", "amount": "number", "target": "currency", "passenger": "person", "pickup_time": "clock", "signature": "code", "days": "small", "zone": "room", "celsius": "small", "ticker": "ticker", "mailbox": "email", "employee": "person"}  # fmt: skip
    arguments: Json = {p: values[roles[p]] for p, _, _ in parts if p in roles}
    if kind == "newsletter":
        arguments["weekly"] = "enabled" in ask
    if kind == "roles":
        arguments["roles"] = [values["word"], values["word2"]]
    properties = {p: {"type": t, "description": d} for p, t, d in parts}
    schema = {"type": "object", "properties": properties, "required": [p for p, _, _ in parts]}
    tool = {
        "type": "function",
        "function": {"name": name, "description": said, "parameters": schema},
    }
    fill = lambda text: _fill(text, values)  # noqa: E731
    return Held(kind, fill(ask), tool, arguments, fill(result), tuple(map(fill, copied)))


def _fill(text: str, values: dict[str, Any]) -> str:
    for key, value in values.items():
        text = text.replace("{" + key + "}", str(value))
    return text


# ruff: noqa: E501, SIM905 - tables of phrases
