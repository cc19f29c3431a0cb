"""Whole dialogues: tools, system prompt, turns. The same seed makes the same dialogue anywhere."""

import random

from flashrt.demo.training.corpus import corpus
from flashrt.demo.training.dialogue import Dialogue, Json, Task, name_of
from flashrt.demo.training.kinds import Kinds
from flashrt.demo.training.made_up import MadeUp
from flashrt.demo.training.phrases import SHAPES
from flashrt.demo.training.schemas import Dress, decoy
from flashrt.demo.training.smalltalk import CLOSINGS, NO_TOOL, OPENINGS, TALK
from flashrt.demo.training.words import Words

KINDS = list(SHAPES)
OFTEN = ["shell", "shell", "read", "read", "read", "write", "edit", "list"]
LIKE = {"calculate": {"add"}, "add": {"calculate"}, "grep": {"find"}, "find": {"grep"}}
AGENT = ["shell", "read", "write", "edit", "list", "grep", "find", "web", "fetch"]
IN_ORDER = [
    " then ",
    ", then ",
    " and then ",
    " and after that ",
    ". Then ",
    ". After that, ",
    "; next, ",
    "\nThen ",
]
TOGETHER = [" and ", " and also ", ", and ", "; ", "\n- ", ". Also ", " as well as: "]
ROLES = [
    "You are a helpful assistant.",
    "You are a coding agent.",
    "You are {name}, an assistant for {thing}.",
    "Answer briefly.",
    "You help the user with {thing}.",
    "Use the tools when they help.",
]
TELL = [
    "",
    "",
    ", and tell me what came out",
    ", tell me what was printed",
    ", then tell me the result",
    ". Report what you find",
    ", then summarize",
    ". Then tell me what was printed",
    ". Then tell me the results",
    ". Finally, tell me what you got",
    ". In the end, say what came out",
    ", and report both results",
]


