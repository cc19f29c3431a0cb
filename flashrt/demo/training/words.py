"""Random words, names, paths, sentences and numbers, all drawn from one generator of numbers."""

import random

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
TOPICS = "rivers stars bread bridges bees castles trains salt glass wool maps clocks tea".split()


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
        return self.r.choice(COMMON) if self.r.random() < 0.5 else self.made()

    def strange(self) -> str:
        """A name for a tool or a parameter that tells nothing."""
        r = self.r
        if r.random() < 0.4:
            return self.made()
        return r.choice(["{}_{}", "{}-{}", "{}{}"]).format(self.word(), self.made())

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
        return self.r.choice(PEOPLE) if self.r.random() < 0.6 else self.made().capitalize()

    def city(self) -> str:
        """A city, or a place that does not exist."""
        return self.r.choice(CITIES) if self.r.random() < 0.6 else self.made().capitalize()

    def email(self) -> str:
        """An address."""
        end = self.r.choice(["example.com", "example.org", f"{self.made()}.net"])
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
