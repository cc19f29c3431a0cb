"""docs/settings.md."""

from pathlib import Path

from flashrt import settings_page
from flashrt.settings import fields, flag_name

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"


def test_the_page_is_up_to_date():
    """It is what `python -m flashrt.settings_page` prints."""
    assert PAGE.read_text() == settings_page.page()


ROWS = settings_page.page().splitlines()


def row_of(field):
    """The one line of the table that is about the setting."""
    (row,) = [line for line in ROWS if line.startswith(f"| `{flag_name(field)}`")]
    return row


def test_every_setting_has_a_row_with_its_default():
    """An automatic value is called so, whatever number stands for it."""
    for field in fields():
        if "auto" in field.metadata:
            assert "| `auto` |" in row_of(field)


def test_every_choice_is_in_its_settings_row():
    """Which words a setting takes need not be guessed."""
    for field in fields():
        choices = field.metadata.get("choices", ())
        assert row_of(field).rstrip(" |").endswith(", ".join(choices))
