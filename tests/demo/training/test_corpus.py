"""The packed text is whole."""

from flashrt.demo.training.corpus import FILE, corpus


def test_each_source_is_there_in_plain_characters():
    """Code, prose, glosses, chat and words of one meaning; the file stays small."""
    found = corpus()
    assert set(found) == {"code", "prose", "glosses", "chat", "verbs", "nouns"}
    assert all(text.isascii() and text for text in found["code"] + found["prose"])
    assert all(len(words) > 1 and text for words, text in found["verbs"] + found["nouns"])
    assert all(len(pair) == 2 for pair in found["glosses"] + found["chat"])
    assert FILE.stat().st_size < 4_000_000
