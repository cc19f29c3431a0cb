"""The natural text of the mixture, packed in one file: `python -m flashrt.demo.training.corpus`.

Sources, all permissively licensed (see flashrt/demo/NOTICE): the reStructuredText sources of the
Python documentation and modules of its standard library (PSF-2.0), glosses of WordNet 3.0 (WordNet
licence), question and answer pairs of chatterbot-corpus (BSD-3-Clause).
"""

import argparse
import json
import lzma
import re
import sysconfig
from functools import cache
from pathlib import Path

FILE = Path(__file__).parent / "corpus.json.xz"
CODE_MAX, PROSE_MAX, GLOSSES_MAX = 3_000_000, 7_000_000, 9000
ODD = re.compile(r"sex|drug|drunk|kill|god|hate|stupid|die|chatterbot|ALICE|beer|ejac", re.I)
Corpus = dict[str, list]


@cache
def corpus() -> Corpus:
    """code and prose: documents; glosses: [word, text]; chat: [question, answer]; verbs and nouns:
    [words of one meaning, text]."""
    return json.loads(lzma.decompress(FILE.read_bytes()))


def build(docs: Path, wordnet: Path, chat: Path) -> Corpus:
    """From the unpacked packages python3.11-doc, wordnet-base and chatterbot-corpus."""
    return {
        "code": _texts(sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")), CODE_MAX),
        "prose": _texts(sorted(docs.rglob("*.rst.txt")), PROSE_MAX),
        "glosses": list(_glosses(wordnet)),
        "chat": list(_chat(chat)),
        "verbs": _synonyms(wordnet, "verb"),
        "nouns": _synonyms(wordnet, "noun"),
    }


def _texts(files: list[Path], most: int) -> list[str]:
    kept, size = [], 0
    for file in files:
        text = file.read_text(encoding="utf-8", errors="ignore")
        if "whatsnew/changelog" in str(file) or not text.isascii() or size > most:
            continue
        text = re.sub(r"\n{3,}", "\n\n", text)
        size += len(text)
        kept.append(text)
    return kept


def _glosses(folder: Path) -> list[list[str]]:
    """Of short lower-case words: the first meaning that is listed, without its examples."""
    counts = {}
    for line in (folder / "index.noun").read_text().splitlines():
        parts = line.split()
        if line[0] != " " and re.fullmatch("[a-z]{3,10}", parts[0]):
            counts[parts[0]] = (
                int(parts[2]) + int(parts[-int(parts[2]) - 1]),
                parts[-int(parts[2])],
            )
    wanted = sorted(counts, key=lambda word: -counts[word][0])[:GLOSSES_MAX]
    text = {}
    for line in (folder / "data.noun").read_text().splitlines():
        if line[0] != " ":
            text[line[:8]] = line.split(" | ")[1].split('; "')[0].split(";")[0].strip()
    pairs = [[word, text[counts[word][1]]] for word in wanted]
    return [pair for pair in pairs if len(pair[1]) < 120]


def _synonyms(folder: Path, part: str) -> list[list]:
    """Two or more words that mean one thing first of all, and what that is.

    Of verbs, those that take an object (frames 8 to 11 of WordNet).
    """
    words: dict[str, list[str]] = {}
    for line in (folder / f"index.{part}").read_text().splitlines():
        fields = line.split()
        if line[0] != " " and re.fullmatch("[a-z]{3,12}(_[a-z]{2,8})?", fields[0]):
            senses = int(fields[2])
            if int(fields[-senses - 1]):  # how many of its meanings occur in tagged text
                words.setdefault(fields[-senses], []).append(fields[0].replace("_", " "))
    found = []
    for line in (folder / f"data.{part}").read_text().splitlines():
        head, _, gloss = line.partition(" | ")
        takes = part == "noun" or re.search(r"\+ (08|09|10|11) 00", head)
        text = gloss.split('; "')[0].split(";")[0].strip()
        if (
            not ODD.search(head)
            and len(same := words.get(line[:8], [])) > 1
            and takes
            and len(text) < 110
        ):
            found.append([same, text])
    return found


def _chat(folder: Path) -> list[list[str]]:
    """Short pairs out of the English lists."""
    pairs = []
    for file in sorted(folder.glob("*.yml")):
        found = re.findall(r"^- - (.+)\n  - (.+)\n", file.read_text(encoding="utf-8"), re.M)
        pairs += [[q.strip("'\" "), a.strip("'\" ")] for q, a in found]
    return [p for p in pairs if max(map(len, p)) < 120 and not ODD.search(" ".join(p))]


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("docs", "wordnet", "chat"):
        parser.add_argument(name, type=Path)
    made = build(**vars(parser.parse_args()))
    FILE.write_bytes(lzma.compress(json.dumps(made).encode(), preset=9))
    print({name: len(items) for name, items in made.items()}, FILE.stat().st_size)


if __name__ == "__main__":
    main()
