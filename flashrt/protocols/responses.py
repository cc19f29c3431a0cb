"""Responses requests: JSON to `AgentRequest`, in the context of what was said before."""

from typing import Any, Protocol

import attrs
import msgspec

from flashrt.chat.request import AgentRequest, CacheHints, Json
from flashrt.chat.shape import JsonShape
from flashrt.errors import BadRequest, PreviousResponseNotFound
from flashrt.protocols.chat import TOP_LOGPROBS_MAX
from flashrt.protocols.fields import (
    Call,
    CommonFields,
    between,
    draft_tokens,
    only,
    pin_prefix,
    read_json,
    stop_strings,
    token_limit,
)
from flashrt.protocols.responses_input import messages_of, resolved, tools_in
from flashrt.protocols.responses_items import Form
from flashrt.protocols.responses_object import Response
from flashrt.protocols.responses_tools import Offer, choice, offer
from flashrt.protocols.structure import JsonSchemaFormat, ResponseFormat, Structure, structure
from flashrt.protocols.thinking import Reasoning, Thinking, thinking

SCHEMA = "text.format.schema"


class ReasoningWish(Reasoning):
    """`reasoning`. `generate_summary` is how `summary` was once called."""

    summary: str | None = None
    generate_summary: str | None = None


class TextFormat(msgspec.Struct):
    """`text.format`."""

    type: str = "text"
    name: str | None = None
    description: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class TextWish(msgspec.Struct):
    """`text`. What is said about verbosity is not honoured."""

    format: TextFormat | None = None
    verbosity: str | None = None


class ResponsesFields(CommonFields, kw_only=True):
    """The fields of a Responses request. Unknown fields are ignored."""

    input: str | list[Any] | None = None
    instructions: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    text: TextWish | None = None
    reasoning: ReasoningWish | None = None
    include: list[str] | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    top_logprobs: int | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    user: Any = None
    safety_identifier: Any = None
    chat_template_kwargs: dict[str, Any] | None = None
    enable_thinking: bool | None = None
    reasoning_effort: str | None = None
    thinking_budget: int | None = None
    continue_final_message: bool | None = None

    def thinking(self) -> Thinking:
        """The fields about thinking, brought together; raises BadRequest."""
        return thinking(
            template_kwargs=self.chat_template_kwargs,
            enable_thinking=self.enable_thinking,
            reasoning_effort=self.reasoning_effort,
            reasoning=self.reasoning,
            thinking_budget=self.thinking_budget,
        )

    @property
    def summary(self) -> str | None:
        """How the thinking is to be summed up, if the client asked for that."""
        asked = self.reasoning or ReasoningWish()
        wish = asked.summary or asked.generate_summary
        return None if wish == "none" else wish

    def includes(self, what: str) -> bool:
        """Whether the answer is to have something that it has not by itself."""
        return what in (self.include or ())


class Earlier(Protocol):
    """An answer that was kept: what was said up to its end, and whose session it was."""

    @property
    def items(self) -> list[Json]: ...
    @property
    def hints(self) -> CacheHints: ...


class Past(Protocol):
    """What a client's earlier answers are found in."""

    def answer(self, response_id: str) -> Earlier | None: ...
    def item_of(self, item_id: str) -> Json | None: ...


@attrs.frozen
class ResponsesCall(Call):
    """A call with all that its response object repeats.

    The conversation is that of `earlier`, and the items that this request adds.
    """

    asked: Response = attrs.field(kw_only=True)
    form: Form = attrs.field(kw_only=True)
    earlier: Earlier | None = attrs.field(kw_only=True)
    new: tuple[Json, ...] = attrs.field(kw_only=True)
    stores: bool = attrs.field(kw_only=True)


_DECODER = msgspec.json.Decoder(ResponsesFields)


def read_responses(body: bytes, past: Past) -> ResponsesCall:
    """Translate a Responses body; raises BadRequest with the path of what is wrong."""
    fields = read_json(body, _DECODER)
    _refuse_unsupported(fields)
    earlier = _earlier(fields.previous_response_id, past)
    new = resolved(_new_items(fields, earlier), past.item_of)
    before = earlier.items if earlier else []
    items = [*before, *new]
    offered = offer([*(fields.tools or ()), *tools_in(items)])
    structured = _structure(fields, offered)
    thought = fields.thinking()
    request = AgentRequest(
        model=fields.model or "",
        messages=tuple(_messages(fields.instructions, items, len(before))),
        tools=offered.tools,
        template_args=thought.template_args,
        sampling=attrs.evolve(fields.sampling(), logprobs=_logprobs(fields)),
        max_tokens=_max_tokens(fields),
        stop=stop_strings(fields.stop),
        draft_tokens=draft_tokens(fields.flashrt_draft_tokens),
        thinking_tokens=thought.tokens,
        shape=structured.shape,
        reads_calls=structured.reads_calls,
        continues_last=fields.continue_final_message is not False,
        return_token_ids=bool(fields.flashrt_return_token_ids),
        pin_prefix=pin_prefix(fields.flashrt_pin_prefix),
        hints=_hints(fields, earlier),
    )
    form = Form(
        offered,
        summarizes=fields.summary is not None,
        seals=fields.includes("reasoning.encrypted_content"),
    )
    return ResponsesCall(
        request,
        bool(fields.stream),
        asked=_asked(fields),
        form=form,
        earlier=earlier,
        new=tuple(new),
        stores=fields.store is not False,
    )


def _refuse_unsupported(fields: ResponsesFields) -> None:
    wait = "Ask with `stream` true, and leave when you like; POST .../cancel ends an answer."
    only("background", fields.background, (False,), wait)
    only("conversation", fields.conversation, (), "Go on with `previous_response_id`.")
    only("prompt", fields.prompt, (), "Write the prompt into `instructions` and `input`.")
    only("n", fields.n, (1,), "Ask several times for several answers.")


