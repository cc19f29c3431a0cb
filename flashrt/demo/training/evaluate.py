"""Grades a checkpoint on held-out tasks: `python -m flashrt.demo.training.evaluate FOLDER`.

Every task goes through the server's own renderer and the real engine, greedily: first the call,
then, behind the right call and the tool's result, the answer. Prints a table for the model card.
"""

import argparse
import json
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
from flashrt.demo.training.heldout import Held, held_out
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

    def task(self, task: Held, others: list[Json], system: str, thinking: bool, group: str) -> None:
        """One task of two turns."""
        tools = [*others[: len(others) // 2], task.tool, *others[len(others) // 2 :]]
        messages: list[Json] = [{"role": "system", "content": system}] if system else []
        messages.append({"role": "user", "content": task.ask})
        said = self.say(messages, tools, thinking)
        wanted = [(str(task.tool["function"]["name"]), _texts(task.arguments))]
        right = calls_in(said.text) == wanted
        self.rates.note(f"{group}: calls right", right)
        if not right and self.show:
            print(f"MISS {task.kind}: {task.ask!r} -> {said.text!r}", flush=True)
        self._ended(said, thinking)
        name = task.tool["function"]["name"]
        function = {"name": name, "arguments": json.dumps(task.arguments)}
        call = {"id": "c1", "type": "function", "function": function}
        before: Json = {"role": "assistant", "content": "", "tool_calls": [call]}
        if thinking:
            before["reasoning_content"] = said.thoughts
        result = {"role": "tool", "tool_call_id": "c1", "content": task.result}
        answer = self.say([*messages, before, result], tools, thinking)
        copied = all(part in answer.text for part in task.copied)
        self.rates.note(f"{group}: answers copied", copied)
        if not copied and self.show:
            print(f"MISS answer {task.copied}: {answer.text!r}", flush=True)
        self._ended(answer, thinking)

    show = False

    def _ended(self, said: Said, thinking: bool) -> None:
        self.rates.note("turns ended by themselves", said.ended)
        if thinking:
            self.rates.note("thought when asked to", bool(said.thoughts))


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


def grade(grader: Grader, count: int, long_count: int, long_tokens: int) -> Rates:
    """Short tasks without and with thinking, then tasks behind a long system prompt."""
    tasks = held_out(count)
    others = {t.tool["function"]["name"]: t.tool for t in held_out(26)}
    for i, task in enumerate(tasks):
        mine = task.tool["function"]["name"]
        beside = [tool for name, tool in others.items() if name != mine][i % 5 : i % 5 + i % 7]
        grader.task(task, beside, "", i % 4 == 3, "short")
        grader.rates.note(f"kind {task.kind}: both", 0, 0)
    text = "\n\n".join(corpus()["prose"])
    for i, task in enumerate(held_out(long_count, seed=8)):
        mine = task.tool["function"]["name"]
        beside = [tool for name, tool in others.items() if name != mine]
        start = 40_000 * (i + 1) % (len(text) - 80_000)
        prompt = text[start : start + 80_000]
        ids = grader.tokenizer.encode_text(prompt)[:long_tokens]
        grader.task(task, beside, grader.tokenizer.decode(ids), False, f"{long_tokens} tokens")
    return grader.rates


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--long-count", type=int, default=26)
    parser.add_argument("--long-tokens", type=int, default=12_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--misses", action="store_true", help="show what went wrong")
    o = parser.parse_args()
    grader = Grader(o.folder, o.threads, getattr(torch, o.dtype), o.long_tokens + 8000)
    grader.show = o.misses
    print(grade(grader, o.count, o.long_count, o.long_tokens).table())


if __name__ == "__main__":
    main()
