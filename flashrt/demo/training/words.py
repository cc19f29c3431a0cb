"""Random words, names, paths, sentences and numbers, all drawn from one generator of numbers."""

import json
import random
import re
from functools import cache

from flashrt.demo import DEMO_PATH
from flashrt.demo.training.corpus import corpus

COMMON = """the a one some old new red blue green small large first last next good bad open quiet cold
warm file line data test note list name time day work code build server model token user report
water stone river house garden road bridge market winter summer morning evening letter number
budget meeting project release version change error fix check result window table paper music
north south light cloud forest engine orange silver golden broken simple ready empty hidden""".split()
ONSET = "b c d f g h j k l m n p r s t v w z br ch dr fl gr kr pl sh st tr".split()
VOWEL = "a e i o u ai ea oo".split()
CODA = ["", "", "n", "r", "s", "l", "t", "m", "nd", "sk"]
EXTENSIONS = "txt md py json csv log toml yaml c rs js ts html sh ini cfg go java sql xml".split()
KNOWN_FILES = """README.md package.json Makefile main.py setup.py src/index.ts LICENSE notes.txt
todo.txt pyproject.toml Dockerfile .gitignore config.yaml docs/index.md CHANGELOG.md app.py
Cargo.toml src/main.rs requirements.txt tests/test_app.py index.html""".split()
CITIES = """Paris London Berlin Madrid Rome Vienna Prague Oslo Cairo Tokyo Delhi Lima Quito Dublin
Lisbon Warsaw Athens Boston Chicago Seattle Denver Austin Toronto Sydney Nairobi Seoul Bangkok
Helsinki Geneva Zurich Munich Hamburg Lyon Porto Krakow Osaka Kyoto Mumbai Jakarta""".split()
PEOPLE = """Anna Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Maria Nina Oscar Paul Rosa
Sam Tina Victor Wendy Yusuf Zoe Amir Chen Priya Diego Fatima Hiro Ingrid Omar Lena""".split()
COUNTRIES = """France Spain Italy Germany Poland Norway Japan China India Brazil Chile Peru Kenya
Egypt Greece Ireland Iceland Canada Mexico Cuba Turkey Portugal Austria Sweden Finland Vietnam""".split()
LANGUAGES = (
    "English French German Spanish Italian Dutch Polish Welsh Greek Latin Hindi Arabic".split()
)
COLORS = "red green blue yellow black white pink orange purple brown grey silver gold teal".split()
WEEKDAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December".split()
)
AFFIXES = (
    "my do tool v2 fn api get run the util ext new std op x local remote user sys task".split()
)
SPACE = "\u0120"
"""How a byte-level vocabulary writes a blank."""

TOPICS = "rivers stars bread bridges bees castles trains salt glass wool maps clocks tea".split()


@cache
def vocabulary() -> list[str]:
    """Words that are one token behind a space. Behind anything else most are cut into several, and
    to copy them there a model must have learnt, for each, how it is spelt."""
    tokens = json.loads((DEMO_PATH / "tokenizer.json").read_text(encoding="utf-8"))
    marked = (token for token in tokens["model"]["vocab"] if token[0] == SPACE)
    return [token[1:] for token in marked if re.fullmatch("[A-Za-z]{2,}", token[1:])]


@cache
def natural() -> tuple[list[str], list[str]]:
    """Words and short lines of real text, so that whatever a user writes has been copied before."""
    found = corpus()
    text = "\n".join(found["prose"] + found["code"])
    words = set(re.findall(r"\b[A-Za-z][A-Za-z0-9_]{1,14}\b", text)) | {
        w for w, _ in found["glosses"]
    }
    lines = [line.strip() for line in text.splitlines() if 12 <= len(line.strip()) <= 70]
    plain = [line for line in lines if not re.search(r"[\"`<>{}|\\]|::|^\.\.", line)]
    glosses = [text for _, text in found["glosses"] if len(text) <= 70 and '"' not in text]
    return sorted(words), plain + glosses


