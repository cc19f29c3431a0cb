"""`flashrt bench decode`: an id without drafts, verifying more rows, and drafts by the MTP layer.

Times are between two ids that reach the host, host work included.
"""

import itertools
import statistics
from collections.abc import Iterator, Sequence

import attrs

from flashrt.bench.engine.bounds import Bounds
from flashrt.bench.engine.drafting import Oracle, Overwritten
from flashrt.bench.engine.options import Options
from flashrt.bench.engine.report import Figure
from flashrt.bench.engine.subject import GREEDY, Subject
from flashrt.engine.drafting.depth import MTP
from flashrt.engine.protocol import Capsule
from flashrt.engine.speculate import Drafting, NoDrafts

DRAFTS, RIGHT = 3, 2
"""The imposed acceptance: of three drafted ids a step, two are right."""

WARM_UP = 3
"""Steps that are not counted; the first one behind a prompt or a restore processes no row."""


@attrs.frozen
class Run:
    """What a run of steps took, each in milliseconds, and how many ids came in the counted ones."""

    times_ms: tuple[float, ...]
    ids: int

    @property
    def ms_per_id(self) -> float:
        """Over all counted steps."""
        return sum(self.times_ms) / self.ids


def window(options: Options) -> int:
    """Tokens that this needs behind the longest context."""
    return max(options.context) + _text_ids(options) + max((*options.rows, DRAFTS + 1)) + 1


def _text_ids(options: Options) -> int:
    """Ids of the text that the oracle must know."""
    return (WARM_UP + options.repeat + 1) * (RIGHT + 1) + max((*options.rows, DRAFTS))


def measure(subject: Subject, options: Options, bounds: Bounds) -> Iterator[Figure]:
    """All figures at each context, behind the same prompt."""
    for context in options.context:
        capsule = subject.capsule_of(context)
        plain = _run(subject, capsule, NoDrafts(), _text_ids(options))
        text = subject.engine.journal
        one = statistics.median(plain.times_ms)
        yield Figure.of(
            "decode, no drafts",
            context,
            plain.times_ms,
            bounds.step_ms(1, context),
            tokens_per_s=1e3 / plain.ms_per_id,
        )
        for rows in sorted({*options.rows} - {1}):
            yield _verify(subject, options, bounds, capsule, text, rows, one)
        if MTP in subject.engine.info.drafters:
            yield _drafted(subject, options, bounds, capsule, text)


def _verify(
    subject: Subject,
    options: Options,
    bounds: Bounds,
    capsule: Capsule,
    text: Sequence[int],
    rows: int,
    one_row_ms: float,
) -> Figure:
    """A step of `rows` rows whose drafts are all wrong, so that each stands where one row would."""
    context = capsule.position
    run = _run(subject, capsule, Oracle(text, rows - 1, right=0), options.repeat + WARM_UP)
    ratio = statistics.median(run.times_ms) / one_row_ms
    bound = bounds.step_ms(rows, context)
    return Figure.of(f"verify, {rows} rows", context, run.times_ms, bound, against_one_row=ratio)


def _drafted(
    subject: Subject, options: Options, bounds: Bounds, capsule: Capsule, text: Sequence[int]
) -> Figure:
    context, oracle = capsule.position, Oracle(text, DRAFTS, RIGHT)
    drafting = Overwritten(subject.engine.layer_drafts(DRAFTS), oracle)
    run = _run(subject, capsule, drafting, options.repeat + WARM_UP)
    return Figure.of(
        f"step with MTP, {RIGHT} of {DRAFTS} right",
        context,
        run.times_ms,
        bounds.step_ms(1 + DRAFTS, context, drafts=DRAFTS),
        tokens_per_s=1e3 / run.ms_per_id,
        ms_per_token=run.ms_per_id,
    )


def _run(subject: Subject, capsule: Capsule, script: Drafting, steps: int) -> Run:
    """So many steps from a capsule on, drafted by `script`."""
    engine, clock = subject.engine, subject.clock
    engine.restore(capsule)
    engine.script = script
    moments, ids = [clock.now()], []
    for chunk in itertools.islice(engine.decode(GREEDY), steps):
        # An id is on the host, and waiting for the device would take from it that it goes ahead.
        moments.append(clock.on_host())
        ids.append(len(chunk.tokens))
    engine.script = NoDrafts()
    times = [(after - before) * 1e3 for before, after in itertools.pairwise(moments)]
    return Run(tuple(times[WARM_UP:]), sum(ids[WARM_UP:]))
