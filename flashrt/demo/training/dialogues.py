"""Whole dialogues: tools, system prompt, turns. The same seed makes the same dialogue anywhere."""

import random
from collections.abc import Callable

from flashrt.demo.training.corpus import corpus
from flashrt.demo.training.dialogue import Dialogue, Json, Task, name_of
from flashrt.demo.training.drills import Drills
from flashrt.demo.training.families import FamilyTasks, families
from flashrt.demo.training.joints import IN_ORDER, RUN_IN_ORDER, RUN_TOGETHER, TOGETHER, joined
from flashrt.demo.training.kinds import Kinds
from flashrt.demo.training.made_up import MadeUp
from flashrt.demo.training.phrases import SHAPES
from flashrt.demo.training.schemas import Dress, decoy
from flashrt.demo.training.smalltalk import CLOSINGS, NO_TOOL, NO_TOOLS, OPENINGS, TALK
from flashrt.demo.training.words import Words

KINDS = list(SHAPES)
OFTEN = ["shell", "shell", "read", "read", "read", "write", "edit", "list"]
LIKE = {"calculate": {"add"}, "add": {"calculate"}, "grep": {"find"}, "find": {"grep"}}
AGENT = ["shell", "read", "write", "edit", "list", "grep", "find", "web", "fetch"]
FAMILY, MADE_UP = 0.5, 0.65
"""Tasks up to these shares are of a hand-written family, and of a tool that nobody has."""

BEFORE = ["Tell me: ", "A question: ", "Hello. ", "One thing: ", "By the way: ", "So: ", "Next. "]
CHOOSE = [
    "Which tool is for which request?", "Name the right tool for each request.",
    "Match tools and requests.", "For every request, the tool that does it:",
]  # fmt: skip
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
AT_LAST = [
    " Tell me the results.", " Report both.", " Then tell me what you got.", "\nTell me what came out.",
    " Finally, tell me what was printed.", "\n\nTell me what you found.", " Say what came back.",
]  # fmt: skip


