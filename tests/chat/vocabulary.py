"""A small byte-level BPE tokenizer and a chat template in the Qwen wire format, for tests."""

import json
from functools import cache
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as LibraryTokenizer

from flashrt.chat.template import Template
from flashrt.chat.tokenizer import Tokenizer

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PLAIN_ADDED = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
THINK = ("<think>", "</think>")

CORPUS = (
    "The quick brown fox reads the file and calls the tool again.\n\n",
    "def answer(question: str) -> str:\n    return question.strip()\n",
    "<function=run>\n<parameter=command>\nls -la\n</parameter>\n</function>\n",
    "system\nuser\nassistant\n# Tools\n1. ä ö ü 東京 ☃ 🎈\n",
)

SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

TEMPLATE = r"""
{%- macro arguments_of(call) -%}
    {%- for name, value in call.arguments|items %}
        {{- '<parameter=' ~ name ~ '>\n' }}
        {{- value if value is string else value|tojson }}
        {{- '\n</parameter>\n' }}
    {%- endfor %}
{%- endmacro %}
{%- if not messages %}{{ raise_exception('Nothing was said.') }}{% endif %}
{%- set last = namespace(query=-1) %}
{%- for message in messages if message.role == 'user' %}
    {%- set last.query = messages.index(message) %}
{%- endfor %}
{%- if last.query < 0 %}{{ raise_exception('Nobody asked anything.') }}{% endif %}
{%- set rules = messages[0].content|trim if messages[0].role == 'system' else '' %}
{%- if tools or rules %}
    {{- '<|im_start|>system\n' }}
    {%- if tools %}
        {{- 'You may call these functions:\n<tools>' }}
        {%- for tool in tools %}{{ '\n' ~ tool|tojson }}{% endfor %}
        {{- '\n</tools>\nCall one like this:\n<tool_call>\n<function=NAME>\n' }}
        {{- '<parameter=P>\nVALUE\n</parameter>\n</function>\n</tool_call>' }}
        {{- '\n\n' if rules }}
    {%- endif %}
    {{- rules ~ '<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {%- set content = message.content|trim %}
    {%- if message.role == 'system' %}
        {%- if not loop.first %}{{ raise_exception('System goes first.') }}{% endif %}
    {%- elif message.role == 'user' %}
        {{- '<|im_start|>user\n' ~ content ~ '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user' if loop.previtem.role != 'tool' }}
        {{- '\n<tool_response>\n' ~ content ~ '\n</tool_response>' }}
        {{- '<|im_end|>\n' if loop.last or loop.nextitem.role != 'tool' }}
    {%- else %}
        {{- '<|im_start|>assistant\n' }}
        {%- if loop.index0 > last.query %}
            {{- '<think>\n' ~ (message.reasoning_content or '')|trim ~ '\n</think>\n\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\n\n' if loop.first and content else ('\n' if not loop.first else '') }}
            {{- '<tool_call>\n<function=' ~ call.function.name ~ '>\n' }}
            {{- arguments_of(call.function) ~ '</function>\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n<think>\n' }}
    {{- '\n</think>\n\n' if enable_thinking is defined and enable_thinking is false }}
{%- endif %}
"""


@cache
def description() -> dict[str, Any]:
    """The tokenizer.json of the small tokenizer."""
    made = LibraryTokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(CORPUS * 4, trainer)
    made.add_special_tokens([AddedToken(token, normalized=False) for token in SPECIAL])
    made.add_tokens([AddedToken(token, normalized=False) for token in (*PLAIN_ADDED, *THINK)])
    parsed: dict[str, Any] = json.loads(made.to_str())
    return parsed


@cache
def library_tokenizer() -> LibraryTokenizer:
    """The same vocabulary as the library sees it: the oracle."""
    return LibraryTokenizer.from_str(json.dumps(description()))


@cache
def tokenizer() -> Tokenizer:
    """The same vocabulary as we see it."""
    return Tokenizer(description(), {"eos_token": "<|im_end|>"})


@cache
def template() -> Template:
    """The template, with its control tokens marked."""
    return Template(TEMPLATE, tokenizer().control, tokenizer().named_tokens)


TOOLS: tuple[dict[str, Any], ...] = (
    {
        "type": "function",
        "function": {
            "name": "run",
            "description": "Runs a command.",
            "parameters": {
                "type": "object",
                "properties": {
                    "command": {"type": "string"},
                    "limit": {"type": "integer"},
                    "flags": {"type": "array", "items": {"type": "string"}},
                    "note": {"type": ["string", "null"]},
                },
            },
        },
    },
    {"type": "function", "function": {"name": "look"}},
)


def ids(text: str) -> tuple[int, ...]:
    """What the model would have sampled for `text`, its control tokens meant as such."""
    return tokenizer().encode(text)


def byte_ids(text: str) -> tuple[int, ...]:
    """The same text with one id for each byte: the finest way to cut it."""
    byte_of = {tokenizer().id_to_bytes(i): i for i in reversed(range(tokenizer().vocab_size))}
    return tuple(byte_of[bytes([byte])] for byte in text.encode())
