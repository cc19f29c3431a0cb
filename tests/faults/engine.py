"""Faults in the engines: the real one, and the fake's strictness."""

from tests.faults.fault import Fault

FAKE = ("tests/engine/test_contract.py",)
REAL = ("tests/engine/test_hybrid.py",)
MODEL = ("tests/engine/test_model.py",)
DELTA = ("tests/engine/test_delta.py",)
LINEAR = ("tests/engine/test_linear.py",)
FFN = ("tests/engine/test_ffn.py",)
CHECKPOINT = ("tests/engine/test_checkpoint.py",)
SAMPLER = ("tests/engine/test_sampler.py",)

FAULTS = (
    Fault(
        "a rollback that forgets the convolution",
        "flashrt/engine/live.py",
        "        self.anchor = min(self.anchor, chunk)\n        self.take_back(position)",
        "        self.anchor = min(self.anchor, chunk)\n        self.take_back(position)\n"
        "        self.buffers.raw.zero_()",
        REAL,
        "the first ids after a rolled-back draft would be computed without their last inputs (G4)",
    ),
    Fault(
        "a capsule that forgets the convolution",
        "flashrt/engine/live.py",
        '        b.raw[:, self._before(position)] = saved["raw"]\n',
        "",
        REAL,
        "a restored session would go on with the inputs of the one before it (G4)",
    ),
    Fault(
        "a snapshot that forgets the window",
        "flashrt/engine/live.py",
        '"values": b.values[:, slot, :rows].clone()',
        '"values": b.values[:, slot, :rows].clone().zero_()',
        REAL,
        "up to 63 tokens before the capsule would be forgotten by the recurrent layers (G4)",
    ),
    Fault(
        "a capsule that shares its memory with the live state",
        "flashrt/engine/live.py",
        '"kv": b.kv[:, :, :, :position].clone()',
        '"kv": b.kv[:, :, :, :position]',
        REAL,
        "the next request would change what was saved",
    ),
    Fault(
        "a snapshot by length with the anchor of now",
        "flashrt/engine/live.py",
        "return self.buffers.anchors[:, chunk % 2].clone()",
        "return self.buffers.anchors[:, self.anchor % 2].clone()",
        REAL,
        "a capsule taken one chunk back would remember what came later (G2)",
    ),
    Fault(
        "a restore that keeps the old pending id",
        "flashrt/engine/hybrid.py",
        "self._journal = list(capsule.tokens)",
        "self._journal = [*capsule.tokens[: capsule.position], *self._journal[-1:]]",
        REAL,
        "the restored session would go on with a word of another one",
    ),
    Fault(
        "a stop token left processed",
        "flashrt/engine/hybrid.py",
        "            if params.stop_ids.intersection(accepted):\n                return",
        "            if params.stop_ids.intersection(accepted):\n"
        "                self._guard(self._live.process_rows, accepted[-1:])\n"
        "                return",
        REAL,
        "the state would have read a token that most templates write differently (G2)",
    ),
    Fault(
        "a rollback that reaches below the restore",
        "flashrt/engine/live.py",
        "self.position, self.anchor, self.floor = position, chunk, position",
        "self.position, self.anchor, self.floor = position, chunk, 0",
        REAL,
        "rows that no capsule holds would be taken for the session's own",
    ),
    Fault(
        "a fold that is stored too late",
        "flashrt/engine/live.py",
        "while self.anchor < self.position // CHUNK:",
        "while self.anchor < (self.position - 1) // CHUNK:",
        REAL,
        "a row's bits would depend on how the rows before it were grouped",
    ),
    Fault(
        "a step that fails and keeps its state",
        "flashrt/engine/hybrid.py",
        "            return step(*arguments)\n        except Exception as error:\n"
        "            self._forget()\n",
        "            return step(*arguments)\n        except Exception as error:\n",
        REAL,
        "a state that is half written would be gone on from (G2)",
    ),
    Fault(
        "a stale generator that may go on",
        "flashrt/engine/hybrid.py",
        "            if self._epoch != epoch:",
        "            if False:",
        REAL,
        "two sessions could be mixed by resuming the older one",
    ),
    Fault(
        "a bare number of rows",
        "flashrt/engine/linear.py",
        "linear(pad_rows(part, GROUP), weight)[: len(part)]",
        "linear(part, weight)",
        LINEAR,
        "a row's bits would depend on how many rows were drafted beside it (G4b)",
    ),
    Fault(
        "logits that are rounded together",
        "flashrt/engine/linear.py",
        "    wide = x.float()\n"
        "    return torch.cat([rows_linear(wide, part.float()) for part in "
        "weight.split(HEAD_BLOCK)], dim=1)",
        "    return rows_linear(x, weight).float()",
        LINEAR,
        "in bfloat16 many ids would tie, and ties go to the lowest id",
    ),
    Fault(
        "a row that sees the one after it",
        "flashrt/engine/attention.py",
        "attend_row(q[r].float(), kv, position + r + 1)",
        "attend_row(q[r].float(), kv, position + r + 2)",
        ("tests/engine/test_attention.py",),
        "a stale or drafted key would change the text",
    ),
    Fault(
        "a window that multiplies where it must select",
        "flashrt/engine/delta.py",
        "torch.where(slots[:, None, None] < w, state.values[slot], 0)",
        "(slots[:, None, None] < w) * state.values[slot]",
        REAL,
        "whatever lies in a stale row, a NaN say, would get into the sums",
    ),
    Fault(
        "a corrected value that forgets its window",
        "flashrt/engine/delta.py",
        "u = beta[:, None] * (v.float() - seen[:, 0])",
        "u = beta[:, None] * v.float()",
        DELTA,
        "the delta rule would be plain linear attention: fluent, and wrong",
    ),
    Fault(
        "a decay that starts in the middle of a chunk",
        "flashrt/engine/delta.py",
        "        G[0, :, :ahead] = state.decays[slot, :ahead].T\n",
        "",
        DELTA,
        "a block that completes an open window would weigh its old rows wrongly",
    ),
    Fault(
        "noise keyed by step instead of position",
        "flashrt/engine/sampler.py",
        "gumbel(params.seed, len(journal), ids)",
        'gumbel(params.seed, self.__dict__.update(n=self.__dict__.get("n", 0) + 1) or self.n, ids)',
        (*SAMPLER, *REAL),
        "a restored or drafted text would differ from the one that never left (G4)",
    ),
    Fault(
        "noise that does not know the seed",
        "flashrt/engine/sampler.py",
        "key = _mixed((_mixed(seed & MASK64) + position * GOLDEN) & MASK64)",
        "key = _mixed((position * GOLDEN) & MASK64)",
        SAMPLER,
        "every seed would give the same text",
    ),
    Fault(
        "padding ids that can be chosen",
        "flashrt/engine/sampler.py",
        "scores = logits[: self.sampleable]\n",
        "scores = logits\n",
        SAMPLER,
        "ids that stand for no token would be sampled and could not be read",
    ),
    Fault(
        "counts of the prompt in the answer's penalties",
        "flashrt/engine/sampler.py",
        "np.add.at(self._answer, ids[max(0, self._start - at) :], step)",
        "np.add.at(self._answer, ids, step)",
        SAMPLER,
        "a long prompt would push its own words out of the answer",
    ),
    Fault(
        "a fake that rolls back below its restore",
        "flashrt/engine/fake.py",
        "        self._pending = next(iter(capsule.tokens[capsule.position :]), None)\n"
        "        self._floor = self.position",
        "        self._pending = next(iter(capsule.tokens[capsule.position :]), None)\n"
        "        self._floor = 0",
        FAKE,
        "the walks would pass with a core that the real engine refuses",
    ),
    Fault(
        "a fake that processes its stop token",
        "flashrt/engine/fake.py",
        "            drafted = len(accepted) - 1",
        "            if accepted[-1] in params.stop_ids:\n"
        "                self._processed.append(accepted[-1])\n"
        "                self._pending = None\n"
        "            drafted = len(accepted) - 1",
        FAKE,
        "the walks would pass with a core that leaves a stop token behind",
    ),
    Fault(
        "equal experts from the highest index down",
        "flashrt/engine/ffn.py",
        "    ordered = logits.softmax(-1).sort(dim=-1, descending=True, stable=True)\n",
        "    ordered = logits.softmax(-1).sort(dim=-1, stable=True)\n"
        "    ordered = torch.return_types.sort(tuple(x.flip(-1) for x in ordered))\n",
        FFN,
        "which experts serve a row would be another choice than the one that is written down",
    ),
    Fault(
        "a shared expert without its gate",
        "flashrt/engine/ffn.py",
        "shared * scores[:, -1:].sigmoid()",
        "shared",
        FFN,
        "a mixture of experts would be fluent, and wrong",
    ),
    Fault(
        "padding that asks for experts",
        "flashrt/engine/ffn.py",
        "_by_expert(chosen[: go.count],",
        "_by_expert(chosen,",
        FFN,
        "each decoded token would read the weights of experts that no token chose",
    ),
    Fault(
        "up rows of an expert where its gate rows belong",
        "flashrt/engine/tensor_plan.py",
        "gate, up = gate_up[e].split(inner)",
        "up, gate = gate_up[e].split(inner)",
        CHECKPOINT,
        "experts that are stored one by one would be computed inside out",
    ),
    Fault(
        "an MTP layer that may be incomplete",
        "flashrt/engine/checkpoint.py",
        "missing = [key for key in slots if key not in keys]",
        "missing = [key for key in slots if key not in keys and not key.startswith(MTP_PREFIX)]",
        CHECKPOINT,
        "drafts would come from memory that nothing has filled: never accepted, and nobody told",
    ),
)
