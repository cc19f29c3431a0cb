"""What the clients do, and how often."""

import random
from collections.abc import Awaitable, Callable

import attrs

from flashrt.bench.soak import chats, rude, wrong
from flashrt.bench.soak.client import Client


@attrs.frozen
class Action:
    """`weight`: parts of all. `needs_key`: only where the server asks for one."""

    weight: int
    run: Callable[[Client, random.Random], Awaitable[None]]
    needs_key: bool = False

    @property
    def name(self) -> str:
        return self.run.__name__


ACTIONS = (
    Action(30, chats.append),
    Action(6, chats.branch),
    Action(6, chats.edit),
    Action(6, chats.regenerate),
    Action(4, chats.side_request),
    Action(2, chats.structured),
    Action(4, chats.completion),
    Action(2, chats.tokens),
    Action(8, chats.probe),
    Action(12, rude.hang_up),
    Action(3, rude.slow_reader),
    Action(1, rude.stopped_reader),
    Action(3, rude.pipelined),
    Action(2, rude.pipelined_and_gone),
    Action(3, rude.garbage),
    Action(3, wrong.bad_json),
    Action(3, wrong.bad_field),
    Action(1, wrong.bad_type),
    Action(2, wrong.bad_key, needs_key=True),
    Action(2, wrong.foreign),
    Action(2, wrong.unknown_route),
    Action(2, wrong.long_prompt),
    Action(1, wrong.large_body),
)


def drawn(seed: int, number: int, *, has_key: bool) -> tuple[Action, random.Random]:
    """Action `number` of the soak `seed`, and the dice for what is in it."""
    rng = random.Random(f"{seed} {number}")
    possible = [action for action in ACTIONS if has_key or not action.needs_key]
    return rng.choices(possible, [action.weight for action in possible])[0], rng
