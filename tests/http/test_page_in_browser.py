"""The page as a person meets it, in headless Chromium, which pip cannot install."""

import re

import pytest

from flashrt.http.page import PAGE
from tests.http.browser import Tab, browser
from tests.http.busy import KEY, TEXTS, Busy, busy_server

pytestmark = pytest.mark.external

BAD_NEWS = ("Log.entryAdded", "Runtime.exceptionThrown")


def rows(table: str) -> str:
    """How many rows of it show something."""
    return f"document.querySelectorAll('#{table} tbody th').length"


def asked(tab: Tab) -> list[str]:
    """What the page has asked the network for."""
    return [event["request"]["url"] for event in tab.told("Network.requestWillBeSent")]


async def type_key(tab: Tab, key: str) -> None:
    """Type it, and press the button."""
    await tab.evaluate(f"document.getElementById('key').value = {key!r}")
    await tab.evaluate("document.querySelector('#ask button').click()")


async def open_page(tab: Tab, busy: Busy, *, finished: int) -> None:
    """Until the figures are there."""
    await tab.open(f"{busy.url}/")
    await tab.until(f"{rows('recent')} == {finished}")


async def test_it_shows_what_goes_on_and_follows_it(tmp_path):
    """Without a word of anybody's text, a complaint of the browser, or another address."""
    async with busy_server() as busy, browser(tmp_path) as tab:
        await open_page(tab, busy, finished=2)
        assert await tab.text("#status") == "ready"
        now = await tab.text("#requests")
        assert "128 of 132 tokens, 0 cached" in now
        assert now.count("queued") == 2
        assert "message, in message 0 at byte 18" in await tab.text("#recent")
        assert await tab.evaluate("document.querySelector('#requests progress').value") == 128

        await busy.go_on()
        await tab.until(f"{rows('recent')} == {len(TEXTS)}")
        assert await tab.evaluate(rows("requests")) == 0
        assert re.search(r"20\ntokens, sess_[0-9a-f]{8}… in", await tab.text("#figures"))
        assert "spring" not in await tab.text("body")
        assert set(asked(tab)) == {f"{busy.url}/", f"{busy.url}/health"}
        assert [event for event in tab.events if event[0] in BAD_NEWS] == []


async def test_a_key_is_asked_for_once_and_stays_in_the_tab(tmp_path):
    """Without one the totals are shown; a wrong one is said to be wrong and forgotten."""
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n")
    async with busy_server(api_key_file=keys) as busy, browser(tmp_path / "profile") as tab:
        await tab.open(f"{busy.url}/")
        await tab.until(f"{rows('actions')} == 1")
        assert not await tab.evaluate("document.getElementById('ask').hidden")
        assert not await tab.evaluate("document.getElementById('recent').checkVisibility()")

        await type_key(tab, "wrong")
        await tab.until("document.getElementById('news').innerText.includes('not know that key')")
        assert await tab.evaluate("sessionStorage.length") == 0

        await type_key(tab, KEY)
        await tab.until(f"{rows('recent')} == 2")
        await open_page(tab, busy, finished=2)
        assert await tab.evaluate("document.getElementById('ask').hidden")
        kept = "JSON.stringify([sessionStorage.length, localStorage.length, document.cookie])"
        assert await tab.evaluate(kept) == '[1,0,""]'
        assert KEY not in "".join(asked(tab))


async def test_a_server_that_is_gone_is_said_to_be(tmp_path):
    """What was shown stays, and is said to be from before."""
    async with browser(tmp_path) as tab:
        async with busy_server() as busy:
            await open_page(tab, busy, finished=2)
            await busy.go_on()
        await tab.until("document.getElementById('news').innerText.includes('does not answer')")
        assert await tab.text("#status") == "no answer"
        assert "from before" in await tab.text("#news")


async def test_a_hidden_tab_asks_for_nothing(tmp_path):
    """It goes on when it is looked at again."""
    hide = "Object.defineProperty(document, 'hidden', {{ get: () => {}, configurable: true }})"
    event = "document.dispatchEvent(new Event('visibilitychange'))"
    async with busy_server() as busy, browser(tmp_path) as tab:
        await open_page(tab, busy, finished=2)
        await tab.evaluate(f"{hide.format('true')}; {event}")
        await tab.until("!looking")
        before = len(asked(tab))
        await tab.evaluate("poll()")  # what the timer that is still set will do
        assert len(asked(tab)) == before
        await tab.evaluate(f"{hide.format('false')}; {event}")
        await busy.go_on()
        await tab.until(f"{rows('recent')} == {len(TEXTS)}")


@pytest.mark.parametrize("width", [390, 1200])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_a_phone_and_can_be_read_in_both_schemes(tmp_path, scheme, width):
    """Nothing beyond the window's edge; every word stands out from what is behind it (WCAG AA)."""
    async with busy_server() as busy, browser(tmp_path) as tab:
        await tab.look(width=width, scheme=scheme)
        await open_page(tab, busy, finished=2)
        assert await tab.evaluate("document.documentElement.scrollWidth") <= width
        assert await tab.evaluate(CONTRAST) >= 4.5


CONTRAST = """
(() => {
  const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = node => {
    const colour = numbers(getComputedStyle(node).backgroundColor);
    return colour[3] === 0 ? behind(node.parentElement) : colour;
  };
  const words = [...document.querySelectorAll("body *")].filter(node => node.checkVisibility()
    && [...node.childNodes].some(child => child.nodeType === 3 && child.data.trim()));
  return Math.min(...words.map(node => {
    const pair = [light(numbers(getComputedStyle(node).color)), light(behind(node))];
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  }));
})()
"""


async def test_a_script_that_is_not_the_pages_own_does_not_run(tmp_path):
    """The policy holds in a real browser."""
    assert "stranger" not in PAGE
    plant = (
        "const s = document.createElement('script'); s.append('window.stranger = 1');"
        "try { document.body.append(s) } catch (error) { window.refused = error.message }"
    )
    async with busy_server() as busy, browser(tmp_path) as tab:
        await open_page(tab, busy, finished=2)
        await tab.evaluate(plant)
        assert await tab.evaluate("window.stranger ?? null") is None
