"""How long a warm turn's prompt takes: python -m flashrt.bench.render.

Renders a long conversation, then the same with one new line, on the bundled demo's tokenizer.
"""

import argparse
import statistics
import time
from collections.abc import Sequence

from flashrt.chat.render import Renderer
from flashrt.chat.request import AgentRequest, Json
from flashrt.demo import DEMO_PATH
from flashrt.serve import load_voice

LINE = "def handle(request):  # line {number}\n    return render(request, number={number})\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the median times of the two halves of rendering a warm turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=30_000, help="length of the history")
    parser.add_argument("--turns", type=int, default=40, help="messages that it is made of")
    parser.add_argument("--repeat", type=int, default=20)
    asked = parser.parse_args(arguments)
    renderer = load_voice(DEMO_PATH).renderer
    history = _history(renderer, asked.tokens, asked.turns)
    start = time.perf_counter()
    cold = renderer.render(AgentRequest(model="any", messages=tuple(history)))
    cold_ms = (time.perf_counter() - start) * 1000
    text_ms, ids_ms = [], []
    for number in range(asked.repeat):
        new = {"role": "user", "content": f"One new line, the {number}th."}
        request = AgentRequest(model="any", messages=(*history, new))
        start = time.perf_counter()
        marked = renderer.to_text(request)
        middle = time.perf_counter()
        renderer.to_prompt(marked)
        text_ms.append((middle - start) * 1000)
        ids_ms.append((time.perf_counter() - middle) * 1000)
    print(
        f"{len(cold)} tokens in {asked.turns} messages: cold render {cold_ms:.1f} ms; with one new "
        f"line: template {statistics.median(text_ms):.2f} ms, "
        f"segments and ids {statistics.median(ids_ms):.2f} ms"
    )


def _history(renderer: Renderer, tokens: int, turns: int) -> list[Json]:
    """Messages of about `tokens` tokens in all."""
    per_line = len(renderer.render(AgentRequest(model="any", text=LINE.format(number=1000))))
    lines = max(1, tokens // turns // per_line)
    roles = ("user", "assistant")
    return [
        {
            "role": roles[turn % 2],
            "content": "".join(LINE.format(number=turn * 1000 + line) for line in range(lines)),
        }
        for turn in range(turns)
    ]


if __name__ == "__main__":
    main()
