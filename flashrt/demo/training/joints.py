"""How people put several requests into one: in what stands before, between and behind them.

`#` is the number of the request behind it. Requests that are run together are orders, and begin
small; where whole sentences stand beside one another they may be questions.
"""

import random

RUN_IN_ORDER = [
    " then ", ", then ", " and then ", " and after that ", ". Then ", ". After that, ", "; next, ", "\nThen ",
    " before you ", ", afterwards ", ", and once that is done, ", " and when you have that, ", ", followed by this: ",
    ". When you are done, ", ". Next up, ", "... and then ", ", and only then ", ". With that out of the way, ",
]  # fmt: skip
RUN_TOGETHER = [
    " and ", " and also ", ", and ", "; ", "\n- ", ". Also ", " as well as: ", " plus ", ", and while you are at it ",
    " & ", ". Besides that, ", ", and on top of that ", " and meanwhile ", ". Also please ", " along with that ",
]  # fmt: skip
IN_ORDER = [
    ("First: ", " Then: ", ""), ("First. ", " Next. ", ""), ("", " Then this: ", ""), ("", " Afterwards: ", ""),
    ("#. ", "\n#. ", ""), ("#) ", "\n#) ", ""), ("#) ", " #) ", ""), ("(#) ", " (#) ", ""), ("#: ", "\n#: ", ""),
    ("Start with this: ", " Next: ", ""), ("Start here: ", " Go on with: ", ""), ("Task #: ", "\nTask #: ", ""),
    ("Task # - ", " Task # - ", ""), ("In this order:\n- ", "\n- ", ""), ("One after another: ", " / ", ""),
    ("Do these in turn. ", " ", ""), ("", " When you have the answer: ", ""), ("", " As soon as that is finished: ", ""),
    ("", "\nand then\n", ""), ("", "\n\nWhen done:\n\n", ""), ("", " >> ", ""), ("", " -> ", ""), ("", " => ", " (in this order)"),
    ("Please go through this list.\n#. ", "\n#. ", "\nOne at a time."), ("Part #. ", " Part #. ", ""), ("Job #: ", ", job #: ", ""),
    ("To start: ", " To finish: ", ""), ("Before anything else: ", " Only after it: ", ""), ("", " Later: ", ""), ("", " After this one: ", ""),
    ("", " Follow up with: ", ""), ("I need one thing first. ", " The next one. ", ""),
    ("Let's go step by step. ", " Right after: ", ""), ("", " The moment you have it: ", ""), ("", " Second thing: ", ""),
]  # fmt: skip
TOGETHER = [
    ("", " At the same time: ", ""), ("", " Also: ", ""), ("", " ", ""), ("", "\n", ""), ("", " + ", ""), ("", " and: ", ""),
    ("Two things: ", " And: ", ""), ("Do both. ", " ", ""), ("Both at once: ", " | ", ""), ("All at once: ", " / ", ""),
    ("Together, please: ", " with: ", ""), ("", " Side by side: ", ""), ("", " In the same step: ", ""), ("", " Alongside it: ", ""),
    ("- ", "\n- ", ""), ("* ", "\n* ", "\nAll together."), ("", " While that runs: ", ""), ("Run these side by side:\n", "\n", ""),
    ("Don't wait between these. ", " ", ""), ("", " And as well: ", ""), ("A few things, all independent: ", "; ", ""),
    ("", " (and at once) ", ""), ("", " + ", " (all together)"), ("", " & ", " - at the same time"), ("Batch: ", " || ", ""),
    ("In a single go, ", " and also: ", ""), ("", " I also need this: ", ""), ("", " Another one: ", ""), ("", " Oh, and: ", ""),
]  # fmt: skip


def joined(r: random.Random, parts: list[str], forms: list[tuple[str, str, str]]) -> str:
    """The requests in one of the forms, each a sentence."""
    start, between, end = r.choice(forms)
    text = ""
    for number, part in enumerate(parts, 1):
        mark = (between if number > 1 else start).replace("#", str(number))
        part += "." if part[-1].isalnum() and r.random() < 0.5 else ""
        text += mark + part[0].upper() + part[1:]
    return text + end


# ruff: noqa: E501 - tables of phrases