class Words:
    """Draws from `r`."""

    def __init__(self, r: random.Random) -> None:
        self.r = r

    def made(self) -> str:
        """A word that nobody has seen."""
        r = self.r
        return "".join(
            r.choice(ONSET) + r.choice(VOWEL) + r.choice(CODA) for _ in range(r.randint(1, 3))
        )

    def word(self) -> str:
        """A word."""
        p = self.r.random()
        if p < 0.25:
            return self.made()
        word = self.r.choice(COMMON if p < 0.35 else natural()[0] if p < 0.6 else vocabulary())
        case = self.r.random()
        return word.upper() if case < 0.04 else word.capitalize() if case < 0.1 else word

    def strange(self) -> str:
        """A name for a tool or a parameter that tells nothing."""
        r = self.r
        if r.random() < 0.4:
            return self.made()
        return r.choice(["{}_{}", "{}-{}", "{}{}"]).format(self.word(), self.made())

    def renamed(self, name: str) -> str:
        """A tool's or parameter's name, often one that nobody else has: names must be read."""
        r = self.r
        if (p := r.random()) < 0.4:
            return name
        parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+", name) or [name]
        if p < 0.85:
            more = r.choice(AFFIXES) if r.random() < 0.4 else self.word().lower()
            parts.insert(r.choice([0, len(parts)]), more)
        joint = r.choice(["_", "_", "_", "-", "", "Camel", "Pascal", "."])
        if joint in ("Camel", "Pascal"):
            text = "".join(part.capitalize() for part in parts)
            return text if joint == "Pascal" else text[0].lower() + text[1:]
        return joint.join(part.lower() for part in parts)

    def words(self, low: int, high: int) -> str:
        """Several."""
        return " ".join(self.word() for _ in range(self.r.randint(low, high)))

    def file(self) -> str:
        """A file's name."""
        stem = self.word()
        if self.r.random() < 0.35:
            stem += self.r.choice("_-.") + self.word()
        if self.r.random() < 0.2:
            stem += str(self.r.randint(0, 2030))
        if self.r.random() < 0.1:
            stem = stem.upper()
        return f"{stem}.{self.r.choice(EXTENSIONS)}"

    def folder(self) -> str:
        """A folder's relative or absolute path."""
        path = "/".join(self.word() for _ in range(self.r.randint(1, 3)))
        return self.r.choice(["", "", "", "", "/", "./", "/home/", "/var/"]) + path

    def path(self) -> str:
        """A file's path."""
        p = self.r.random()
        if p < 0.15:
            return self.r.choice(KNOWN_FILES)
        return self.file() if p < 0.5 else f"{self.folder()}/{self.file()}"

    def sentence(self) -> str:
        """A line of text that means nothing."""
        if self.r.random() < 0.4:
            return self.r.choice(natural()[1])
        parts = self.words(3, 9).split()
        if self.r.random() < 0.3:
            parts.insert(self.r.randrange(len(parts)), self.number())
        if self.r.random() < 0.1:
            parts.insert(self.r.randrange(len(parts)), self.code())
        return " ".join(parts).capitalize() + self.r.choice([".", ".", ".", "!", ""])

    def number(self) -> str:
        """A decimal integer."""
        return str(self.r.randint(0, 10 ** self.r.randint(1, 5)))

    def code(self) -> str:
        """An identifier such as orders have."""
        r = self.r
        letters = "".join(r.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(r.randint(1, 3)))
        return f"{letters}{r.choice(['-', '', '_'])}{r.randint(10, 99999)}"

    def version(self) -> str:
        """Three numbers."""
        return ".".join(str(self.r.randint(0, 20)) for _ in range(3))

    def person(self) -> str:
        """A first name, or one that nobody has."""
        return self.r.choice(PEOPLE) if self.r.random() < 0.4 else self.word().capitalize()

    def city(self) -> str:
        """A city, or a place that does not exist."""
        return self.r.choice(CITIES) if self.r.random() < 0.4 else self.word().capitalize()

    def country(self) -> str:
        """A country, or one that does not exist."""
        return self.r.choice(COUNTRIES) if self.r.random() < 0.6 else self.word().capitalize()

    def language(self) -> str:
        """A language."""
        return self.r.choice(LANGUAGES) if self.r.random() < 0.8 else self.word().capitalize()

    def color(self) -> str:
        """A colour."""
        return self.r.choice(COLORS)

    def weekday(self) -> str:
        """A day of the week."""
        return self.r.choice(WEEKDAYS)

    def month(self) -> str:
        """A month."""
        return self.r.choice(MONTHS)

    def title(self) -> str:
        """Of a work."""
        return " ".join(word.capitalize() for word in self.words(2, 4).split())

    def small(self) -> int:
        """2 .. 60."""
        return self.r.randint(2, 60)

    def phone(self) -> str:
        """A number to call."""
        r = self.r
        form = r.choice(["+{} {} {}", "0{}-{}{}", "+{}{}{}", "555-{}-{}{}"])
        return form.format(r.randint(10, 99), r.randint(100, 999), r.randint(1000, 99999))

    def email(self) -> str:
        """An address."""
        end = self.r.choice(["example.com", "example.org", f"{self.word().lower()}.net"])
        return f"{self.person().lower()}@{end}"

    def url(self) -> str:
        """A link."""
        tail = "/".join(self.word() for _ in range(self.r.randint(0, 2)))
        return f"https://{self.made()}.{self.r.choice(['com', 'org', 'io', 'dev'])}/{tail}"

    def date(self) -> str:
        """A day."""
        r = self.r
        return f"20{r.randint(20, 34)}-{r.randint(1, 12):02d}-{r.randint(1, 28):02d}"

    def clock(self) -> str:
        """A time of the day."""
        return f"{self.r.randint(0, 23):02d}:{self.r.choice([0, 15, 30, 45, 10, 5]):02d}"

    def topic(self) -> str:
        """Something to search for."""
        return self.r.choice(TOPICS) if self.r.random() < 0.2 else self.words(1, 3)


# ruff: noqa: E501, SIM905 - tables of phrases
