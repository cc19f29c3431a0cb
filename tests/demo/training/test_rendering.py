"""What is trained on is what is served."""

from itertools import accumulate

import pytest

from flashrt.chat.render import Renderer
from flashrt.chat.request import AgentRequest
from flashrt.chat.template import Template
from flashrt.chat.tokenizer import Tokenizer
from flashrt.demo import DEMO_PATH
from flashrt.demo.training.dialogues import Maker
from flashrt.demo.training.rendering import encode, joined, load_tokenizer, pieces


@pytest.fixture(scope="module")
def renderer():
    tokenizer = Tokenizer.load(DEMO_PATH)
    return Renderer(tokenizer, Template.load(DEMO_PATH, tokenizer.control, tokenizer.named_tokens))


@pytest.mark.parametrize("seed", range(40))
def test_what_stands_before_an_answer_is_the_servers_prompt(renderer, seed):
    """Up to each answer, the ids are those that the server's renderer makes of the request."""
    dialogue = Maker(f"test{seed}", 6000 * (seed % 5 == 0)).dialogue()
    raw = load_tokenizer(DEMO_PATH / "tokenizer.json")
    parts = joined(pieces(dialogue))
    starts = list(accumulate((len(encode(raw, [part])[0]) for part in parts), initial=0))
    ids, _ = encode(raw, parts)
    answers = [start for start, (_, said) in zip(starts, parts, strict=False) if said]
    at = [i for i, m in enumerate(dialogue.messages) if m["role"] == "assistant"]
    assert len(at) == len(answers)
    for i, start in zip(at, answers, strict=True):
        request = AgentRequest(
            model="demo",
            messages=tuple(dialogue.messages[:i]),
            tools=tuple(dialogue.tools),
            template_args={"enable_thinking": dialogue.thinking},
        )
        assert list(renderer.render(request)) == ids[:start]
