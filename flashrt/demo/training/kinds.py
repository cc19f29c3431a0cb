"""The well-known kinds of tools: shell, files, search, arithmetic, weather, look-ups.

For each: how clients shape the tool, how people ask, what it says, and what to answer.
"""

import json

from flashrt.demo.training.dialogue import Json, Task, function
from flashrt.demo.training.phrases import (
    ASKS,
    FAILED_SHARE,
    MORE,
    QUESTIONS,
    SHAPES,
    failure,
    known,
)
from flashrt.demo.training.words import Words

EMPTY: Json = {"names": [], "says": [], "params": {}}


def described(w: Words, text: str) -> str:
    """A description in one of several manners."""
    low = text[0].lower() + text[1:]
    forms = [
        text,
        text,
        text,
        text + ".",
        f"Tool: {low}",
        f"Use this when the user wants this: {low}.",
        f"{text}. {w.words(3, 8).capitalize()}.",
        f"[{w.made()}] {text}",
    ]
    return w.r.choice(forms)


class Kinds:
    """Draws tasks of the well-known kinds."""

    def __init__(self, w: Words, cwd: str) -> None:
        self.w, self.r, self.cwd = w, w.r, cwd

    def tool(self, kind: str) -> tuple[Json, dict[str, tuple[str, bool]]]:
        """A tool of this kind, and by role the parameter's name and whether it must be given."""
        shapes = SHAPES[kind]
        names, descriptions, parts = shape = self.r.choice(shapes)
        loose = shape is shapes[-1]  # no client's own: any name will do
        more = known()[kind] if loose and self.r.random() < 0.6 else EMPTY
        roles, properties, required = {}, {}, []
        strange = self.r.random() < 0.15  # names that say nothing: the descriptions must be read
        for role, options, type_, texts, needed in parts:
            extra = more["params"].get(role, EMPTY)
            name = self.r.choice(extra["names"] or options.split("|"))
            if strange and role != "abspath" and self.r.random() < 0.5:
                name = self.w.strange()
            if name in properties:
                continue
            text = self.r.choice(extra["says"] or texts.split("|"))
            properties[name] = {"type": type_, "description": text}
            roles[role] = (name, needed)
            if needed:
                required.append(name)
        pick = self.r.choice
        name = self.w.strange() if strange else pick(more["names"] or names.split("|"))
        if loose:
            name = self.w.renamed(name)
        shown = more["says"] or descriptions.split("|") + MORE.get(kind, [])
        tool = function(name, described(self.w, pick(shown)), properties, required)
        return tool, roles

    def task(self, kind: str) -> Task:
        """With fresh values."""
        values, result, answer = getattr(self, f"_{kind}")()
        tool, roles = self.tool(kind)
        form = self.r.choice(self._wordings(kind))
        if self.r.random() < FAILED_SHARE:
            result, answer = failure(self.r)
        given = self._arguments(roles, values)
        order = form[0].islower()
        return Task(form.format(**values), tool, given, result, answer, kind, order)

    def _wordings(self, kind: str) -> list[str]:
        p = self.r.random()
        if p < 0.55:
            return known()[kind]["asks"]
        return QUESTIONS[kind] if p < 0.65 and kind in QUESTIONS else ASKS[kind]

    def _arguments(self, roles: dict[str, tuple[str, bool]], values: Json) -> Json:
        given: Json = {}
        for role, (name, needed) in roles.items():
            value = values.get(role)
            if role == "abspath":
                path = values["path"]
                path = path.removeprefix("./")
                value = path if path.startswith("/") else f"{self.cwd}/{path}"
            elif needed and role == "why":
                value = f"Run {values['command']}"
            elif needed and role == "background":
                value = False
            if value is not None:
                given[name] = value
        return given

    def _lines(self, low: int, high: int) -> list[str]:
        return [self.w.sentence() for _ in range(self.r.randint(low, high))]

    def _shell(self) -> tuple[Json, str, str]:
        w, r = self.w, self.r
        text = r.choice([w.words(1, 4), w.word(), "hi", "hello world", w.code()])
        echo = r.choice([f"echo {text}", f"echo {text}", f"echo '{text}'", f'printf "{text}"'])
        others = [
            "ls -la",
            f"ls {w.folder()}",
            f"cat {w.path()}",
            "git status",
            "git log --oneline",
            "pwd",
            "whoami",
            "date",
            "uname -a",
            f"wc -l {w.path()}",
            f"python {w.file()}",
            f"grep -rn {w.word()} {w.folder()}",
            "df -h",
            "npm test",
            "make",
            "pytest -q",
            f"head -n {r.randint(1, 50)} {w.path()}",
            f"mkdir -p {w.folder()}",
            f"{w.made()} --{w.word()} {w.number()}",
            f"{w.made()} {w.path()}",
            f"find . -name '*.{r.choice(['py', 'js'])}'",
        ]
        if r.random() < 0.5:
            command, lines = echo, [text]
        else:
            command, lines = r.choice(others), self._lines(0, 4)
        out = "\n".join(lines)
        if not lines:
            shown = r.choice(["", "(no output)", "Command finished, no output."])
            return {"command": command}, shown, "The command printed nothing."
        form = r.choice(
            [
                "{}",
                "{}",
                "{}\n",
                "{}\n\nexit code: 0",
                "Exit code: 0\nOutput:\n{}",
                "Command: x\nOutput: {}\nError: (none)\nExit Code: 0",
                "<output>\n{}\n</output>",
                "stdout:\n{}",
            ]
        )
        lead = "The command printed:" if len(lines) > 1 else "The command printed: {}"
        answer = lead.format(out) if len(lines) == 1 else f"{lead}\n{out}"
        return {"command": command}, form.format(out), answer

    def _read(self) -> tuple[Json, str, str]:
        path, lines = self.w.path(), self._lines(1, 5)
        if self.r.random() < 0.25:
            lines[0] = "# " + self.w.words(1, 4).capitalize()
        if self.r.random() < 0.2:
            lines = [f"{self.w.word()} = {self.w.number()}" for _ in lines]
        shown = self.r.choice(
            ["\n".join(lines)] * 3
            + ["\n".join(f"{i}\t{x}" for i, x in enumerate(lines, 1))]
            + ["\n".join(f"{i:05d}| {x}" for i, x in enumerate(lines, 1))]
            + ["\n".join(f"{i}: {x}" for i, x in enumerate(lines, 1))]
            + [
                "<file>\n"
                + "\n".join(f"{i:05d}| {x}" for i, x in enumerate(lines, 1))
                + "\n</file>"
            ]
            + [f"<content>\n{chr(10).join(lines)}\n</content>"]
        )
        text = "\n".join(lines)
        return {"path": path}, shown, f"{path} says:{' ' if len(lines) == 1 else chr(10)}{text}"

    def _write(self) -> tuple[Json, str, str]:
        path, text = self.w.path(), self.w.sentence()
        done = [
            "ok",
            f"Wrote {len(text)} bytes to {path}",
            "File written.",
            '{"ok": true}',
            "Done",
            f"Successfully wrote {path}",
        ]
        return {"path": path, "content": text}, self.r.choice(done), f"I wrote {path}."

    def _edit(self) -> tuple[Json, str, str]:
        path, old, new = self.w.path(), self.w.words(1, 3), self.w.words(1, 3)
        done = [
            "ok",
            f"Edited {path}",
            "1 replacement made",
            f"The file {path} has been updated.",
            "Done",
        ]
        answer = f'I replaced "{old}" with "{new}" in {path}.'
        return {"path": path, "old": old, "new": new}, self.r.choice(done), answer

    def _list(self) -> tuple[Json, str, str]:
        folder = self.r.choice([self.w.folder()] * 5 + [".", "src"])
        names = [self.w.file() for _ in range(self.r.randint(1, 6))]
        shown = self.r.choice(
            [
                "\n".join(names),
                "\n".join(names),
                json.dumps(names),
                "\n".join(f"- {n}" for n in names),
                f"Directory {folder}:\n" + "\n".join(names),
                "\n".join(f"[FILE] {n}" for n in names),
            ]
        )
        return {"folder": folder}, shown, f"{folder} holds: {', '.join(names)}."

    def _grep(self) -> tuple[Json, str, str]:
        pattern, folder = self.w.words(1, 2), self.w.folder()
        hits = [f"{self.w.path()}:{self.r.randint(1, 900)}" for _ in range(self.r.randint(0, 3))]
        shown = "\n".join(f"{hit}: {self.w.word()} {pattern} {self.w.word()}" for hit in hits)
        values = {"pattern": pattern, "folder": folder}
        if not hits:
            return (
                values,
                self.r.choice(["No matches found", "no matches", "[]"]),
                f'"{pattern}" does not occur in {folder}.',
            )
        return values, shown, f'Found "{pattern}" at: {", ".join(hits)}.'

    def _find(self) -> tuple[Json, str, str]:
        pattern = self.r.choice(["*.{}", "**/*.{}", "src/**/*.{}"]).format(
            self.w.file().split(".")[-1]
        )
        if self.r.random() < 0.4:
            pattern = self.w.file()
        names = [self.w.path() for _ in range(self.r.randint(1, 4))]
        return {"pattern": pattern}, "\n".join(names), f"Found: {', '.join(names)}."

    def _calculate(self) -> tuple[Json, str, str]:
        r = self.r
        a, b, c = (r.randint(1, 10 ** r.randint(1, 4)) for _ in range(3))
        op = r.choice("+-*")
        two = r.random() < 0.7
        text = f"{a} {op} {b}" if two else f"({a} {op} {b}) {r.choice('+-*')} {c}"
        if r.random() < 0.2:
            text = text.replace(" ", "")
        out = str(eval(text))
        shown = r.choice([out, out, f"= {out}", f'{{"result": {out}}}', f"Result: {out}"])
        return {"expression": text}, shown, f"{text} is {out}."

    def _add(self) -> tuple[Json, str, str]:
        a, b = (self.r.randint(0, 10 ** self.r.randint(1, 5)) for _ in range(2))
        out = str(a + b)
        return (
            {"a": a, "b": b},
            self.r.choice([out, f'{{"sum": {out}}}']),
            f"{a} plus {b} is {out}.",
        )

    def _weather(self) -> tuple[Json, str, str]:
        city, degrees = self.w.city(), self.r.randint(-20, 42)
        sky = self.r.choice(
            [*"sunny cloudy rainy windy foggy snowy clear stormy humid".split(), self.w.word()]
        )
        shown = self.r.choice(
            [
                f"{sky}, {degrees} °C",
                json.dumps({"city": city, "temp": degrees, "sky": sky}),
                json.dumps({"condition": sky, "temperature_c": degrees}),
                f"{city}: {sky}, {degrees} degrees",
            ]
        )
        return {"city": city}, shown, f"In {city} it is {sky} with {degrees} degrees."

    def _time(self) -> tuple[Json, str, str]:
        city, clock = self.w.city(), self.w.clock()
        shown = self.r.choice(
            [clock, f'{{"time": "{clock}"}}', f"{city} {clock}", f"It is {clock}"]
        )
        return {"city": city}, shown, f"It is {clock} in {city}."

    def _web(self) -> tuple[Json, str, str]:
        query = self.w.topic()
        hits = [
            (self.w.words(2, 5).capitalize(), self.w.url()) for _ in range(self.r.randint(1, 3))
        ]
        if self.r.random() < 0.5:
            shown = json.dumps([{"title": t, "url": u} for t, u in hits])
        else:
            shown = "\n".join(f"{i}. {t} - {u}" for i, (t, u) in enumerate(hits, 1))
        listed = "\n".join(f"- {t}: {u}" for t, u in hits)
        return {"query": query}, shown, f"I found:\n{listed}"

    def _fetch(self) -> tuple[Json, str, str]:
        url, text = self.w.url(), " ".join(self._lines(1, 3))
        shown = self.r.choice([text, f"<p>{text}</p>", f"# {self.w.word()}\n\n{text}"])
        return {"url": url}, shown, f"The page says: {text}"


# ruff: noqa: SIM905 - tables of phrases
