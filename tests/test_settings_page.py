"""docs/settings.md."""

from pathlib import Path

from flashrt import settings_page
from flashrt.settings import fields, flag_name

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"


def test_the_page_is_up_to_date():
    """It is what `python -m flashrt.settings_page` prints."""
    assert PAGE.read_text() == settings_page.page()


def test_every_setting_has_a_row_with_its_default():
    """An automatic value is called so, whatever number stands for it."""
    page = settings_page.page()
    for field in fields():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{flag_name(field)}`")]
        if "auto" in field.metadata:
            assert "| `auto` |" in row
