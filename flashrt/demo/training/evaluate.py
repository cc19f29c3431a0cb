"""Grades a checkpoint on held-out tasks: `python -m flashrt.demo.training.evaluate FOLDER`.

Every task goes through the server's own renderer and the real engine, greedily: first the call,
then, behind the right call and the tool's result, the answer. Prints a table for the model card.
"""

import argparse
import json
import math
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import attrs
import torch

from flashrt.chat.render import Renderer
from flashrt.chat.request import AgentRequest
from flashrt.chat.template import Template
from flashrt.chat.tokenizer import Tokenizer
from flashrt.demo.training.corpus import corpus
from flashrt.demo.training.heldout import JOINTS, TOOLS, Held, held_out
from flashrt.engine.hybrid import HybridEngine
from flashrt.engine.protocol import SamplingParams

NEW_MAX = 200
FUNCTION = re.compile(r"<function=([^>]+)>\n(.*?)</function>", re.S)
PARAMETER = re.compile(r"<parameter=([^>]+)>\n(.*?)\n</parameter>", re.S)
Json = dict[str, Any]


@attrs.define
class Rates:
    """Shares of what was right, by name."""

    right: dict[str, int] = attrs.field(factory=lambda: defaultdict(int))
    of: dict[str, int] = attrs.field(factory=lambda: defaultdict(int))

    def note(self, name: str, right: int, of: int = 1) -> None:
        """Count."""
        self.right[name] += right
        self.of[name] += of

    def table(self) -> str:
        """As Markdown."""
        rows = [f"| {n} | {self.right[n] / of:.1%} | {of} |" for n, of in self.of.items() if of]
        return "\n".join(["| what | share | of |", "| --- | --- | --- |", *rows])


@attrs.define
class Said:
    """An answer of the model."""

    thoughts: str
    text: str
    ended: bool


