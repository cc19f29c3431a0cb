"""An answer's deltas as blocks, one behind the other: for a stream and for a body."""

from collections.abc import Iterable, Iterator

import attrs
import msgspec

from flashrt.chat.deltas import (
    Delta,
    TextDelta,
    ThinkingDelta,
    ToolCallArguments,
    ToolCallEnd,
    ToolCallStart,
)
from flashrt.protocols.messages_events import (
    AnswerBlock,
    BlockDelta,
    BlockEvent,
    BlockStart,
    BlockStop,
    InputPiece,
    SignaturePiece,
    TextBlock,
    TextPiece,
    ThinkingBlock,
    ThinkingPiece,
    ToolUseBlock,
)
from flashrt.protocols.messages_thinking import signature


@attrs.define
class Said:
    """One block so far. `begun`: as it is announced; `whole`: it may be acted on."""

    begun: AnswerBlock
    texts: list[str] = attrs.field(factory=list)
    whole: bool = True

    @property
    def text(self) -> str:
        """All of its text."""
        return "".join(self.texts)


class AnswerBlocks:
    """The blocks of one answer, of which the last may be open. Empty texts make no block."""

    def __init__(self, *, shows_thinking: bool) -> None:
        self._shows_thinking = shows_thinking
        self._blocks: list[Said] = []
        self._open: Said | None = None

    def take(self, deltas: Iterable[Delta]) -> Iterator[BlockEvent]:
        """The events that say these deltas."""
        for delta in deltas:
            yield from self._take(delta)

    def close(self) -> Iterator[BlockEvent]:
        """The events that end the open block, if there is one."""
        said, self._open = self._open, None
        if said is None:
            return
        if isinstance(said.begun, ThinkingBlock):
            yield self._more(SignaturePiece(self._signature(said)))
        yield BlockStop(self._last)

    def content(self) -> list[AnswerBlock]:
        """All blocks, but for calls that were left open: those must not be executed."""
        return [self._written(said) for said in self._blocks if said.whole]

    def _take(self, delta: Delta) -> Iterator[BlockEvent]:
        match delta:
            case TextDelta(text) if text:
                yield from self._inside(TextBlock())
                yield self._add(text, TextPiece(text))
            case ThinkingDelta(text) if text:
                yield from self._inside(ThinkingBlock())
                piece = self._add(text, ThinkingPiece(text))
                if self._shows_thinking:
                    yield piece
            case ToolCallStart(_, call_id, name):
                yield from self._begin(ToolUseBlock(call_id, name), whole=False)
            case ToolCallArguments(_, text) if text:
                yield self._add(text, InputPiece(text))
            case ToolCallEnd():
                self._blocks[-1].whole = True
                yield from self.close()

    def _inside(self, begun: TextBlock | ThinkingBlock) -> Iterator[BlockEvent]:
        """Be in a block of this kind."""
        if self._open is None or type(self._open.begun) is not type(begun):
            yield from self._begin(begun)

    def _begin(self, begun: AnswerBlock, *, whole: bool = True) -> Iterator[BlockEvent]:
        yield from self.close()
        self._open = Said(begun, whole=whole)
        self._blocks.append(self._open)
        yield BlockStart(self._last, begun)

    def _add(self, text: str, piece: TextPiece | ThinkingPiece | InputPiece) -> BlockDelta:
        self._blocks[-1].texts.append(text)
        return self._more(piece)

    def _more(self, piece: TextPiece | ThinkingPiece | InputPiece | SignaturePiece) -> BlockDelta:
        return BlockDelta(self._last, piece)

    @property
    def _last(self) -> int:
        return len(self._blocks) - 1

    def _signature(self, said: Said) -> str:
        return signature(said.text, shown=self._shows_thinking)

    def _written(self, said: Said) -> AnswerBlock:
        match said.begun:
            case TextBlock():
                return TextBlock(said.text)
            case ThinkingBlock():
                return ThinkingBlock(
                    said.text if self._shows_thinking else "", self._signature(said)
                )
            case ToolUseBlock(call_id, name):
                return ToolUseBlock(call_id, name, _input(said.text))


def _input(arguments: str) -> object:
    """The object as the model wrote it, to the last digit; text that is none is shown in one."""
    try:
        msgspec.json.decode(arguments or "{}", type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, RecursionError):
        return {"arguments": arguments}
    return msgspec.Raw((arguments or "{}").encode())
