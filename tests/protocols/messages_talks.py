"""Conversations without a protocol, and how Chat and Messages spell each of them."""

from collections.abc import Callable
from typing import Any

import attrs
from hypothesis import strategies as st

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
BILLING = "x-anthropic-billing-header: cc_version=2.1.332.31a; cc_entrypoint=sdk-cli;"


@attrs.frozen
class Call:
    """A call and its result. `failed`: the client says so."""

    call_id: str
    name: str
    arguments: Json
    result: str
    failed: bool = False


@attrs.frozen
class Answer:
    """An answer of the model, and what the user's next message says."""

    thought: str
    text: str
    calls: tuple[Call, ...]
    then: str


@attrs.frozen
class Talk:
    """A system text, a question, answers; with tools on offer or not, and thinking or not.

    Where nothing is said behind the last answer, the model goes on inside it.
    """

    system: tuple[str, ...]
    question: str
    answers: tuple[Answer, ...]
    tools: tuple[str, ...]
    thinks: bool


words = st.text("ab <>{}\n<|im_end|>é", min_size=1, max_size=8)
values = st.one_of(st.integers(-5, 5), words, st.booleans(), st.none(), st.lists(words, max_size=2))


@st.composite
def talks(draw: st.DrawFn) -> Talk:
    """Any talk that both protocols can say."""
    count = 0
    answers = []
    for left in reversed(range(draw(st.integers(0, 3)))):
        calls = []
        for _ in range(draw(st.integers(0, 3))):
            arguments = draw(st.dictionaries(st.sampled_from(["path", "n", "x"]), values))
            name, result = draw(st.sampled_from(["read", "run"])), draw(words)
            calls.append(Call(f"c{count}", name, arguments, result, draw(st.booleans())))
            count += 1
        text = draw(words if not calls else st.just("") | words)
        then = draw(words if not calls and left else st.just("") | words)
        answers.append(Answer(draw(st.just("") | words), text, tuple(calls), then))
    tools = draw(st.sampled_from([(), ("read",), ("read", "run")]))
    system = tuple(draw(st.lists(words, max_size=2)))
    return Talk(system, draw(words), tuple(answers), tools, draw(st.booleans()))


def chat(talk: Talk) -> Json:
    """As a Chat request."""
    messages: list[Json] = [{"role": "system", "content": text} for text in talk.system]
    messages.append({"role": "user", "content": talk.question})
    for answer in talk.answers:
        message: Json = {"role": "assistant", "content": answer.text}
        if answer.thought:
            message["reasoning_content"] = answer.thought
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": call.call_id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in answer.calls
            ]
        messages.append(message)
        messages += (
            {"role": "tool", "tool_call_id": call.call_id, "content": call.result}
            for call in answer.calls
        )
        if answer.then:
            messages.append({"role": "user", "content": answer.then})
    functions = [{"name": name, "description": name, "parameters": SCHEMA} for name in talk.tools]
    tools = [{"type": "function", "function": function} for function in functions]
    return {"messages": messages, "tools": tools, "enable_thinking": talk.thinks}


@attrs.frozen
class Spelling:
    """Choices that mean nothing. Each draws what it needs from `choose`."""

    choose: Callable[[st.SearchStrategy[Any]], Any]

    def flip(self) -> bool:
        return bool(self.choose(st.booleans()))

    def marked(self, block: Json) -> Json:
        """Perhaps with a cache mark."""
        return {**block, "cache_control": {"type": "ephemeral"}} if self.flip() else block

    def text(self, text: str) -> Any:
        """A string, one part, or several."""
        if self.flip():
            return text
        return self.parts(text)

    def parts(self, text: str) -> list[Json]:
        cut = self.choose(st.integers(0, len(text)))
        pieces = [text[:cut], text[cut:]] if self.flip() else [text]
        return [self.marked({"type": "text", "text": piece}) for piece in pieces]


def messages(talk: Talk, spell: Spelling) -> Json:
    """The same as a Messages request, in one of the ways that mean the same."""
    told: list[Json] = [{"role": "user", "content": spell.text(talk.question)}]
    for answer in talk.answers:
        told.append({"role": "assistant", "content": _answer(answer, spell)})
        if answer.calls:
            results = [_result(call, spell) for call in answer.calls]
            results = list(spell.choose(st.permutations(results)))
            told.append({"role": "user", "content": results})
            if answer.then and spell.flip():
                told[-1]["content"] += spell.parts(answer.then)
                continue
        if answer.then:
            told.append({"role": "user", "content": spell.text(answer.then)})
    tools = [
        spell.marked({"input_schema": SCHEMA, "name": name, "description": name})
        for name in talk.tools
    ]
    body: Json = {"max_tokens": 100, "messages": told, "tools": tools}
    system = [spell.marked({"type": "text", "text": text}) for text in talk.system]
    if spell.flip():
        system.insert(0, {"type": "text", "text": BILLING})
    if system or spell.flip():
        body["system"] = system
    if talk.thinks:
        body["thinking"] = {"type": "adaptive"}
    elif spell.flip():
        body["thinking"] = {"type": "disabled"}
    if len(system) == 1 and spell.flip():
        body["system"] = system[0]["text"]
    return body


def _answer(answer: Answer, spell: Spelling) -> Any:
    thought = {"type": "thinking", "thinking": answer.thought, "signature": "x"}
    calls = [
        spell.marked(
            {"type": "tool_use", "id": call.call_id, "name": call.name, "input": call.arguments}
        )
        for call in answer.calls
    ]
    if not answer.thought and not calls and spell.flip():
        return answer.text
    left = [{"type": "redacted_thinking", "data": "x"}] if spell.flip() else []
    return [
        *left,
        *([thought] if answer.thought else []),
        *(spell.parts(answer.text) if answer.text else []),
        *calls,
    ]


def _result(call: Call, spell: Spelling) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": call.call_id}
    block["content"] = spell.text(call.result)
    if call.failed:
        block["is_error"] = True
    return spell.marked(block)