class Grader:
    """Asks one checkpoint."""

    def __init__(self, folder: Path, threads: int, dtype: torch.dtype, longest: int) -> None:
        self.tokenizer = Tokenizer.load(folder)
        self.renderer = Renderer(
            self.tokenizer,
            Template.load(folder, self.tokenizer.control, self.tokenizer.named_tokens),
        )
        self.engine = HybridEngine.load(
            folder, dtype=dtype, max_seq=longest, threads=threads, progress=False
        )
        stops = (self.tokenizer.encode("<|im_end|>")[0], self.tokenizer.encode("<|endoftext|>")[0])
        self.stops = frozenset(stops)
        self.rates = Rates()

    def say(self, messages: list[Json], tools: list[Json], thinking: bool, depth: int = 3) -> Said:
        """The greedy answer; drafts are counted by position."""
        request = AgentRequest(
            model="demo",
            messages=tuple(messages),
            tools=tuple(tools),
            template_args={"enable_thinking": thinking},
        )
        self.engine.reset()
        list(self.engine.prefill(list(self.renderer.render(request))))
        params = SamplingParams(stop_ids=self.stops, draft_tokens=depth)
        ids: list[int] = []
        for chunk in self.engine.decode(params):
            ids += chunk.tokens
            if chunk.drafter == "mtp":
                for place in range(chunk.drafted):
                    # A draft is tried only where all before it have stayed.
                    if len(chunk.tokens) > place:
                        self.rates.note(f"MTP draft {place + 1}", len(chunk.tokens) > place + 1)
            if len(ids) >= NEW_MAX:
                break
        ended = bool(ids) and ids[-1] in self.stops
        text = self.tokenizer.decode(ids[:-1] if ended else ids)
        thoughts, mark, rest = text.partition("</think>") if thinking else ("", "", text)
        return Said(thoughts.strip(), rest.strip() if mark or not thinking else text, ended)

    def request(
        self, ask: str, steps: list[list[Held]], others: list[Json], system: str, thinking: bool
    ) -> tuple[bool, bool]:
        """What is asked for takes the calls of `steps`, those of one step at once.

        Whether all calls were right, each behind right ones, and whether the answer holds all that
        it must copy.
        """
        tasks = [task for step in steps for task in step]
        tools = [*others[: len(others) // 2], *(t.tool for t in tasks), *others[len(others) // 2 :]]
        messages: list[Json] = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": ask})
        right = True
        for step in steps:
            said = self._turn(messages, tools, thinking)
            wanted = [(_name(task), _texts(task.arguments)) for task in step]
            if calls_in(said.text) != wanted:
                right = False
                self._miss(ask, said.text)
            messages += _called(step, said.thoughts if thinking else None)
        answer = self._turn(messages, tools, thinking)
        copied = all(part in answer.text for task in tasks for part in task.copied)
        if not copied:
            self._miss([task.copied for task in tasks], answer.text)
        return right, copied

    def _turn(self, messages: list[Json], tools: list[Json], thinking: bool) -> Said:
        said = self.say(messages, tools, thinking)
        self.rates.note("turns ended by themselves", said.ended)
        if thinking:
            self.rates.note("thought when asked to", bool(said.thoughts))
        return said

    def note(self, group: str, right: bool, copied: bool) -> None:
        """Count a request."""
        self.rates.note(f"{group}: calls right", right)
        self.rates.note(f"{group}: answers copied", copied)

    def _miss(self, asked: object, text: str) -> None:
        if self.show:
            print(f"MISS {asked!r} -> {text!r}", flush=True)

    show = False


def _name(task: Held) -> str:
    return str(task.tool["function"]["name"])


def _called(step: list[Held], thoughts: str | None) -> list[Json]:
    """The right calls of a step, and their results."""
    functions = [{"name": _name(t), "arguments": json.dumps(t.arguments)} for t in step]
    calls = [{"id": f"c{i}", "type": "function", "function": f} for i, f in enumerate(functions)]
    message: Json = {"role": "assistant", "content": "", "tool_calls": calls}
    if thoughts is not None:
        message["reasoning_content"] = thoughts
    results = [
        {"role": "tool", "tool_call_id": f"c{i}", "content": task.result}
        for i, task in enumerate(step)
    ]
    return [message, *results]


def calls_in(text: str) -> list[tuple[str, dict[str, str]]]:
    """The calls, values as written; JSON without regard to blanks."""
    return [
        (name, dict(map(_pair, PARAMETER.findall(body)))) for name, body in FUNCTION.findall(text)
    ]


def _pair(found: tuple[str, str]) -> tuple[str, str]:
    name, text = found
    try:
        value = json.loads(text)
    except ValueError:
        return name, text
    return name, json.dumps(value) if isinstance(value, list | dict) else text


def _texts(arguments: Json) -> dict[str, str]:
    return {n: v if isinstance(v, str) else json.dumps(v) for n, v in arguments.items()}


def grade(grader: Grader, counts: dict[str, int], long_tokens: int) -> Rates:
    """As many requests of each group as `counts` says; the groups are those of GROUPS."""
    offered = {_name(task): task.tool for task in held_out(len(TOOLS))}

    def beside(*tasks: Held) -> list[Json]:
        mine = {_name(task) for task in tasks}
        return [tool for name, tool in offered.items() if name not in mine]

    for i, task in enumerate(held_out(counts["short"])):
        others = beside(task)[i % 5 : i % 5 + i % 7]
        found = grader.request(task.ask, [[task]], others, "", i % 4 == 3)
        grader.note("short", *found)
        grader.note(f"short, {task.kind}", *found)
    for group in ("two in order", "two at once"):
        tasks = held_out(2 * counts[group], seed=9)
        for i, (first, second) in enumerate(zip(tasks[::2], tasks[1::2], strict=True)):
            ask = JOINTS[group][i % len(JOINTS[group])].format(first.ask, second.ask)
            steps = [[first], [second]] if group == "two in order" else [[first, second]]
            others = beside(first, second)[: i % 4]
            grader.note(group, *grader.request(ask, steps, others, "", i % 4 == 3))
    text = "\n\n".join(corpus()["prose"])
    for i, task in enumerate(held_out(counts["long"], seed=8)):
        start = 40_000 * (i + 1) % (len(text) - 80_000)
        ids = grader.tokenizer.encode_text(text[start : start + 80_000])[:long_tokens]
        system = grader.tokenizer.decode(ids)
        found = grader.request(task.ask, [[task]], beside(task), system, False)
        grader.note(f"behind {long_tokens} tokens", *found)
    return grader.rates


GROUPS = {"short": 200, "two in order": 26, "two at once": 26, "long": 52}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument("--part", type=float, default=1.0, help="of the tasks of each group")
    parser.add_argument("--long-tokens", type=int, default=12_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="float32", help="as the server on a CPU")
    parser.add_argument("--misses", action="store_true", help="show what went wrong")
    o = parser.parse_args()
    grader = Grader(o.folder, o.threads, getattr(torch, o.dtype), o.long_tokens + 8000)
    grader.show = o.misses
    counts = {group: math.ceil(GROUPS[group] * o.part) * (group in o.groups) for group in GROUPS}
    print(grade(grader, counts, o.long_tokens).table())


if __name__ == "__main__":
    main()
