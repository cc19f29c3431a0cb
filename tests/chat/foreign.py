"""Small chat templates that do things otherwise, and renderers for them."""

from functools import cache

from flashrt.chat.render import Renderer
from flashrt.chat.template import Template
from flashrt.chat.tokenizer import Tokenizer
from flashrt.demo import DEMO_PATH
from tests.chat.vocabulary import template, tokenizer

TURNS = r"""
{%- for message in messages %}
    {{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- '<tool_call>' ~ call.function|tojson ~ '</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
"""

VERBATIM = TURNS + "{{- '<|im_start|>assistant\\n' }}"
"""Shows every text as it is, no thinking, and no tools at all."""

TOOLS_APART = (
    TURNS
    + r"""
{%- if tools %}{{- '<|im_start|>user\nTools: ' ~ tools|tojson ~ '<|im_end|>\n' }}{% endif %}
{{- '<|im_start|>assistant\n' }}
"""
)
"""Tools stand behind the conversation."""

UNMARKED = r"""
{%- for message in messages %}{{- message.role ~ ': ' ~ message.content ~ '\n' }}{% endfor %}
{{- 'assistant: ' }}
"""
"""No control token tells the turns."""

BY_TOKEN = r"""
{%- for message in messages %}
    {{- '<tool_call>' if message.role == 'assistant' else '<think>' }}
    {{- message.content|trim ~ '<|im_end|>' }}
{%- endfor %}
{{- '<tool_call>' }}
"""
"""The token itself says who speaks."""

DATED = "{{- strftime_now('%d') ~ messages|length if false }}" + VERBATIM

SOURCES = {
    "verbatim": VERBATIM,
    "tools apart": TOOLS_APART,
    "unmarked": UNMARKED,
    "by token": BY_TOKEN,
    "dated": DATED,
}


@cache
def renderer(name: str) -> Renderer:
    """`demo` is the bundled checkpoint's, `strips` drops thinking in front of the last question."""
    if name == "demo":
        words = Tokenizer.load(DEMO_PATH)
        return Renderer(words, Template.load(DEMO_PATH, words.control, words.named_tokens))
    if name == "strips":
        return Renderer(tokenizer(), template())
    words = tokenizer()
    return Renderer(words, Template(SOURCES[name], words.control, words.named_tokens))


OUTLINED = ("demo", "strips", "verbatim", "tools apart", "by token", "dated")