class Maker:
    """Draws dialogues; `long` is how many characters of reading matter may stand around the task."""

    def __init__(self, seed: str, long: int = 0) -> None:
        self.r = random.Random(seed)
        self.w = Words(self.r)
        self.long = long
        self.cwd = "/" + "/".join(self.w.word() for _ in range(self.r.randint(1, 4)))
        self.kinds, self.made = Kinds(self.w, self.cwd), MadeUp(self.w)
        self.families, self.drills = FamilyTasks(self.w), Drills(self.w)
        self.used: set[str] = set()  # kinds for which a tool is there
        self.d = Dialogue(thinking=self.r.random() < 0.35)

    def dialogue(self) -> Dialogue:
        """One."""
        forms = [self._tasks, self._parts, self._talk, self._none, self._gloss, self._drill]
        weights = [45, 24, 4, 3, 4, 20] if not self.long else [52, 42, 2, 3, 0, 1]
        self.r.choices(forms, weights)[0]()
        self._surround()
        return self.d

    # -- tasks -------------------------------------------------------------------------------------

    def _draw(self) -> Task:
        p = self.r.random()
        if p < FAMILY:
            return self.families.task(self.r.choice(families()))
        if p < MADE_UP:
            return self.made.task()
        return self.kinds.task(self.r.choice(OFTEN if p < 0.84 else KINDS))

    def _several(self, count: int, draw: Callable[[], Task]) -> list[Task]:
        """Tasks of different kinds, whose tools have different names."""
        tasks: list[Task] = []
        for _ in range(count):
            task = draw()
            if self._fits(task.kind) and name_of(task.tool) not in {name_of(t.tool) for t in tasks}:
                self._use(task.kind)
                tasks.append(task)
        return tasks

    def _fits(self, kind: str) -> bool:
        return kind not in self.used

    def _use(self, kind: str) -> None:
        self.used |= {kind} | LIKE.get(kind, set())

    def _tasks(self) -> None:
        """One call a turn, one to eight turns."""
        tasks = self._several(self.r.choice([1, 2, 2, 3, 4, 6, 8]), self._draw)
        self._offer(tasks)
        for task in tasks:
            self._user(self._worded(task))
            self._call([task])
            self._say(task.answer, "I have the result.")

    def _parts(self) -> None:
        """Several calls for one request: one after another, or at once."""
        draw = self.r.choice(
            [self._file_task, self._file_task, self._order, self._draw, self._draw]
        )
        tasks = self._several(self.r.choice([2, 2, 2, 3]), draw)
        self._offer(tasks)
        ordered = self.r.random() < 0.6
        if draw == self._draw or self.r.random() < 0.3:
            text = joined(self.r, [t.ask for t in tasks], IN_ORDER if ordered else TOGETHER)
            self._user(text + self.r.choice(["", "", "", *AT_LAST]))
        else:
            ordered, text = self._run_together([self._quiet(task.ask) for task in tasks], ordered)
            self._user(self._opened(text) + self.r.choice(TELL))
        for group in [[t] for t in tasks] if ordered else [tasks]:
            self._call(group)
        self._say(" ".join(t.answer for t in tasks), "I have all results.")

    def _run_together(self, asks: list[str], ordered: bool) -> tuple[bool, str]:
        """Orders in one sentence; whether one goes behind another."""
        joint = self.r.choice(RUN_IN_ORDER if ordered else RUN_TOGETHER)
        if ordered and len(asks) > 2 and self.r.random() < 0.5:
            return ordered, ", ".join(asks[:-1]) + joint + asks[-1]
        if self.r.random() < 0.2 and len(asks) > 1:
            return True, ", ".join(asks)
        text = joint.join(asks)
        if joint == "\n- " and joint in text:
            text = self.r.choice(["do these:", "two things:", "I need this:"]) + "\n- " + text
        return ordered, text

    def _order(self) -> Task:
        """One that is said as an order: such wordings can be joined."""
        while not (task := self._draw()).order:
            pass
        return task

    def _file_task(self) -> Task:
        """What people give an agent first."""
        kind = self.r.choice(["shell", "shell", "read", "read", "list", "write"])
        while not (task := self.kinds.task(kind)).order:
            pass
        return task

    def _call(self, group: list[Task]) -> None:
        calls = [{"function": {"name": name_of(t.tool), "arguments": t.arguments}} for t in group]
        asks = " and ".join(t.ask.rstrip("?.") for t in group)
        what = "One call does it" if len(group) == 1 else f"{len(group)} calls do it"
        self._answer({"content": "", "tool_calls": calls}, f"The task: {asks}. {what}.")
        for task in group:
            self.d.messages.append({"role": "tool", "content": task.result})

    def _quiet(self, ask: str) -> str:
        return ask[0].lower() + ask[1:].rstrip("?") if ask.endswith("?") else ask

    def _worded(self, task: Task) -> str:
        if task.order:
            return self._opened(task.ask) + self.r.choice(CLOSINGS)
        return task.ask if self.r.random() < 0.9 else self.r.choice(BEFORE) + task.ask

    def _opened(self, ask: str) -> str:
        opening = self.r.choice(OPENINGS)
        if not opening and self.r.random() < 0.6:
            return ask[0].upper() + ask[1:]
        return opening + ask

    # -- other turns -------------------------------------------------------------------------------

    def _talk(self) -> None:
        tools = self.r.random() < 0.6
        for _ in range(self.r.choice([1, 1, 2, 3])):
            if tools or self.r.random() < 0.5:  # trivia would make every short question small talk
                asks, answer = self.r.choice(TALK)
                ask = self.r.choice(asks.split("|"))
            else:
                ask, answer = self.r.choice(corpus()["chat"])
            self._user(ask)
            self._say(answer, "No tool is needed.")
        if tools:
            self._offer([])

    def _none(self) -> None:
        """Nothing fits, or there is nothing."""
        task = self._draw()
        self._user(self._worded(task))
        self._use(task.kind)
        if self.r.random() < 0.5:
            self._say(NO_TOOL, "No tool fits.")
            self._offer([])
        else:
            self._say(NO_TOOLS, "I have no tools.")

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
        """Copying and choosing, without calls."""
        drills = [self.drills.repeat, self.drills.pick, self.drills.words, self.drills.words]
        for _ in range(self.r.randint(1, 3)):
            ask, answer = self.r.choice([*drills, *[self._choose] * len(drills)])()
            self._user(ask)
            self._say(answer, "I look at the text.")

    def _choose(self) -> tuple[str, str]:
        """Requests, and which tool each is for."""
        r = self.r
        self.used = set()
        tasks = self._several(r.randint(3, 8), self._draw)
        listed = r.sample(tasks, len(tasks))
        form = r.choice(["- {}: {}", "{} ({})", "* {} - {}", "{}: {}"])
        tools = [form.format(name_of(t.tool), t.tool["function"]["description"]) for t in listed]
        asks = r.sample(tasks, r.randint(1, len(tasks)))
        lines = [f"{i}. {task.ask}" for i, task in enumerate(asks, 1)]
        ask = r.choice(CHOOSE) + "\n" + "\n".join([*tools, r.choice(["", "Requests:"]), *lines])
        return ask, "\n".join(f"{i}. {name_of(task.tool)}" for i, task in enumerate(asks, 1))

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
        """The tools of the tasks among others, none of which is of their kinds."""
        r = self.r
        tools = {name_of(t.tool): t.tool for t in tasks}
        if r.random() < 0.35:
            for kind in r.sample(AGENT, r.randint(3, len(AGENT))):
                self._beside(tools, kind, self.kinds.tool(kind)[0])
        most = 25 if self.long > 8000 else 8 if self.long else r.choice([1, 3, 6])
        made = any(" " in task.kind for task in tasks)
        for _ in range(r.randint(0, most)):
            p = r.random()
            if made and p < 0.6:
                task = self.made.task()
                self._beside(tools, task.kind, task.tool)
            elif p < 0.75:
                family = r.choice(families())
                self._beside(tools, family.kind, self.families.tool(family, set())[0])
            else:
                kind = r.choice(KINDS)
                self._beside(tools, kind, self.kinds.tool(kind)[0])
        if r.random() < (0.7 if self.long else 0.2):
            for _ in range(r.randint(1, 8 if self.long else 3)):
                tool = decoy(r)
                self._beside(tools, name_of(tool), tool)
        dress = Dress(r)
        self.d.tools = [dress.put_on(tool) for tool in tools.values()]
        r.shuffle(self.d.tools)

    def _beside(self, tools: dict[str, Json], kind: str, tool: Json) -> None:
        if self._fits(kind) and name_of(tool) not in tools:
            self._use(kind)
            tools[name_of(tool)] = tool

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
                    "<env>\n  Working directory: {}\n  Platform: linux\n</env>",
                    "I'm currently working in the directory: {}",
                    "The workspace is {}. Paths are relative to it.",
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