class Maker:
    """Draws dialogues; `long` is how many characters of reading matter may stand around the task."""

    def __init__(self, seed: str, long: int = 0) -> None:
        self.r = random.Random(seed)
        self.w = Words(self.r)
        self.long = long
        self.cwd = "/" + "/".join(self.w.word() for _ in range(self.r.randint(1, 4)))
        self.kinds, self.made = Kinds(self.w, self.cwd), MadeUp(self.w)
        self.d = Dialogue(thinking=self.r.random() < 0.35)

    def dialogue(self) -> Dialogue:
        """One."""
        forms = [self._tasks, self._parts, self._talk, self._none, self._gloss, self._drill]
        weights = [45, 27, 6, 6, 9, 7] if not self.long else [60, 34, 2, 4, 0, 0]
        self.r.choices(forms, weights)[0]()
        self._surround()
        return self.d

    # -- tasks -------------------------------------------------------------------------------------

    def _draw(self) -> tuple[str, Task]:
        p = self.r.random()
        if p < 0.45:
            return "", self.made.task()
        kind = self.r.choice(OFTEN if p < 0.75 else KINDS)
        return kind, self.kinds.task(kind)

    def _several(self, count: int) -> list[Task]:
        """Tasks of different tools; a tool that comes twice keeps its shape."""
        seen: dict[str, Task] = {}
        tasks: list[Task] = []
        for _ in range(count):
            kind, task = self._draw()
            if kind and (kind in seen or LIKE.get(kind, set()) & set(seen)):
                continue
            if name_of(task.tool) in {name_of(t.tool) for t in tasks}:
                continue
            seen[kind] = task
            tasks.append(task)
        self.used = set(seen) - {""}
        return tasks

    def _tasks(self) -> None:
        """One call a turn, one to three turns."""
        tasks = self._several(self.r.choice([1, 1, 1, 2, 3]))
        self._offer(tasks)
        for task in tasks:
            self._user(self._worded(task.ask))
            self._call([task])
            self._say(task.answer, "I have the result.")

    def _parts(self) -> None:
        """Several calls for one request: one after another, or at once."""
        tasks = self._several(self.r.choice([2, 2, 2, 3]))
        self._offer(tasks)
        ordered = self.r.random() < 0.55
        asks = [self._quiet(task.ask) for task in tasks]
        joint = self.r.choice(IN_ORDER if ordered else TOGETHER)
        if ordered and len(asks) > 2 and self.r.random() < 0.5:
            text = ", ".join(asks[:-1]) + joint + asks[-1]
        elif self.r.random() < 0.25 and len(tasks) > 1:
            ordered, text = True, ", ".join(asks)
        else:
            text = joint.join(asks)
        if joint == "\n- " and joint in text:
            text = self.r.choice(["do these:", "two things:", "I need this:"]) + "\n- " + text
        self._user(self._opened(text) + self.r.choice(TELL))
        for group in [[t] for t in tasks] if ordered else [tasks]:
            self._call(group)
        self._say(" ".join(t.answer for t in tasks), "I have all results.")

    def _call(self, group: list[Task]) -> None:
        calls = [{"function": {"name": name_of(t.tool), "arguments": t.arguments}} for t in group]
        names = " and ".join(name_of(t.tool) for t in group)
        asks = " and ".join(t.ask.rstrip("?.") for t in group)
        self._answer({"content": "", "tool_calls": calls}, f"The task: {asks}. I call {names}.")
        for task in group:
            self.d.messages.append({"role": "tool", "content": task.result})

    def _quiet(self, ask: str) -> str:
        return ask[0].lower() + ask[1:].rstrip("?") if ask.endswith("?") else ask

    def _worded(self, ask: str) -> str:
        if ask.endswith("?"):
            return ask if self.r.random() < 0.8 else "Tell me: " + ask
        return self._opened(ask) + self.r.choice(CLOSINGS)

    def _opened(self, ask: str) -> str:
        opening = self.r.choice(OPENINGS)
        if not opening and self.r.random() < 0.6:
            return ask[0].upper() + ask[1:]
        return opening + ask

    # -- other turns -------------------------------------------------------------------------------

    def _talk(self) -> None:
        for _ in range(self.r.choice([1, 1, 2, 3])):
            if self.r.random() < 0.6:
                asks, answer = self.r.choice(TALK)
                ask = self.r.choice(asks.split("|"))
            else:
                ask, answer = self.r.choice(corpus()["chat"])
            self._user(ask)
            self._say(answer, "No tool is needed.")
        if self.r.random() < 0.6:
            self._offer([])

    def _none(self) -> None:
        """Nothing fits."""
        task = self.made.task()
        self._user(self._worded(task.ask))
        self._say(NO_TOOL, "No tool fits.")
        self.used = set()
        if self.r.random() < 0.8:
            self._offer([])

    def _gloss(self) -> None:
        for _ in range(self.r.randint(1, 4)):
            word, text = self.r.choice(corpus()["glosses"])
            form = self.r.choice(
                [
                    "What is a {}?",
                    "What does {} mean?",
                    "Define {}.",
                    "Explain the word {}",
                    "What is {}?",
                    "Meaning of {}?",
                    "Tell me what {} means.",
                ]
            )
            self._user(form.format(word))
            self._say(f"{word.capitalize()}: {text}.", "I know this word.")

    def _drill(self) -> None:
        """Copying and picking, without tools."""
        r, w = self.r, self.w
        for _ in range(r.randint(1, 3)):
            text = w.sentence()
            pairs = {
                w.made(): r.choice([w.code, w.number, w.person, w.date])()
                for _ in range(r.randint(2, 8))
            }
            key = r.choice(list(pairs))
            listed = "\n".join(f"{k}: {v}" for k, v in pairs.items())
            ask, answer = r.choice(
                [
                    (f"Repeat this: {text}", text),
                    (f"Say exactly: {text}", text),
                    (f"{listed}\n\nWhat is {key}?", f"{key} is {pairs[key]}."),
                    (f"What is the value of {key}?\n{listed}", f"{key} is {pairs[key]}."),
                    (f"What is the last line of this?\n{listed}", listed.splitlines()[-1]),
                    (
                        f"My name is {(name := w.person())}. What is my name?",
                        f"Your name is {name}.",
                    ),
                ]
            )
            self._user(ask)
            self._say(answer, "I look at the text.")

    # -- messages ----------------------------------------------------------------------------------

    def _user(self, text: str) -> None:
        r = self.r
        p = r.random()
        if p < 0.05:
            text = f"<system-reminder>\n{self.w.sentence()}\n</system-reminder>\n{text}"
        elif p < 0.1:
            text = f"<environment_context>\n  <cwd>{self.cwd}</cwd>\n  <shell>bash</shell>\n</environment_context>\n\n{text}"
        elif p < 0.12:
            self.d.messages.append(
                {"role": "user", "content": f"Today is {self.w.date()}. {self.w.sentence()}"}
            )
        self.d.messages.append({"role": "user", "content": text.strip()})

    def _say(self, text: str, thought: str) -> None:
        self._answer({"content": text.strip()}, thought)

    def _answer(self, message: Json, thought: str) -> None:
        if self.d.thinking:
            message = {**message, "reasoning_content": thought}
        self.d.messages.append({"role": "assistant", **message})

    # -- what stands around ------------------------------------------------------------------------

    def _offer(self, tasks: list[Task]) -> None:
        """The tools of the tasks among others."""
        r = self.r
        tools = {name_of(t.tool): t.tool for t in tasks}
        banned = set(getattr(self, "used", ())) | {
            k for u in getattr(self, "used", ()) for k in LIKE.get(u, ())
        }
        if r.random() < 0.35:
            for kind in r.sample(AGENT, r.randint(3, len(AGENT))):
                if kind not in banned:
                    self._add(tools, self.kinds.tool(kind)[0])
                    banned.add(kind)
        most = 25 if self.long > 8000 else 8 if self.long else 4
        for _ in range(r.randint(0, most)):
            kind = r.choice(KINDS)
            if r.random() < 0.35 and kind not in banned and not LIKE.get(kind, set()) & banned:
                self._add(tools, self.kinds.tool(kind)[0])
                banned.add(kind)
            else:
                self._add(tools, self.made.task().tool)
        if r.random() < (0.7 if self.long else 0.25):
            for _ in range(r.randint(1, 8 if self.long else 3)):
                self._add(tools, decoy(r))
        dress = Dress(r)
        self.d.tools = [dress.put_on(tool) for tool in tools.values()]
        r.shuffle(self.d.tools)

    def _add(self, tools: dict[str, Json], tool: Json) -> None:
        tools.setdefault(name_of(tool), tool)

    def _surround(self) -> None:
        """A system prompt, and reading matter in it, in the tools and before the question."""
        r = self.r
        for tool in self.d.tools if self.long else []:
            if r.random() < 0.5:
                tool["function"]["description"] += "\n" + self._matter(
                    r.randint(50, self.long // 30 + 100)
                )
        needs_cwd = any(self.cwd in str(m.get("tool_calls")) for m in self.d.messages)
        if not self.long and not needs_cwd and r.random() < 0.35:
            return
        parts = [r.choice(ROLES).format(name=self.w.person(), thing=self.w.topic())]
        left = self.long
        while left > 0:
            size = r.randint(300, 3000)
            parts.append(
                f"{r.choice(['# ', '## ', ''])}{self.w.words(1, 3).capitalize()}\n{self._matter(size)}"
            )
            left -= size
        if needs_cwd or r.random() < 0.3:
            line = r.choice(
                [
                    "Working directory: {}",
                    "Current working directory: {}",
                    "<cwd>{}</cwd>",
                    "You are in the folder {}",
                    "cwd: {}",
                ]
            )
            parts.insert(r.randint(0, len(parts)), line.format(self.cwd))
        role = {"role": "system", "content": "\n\n".join(parts)}
        self.d.messages.insert(0, role)

    def _matter(self, size: int) -> str:
        r = self.r
        if r.random() < 0.2:
            lines = [f"- {self.w.sentence()}" for _ in range(size // 40 + 1)]
            return "\n".join(lines)
        text = r.choice(corpus()["code" if r.random() < 0.2 else "prose"])
        at = r.randrange(max(1, len(text) - size))
        return text[at : at + size].strip()


# ruff: noqa: E501 - tables of phrases
