"""How decode went: its steps, and what became of drafts."""

import attrs


@attrs.define
class DraftStats:
    """What drafts came to, over the decode steps that had one.

    `tokens`: journal ids that those steps added. `accepted_per_position`: how often the draft's
    first, second, ... id was right and became part of the answer.
    """

    steps: int = 0
    tokens: int = 0
    attempts: int = 0
    accepted_per_position: list[int] = attrs.field(factory=list)

    @property
    def accepts(self) -> int:
        """Drafted ids that became part of the answer."""
        return sum(self.accepted_per_position)

    @property
    def accept_length(self) -> float | None:
        """Journal tokens per decode step that had a draft, mean: 1 if no draft was ever right."""
        return round(self.tokens / self.steps, 3) if self.steps else None

    def add(self, other: "DraftStats") -> None:
        """Add up."""
        self.steps += other.steps
        self.tokens += other.tokens
        self.attempts += other.attempts
        missing = len(other.accepted_per_position) - len(self.accepted_per_position)
        self.accepted_per_position += [0] * missing
        for position, accepts in enumerate(other.accepted_per_position):
            self.accepted_per_position[position] += accepts


@attrs.define
class GenerationStats:
    """How decode went: its steps, and what each drafter's drafts came to.

    Counts what stands. Ids behind an ending inside a burst are attempts and no accepts.
    """

    decode_steps: int = 0
    by_drafter: dict[str, DraftStats] = attrs.field(factory=dict)

    def count(self, tokens: int, drafted: int, accepted: int, drafter: str) -> None:
        """One decode step that added `tokens` ids; of `drafted` ones the first `accepted` stand."""
        self.decode_steps += 1
        if drafted:
            step = DraftStats(1, tokens, drafted, [1] * accepted)
            self.by_drafter.setdefault(drafter, DraftStats()).add(step)

    def add(self, other: "GenerationStats") -> None:
        """Add up."""
        self.decode_steps += other.decode_steps
        for name, drafts in other.by_drafter.items():
            self.by_drafter.setdefault(name, DraftStats()).add(drafts)

    def report(self) -> dict[str, object]:
        """Over all drafters, then each; steps without a draft are in `decode_steps` only."""
        total = DraftStats()
        for drafts in self.by_drafter.values():
            total.add(drafts)
        return {
            "decode_steps": self.decode_steps,
            "spec_attempts": total.attempts,
            "spec_accepts": total.accepts,
            "accept_length": total.accept_length,
            "accepted_per_position": total.accepted_per_position,
            "drafters": {
                name: {
                    "spec_attempts": drafts.attempts,
                    "spec_accepts": drafts.accepts,
                    "accept_length": drafts.accept_length,
                }
                for name, drafts in self.by_drafter.items()
            },
        }
