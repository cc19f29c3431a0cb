"""The reader for answers without structure."""

from flashrt.chat.reads import PlainReader


def test_the_plain_reader_shows_all_text_and_no_control_token():
    """For answers without structure."""
    reader = PlainReader()
    said = [*reader.text("a<think>"), *reader.control("<think>"), *reader.text("b")]

    assert [(one.delta.text, one.at) for one in said] == [("a<think>", 0), ("b", 15)]
    assert reader.finish(cut_off=False) == []