def _earlier(response_id: str | None, past: Past) -> Earlier | None:
    if response_id is None:
        return None
    found = past.answer(response_id)
    if found is None:
        raise PreviousResponseNotFound(
            f"Previous response with id '{response_id[:100]}' not found. It was asked for with "
            "`store` false, was deleted, or is too old; send the whole conversation as `input`.",
            param="previous_response_id",
        )
    return found


def _new_items(fields: ResponsesFields, earlier: Earlier | None) -> list[Any]:
    """What this request adds to the conversation."""
    match fields.input:
        case str(text):
            return [{"type": "message", "role": "user", "content": text}]
        case None if earlier is None:
            raise BadRequest("`input` is required.", param="input")
        case [] if earlier is None:
            raise BadRequest("`input` is empty; it needs at least one item.", param="input")
    return fields.input or []


def _messages(instructions: str | None, items: list[Json], known: int) -> list[Json]:
    """The conversation; the instructions are this request's own, in front of it."""
    messages = messages_of(items, known)
    if instructions:
        messages.insert(0, {"role": "system", "content": instructions})
    if not messages:
        raise BadRequest("`input` has nothing that the model could read.", param="input")
    return messages


def _structure(fields: ResponsesFields, offered: Offer) -> Structure:
    wish, tools = choice(fields.tool_choice, offered)
    form = _format(fields)
    forced = wish not in (None, "auto", "none")
    if form is not None and form.type != "text" and forced:
        raise BadRequest(
            "`text.format` asks for JSON text and `tool_choice` for a call; an answer cannot be "
            'both. Leave one out, or use `tool_choice` "auto".',
            param="text.format",
        )
    structured = structure(
        tools, response_format=form, tool_choice=wish, parallel=fields.parallel_tool_calls
    )
    if isinstance(structured.shape, JsonShape) and form is not None:
        where = SCHEMA if form.type == "json_schema" else "text.format"
        return attrs.evolve(structured, shape=attrs.evolve(structured.shape, field=where))
    return structured


def _format(fields: ResponsesFields) -> ResponseFormat | None:
    """`text.format` as chat has it."""
    wish = fields.text.format if fields.text else None
    if wish is None:
        return None
    if wish.type not in ("text", "json_object", "json_schema"):
        raise BadRequest(
            f'`text.format.type` is "{wish.type[:60]}"; it must be text, json_object or '
            "json_schema.",
            param="text.format.type",
        )
    if wish.type == "json_schema" and wish.schema is None:
        raise BadRequest(f"`{SCHEMA}` is required.", param=SCHEMA)
    return ResponseFormat(wish.type, JsonSchemaFormat(wish.name, schema=wish.schema))


def _logprobs(fields: ResponsesFields) -> int | None:
    count = fields.top_logprobs or 0
    between("top_logprobs", count, 0, TOP_LOGPROBS_MAX)
    return count if count or fields.includes("message.output_text.logprobs") else None


def _max_tokens(fields: ResponsesFields) -> int | None:
    """The API's name wins over the one of chat."""
    old = token_limit("max_tokens", fields.max_tokens)
    new = token_limit("max_output_tokens", fields.max_output_tokens)
    return old if new is None else new


def _hints(fields: ResponsesFields, earlier: Earlier | None) -> CacheHints:
    """What was said about reuse; what nobody says is as it was for the answer before.

    So what was said in a namespace stays there, and is found there again.
    """
    hints = fields.hints()
    if earlier is None:
        return hints
    names = ["prompt_cache_key", "cache_salt"]
    if hints.session is None and hints.flashrt_session is None:
        names += ["session", "flashrt_session"]
    unsaid = [name for name in names if getattr(hints, name) is None]
    return attrs.evolve(hints, **{name: getattr(earlier.hints, name) for name in unsaid})


def _asked(fields: ResponsesFields) -> Response:
    """What the response object repeats."""
    wish = fields.reasoning or ReasoningWish()
    form = (fields.text.format if fields.text else None) or TextFormat()
    verbosity = fields.text.verbosity if fields.text else None
    return Response(
        instructions=fields.instructions,
        max_output_tokens=fields.max_output_tokens,
        metadata=_plain(fields.metadata),
        parallel_tool_calls=fields.parallel_tool_calls is not False,
        previous_response_id=fields.previous_response_id,
        prompt_cache_key=fields.prompt_cache_key,
        reasoning={"effort": wish.effort, "summary": fields.summary},
        safety_identifier=_word(fields.safety_identifier),
        store=fields.store is not False,
        temperature=fields.temperature,
        text={"format": _given(form), **({"verbosity": verbosity} if verbosity else {})},
        tool_choice=fields.tool_choice or "auto",
        tools=[_shown(tool) for tool in fields.tools or ()],
        top_logprobs=fields.top_logprobs or 0,
        top_p=fields.top_p,
        user=_word(fields.user),
    )


def _given(form: TextFormat) -> Json:
    fields = msgspec.structs.asdict(form)
    return {name: value for name, value in fields.items() if value is not None}


def _shown(tool: Json) -> Json:
    """A tool as the API repeats it: a function has all of its fields."""
    if tool.get("type") != "function":
        return tool
    return {"parameters": None, "strict": None, **tool}


def _plain(metadata: Any) -> dict[str, str] | None:
    """Metadata of the API's kind; what is none is not repeated."""
    if not isinstance(metadata, dict):
        return None
    plain = all(isinstance(value, str) for value in metadata.values())
    return metadata if plain else None


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) else None
