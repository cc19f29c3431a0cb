"""Short exercises in copying and picking, without tools."""

import json

from flashrt.demo.training.words import Words

Drill = tuple[str, str]
"""What is asked, and the answer."""

FORMS = {
    "one per line": "{}\n", "as a list": "- {}\n", "in quotes": '"{}" ', "in backticks": "`{}` ",
    "separated by commas": "{}, ", "joined by slashes": "{}/",
    "as parameters": "<parameter={}>\n", "with dots between": "{}.",
}  # fmt: skip


class Drills:
    """Draws exercises."""

    def __init__(self, w: Words) -> None:
        self.w, self.r = w, w.r

    def repeat(self) -> Drill:
        """A line as it is."""
        text = self.w.sentence()
        form = self.r.choice(["Repeat this: {}", "Say exactly: {}", "Copy: {}", 'Echo "{}"'])
        return form.format(text), text

    def words(self) -> Drill:
        """Any words in another arrangement: they are cut into other tokens there."""
        words = self.w.words(4, 24).split()
        how = self.r.choice(list(FORMS))
        text = "".join(FORMS[how].format(word) for word in words).rstrip(" ,/.\n")
        order = self.r.choice(["Write these words {}:", "These words {}, please:", "Give me {}:"])
        return f"{order.format(how)} {' '.join(words)}", text

    def pick(self) -> Drill:
        """One of several values by its name."""
        r, w = self.r, self.w
        draws = [w.code, w.number, w.person, w.date, w.word, w.sentence]
        pairs = {w.word(): r.choice(draws)() for _ in range(r.randint(2, 8))}
        key = r.choice(list(pairs))
        listed = "\n".join(f"{k}: {v}" for k, v in pairs.items())
        if r.random() < 0.5:
            listed = json.dumps(pairs, ensure_ascii=False)
        ask, answer = r.choice(
            [
                (f"{listed}\n\nWhat is {key}?", f"{key} is {pairs[key]}."),
                (f"What is the value of {key}?\n{listed}", f"{key} is {pairs[key]}."),
                (f"My name is {(name := w.person())}. What is my name?", f"Your name is {name}."),
            ]
        )
        return ask, answer
