"""Faults in what quantized checkpoints become."""

from tests.faults.fault import Fault

FORMS = ("tests/engine/test_forms.py",)
MATRIX = ("tests/engine/test_matrix.py",)
PLAN = ("tests/engine/test_tensor_plan.py",)
LINEAR = ("tests/engine/test_linear.py",)
SPELLINGS = ("tests/engine/test_spellings.py",)
REPACK = ("tests/engine/test_repack.py",)
CLAIMS = ("tests/engine/test_claims.py",)
STREAMING = ("tests/engine/test_streaming.py",)
CHECKPOINTS = ("tests/engine/test_packed_checkpoints.py",)
ENGINE = ("tests/engine/test_packed_engine.py",)
NEEDS = ("tests/inspect/test_needs.py",)
TILES = ("tests/engine/kernels/test_tiles.py",)

FAULTS = (
    Fault(
        "parts that are looked for where no run left them",
        "flashrt/engine/kernels/tiles.py",
        "        return ((step + 1) * self.count - 1) // self.total\n",
        "        return step * self.count // self.total\n",
        TILES,
        "gates and ups would be sums with a part missing, or one of another block",
    ),
    Fault(
        "runs without a step",
        "flashrt/engine/kernels/tiles.py",
        "count=min(processors, alike.total))",
        "count=processors)",
        TILES,
        "a part that nobody writes would be added",
    ),
    Fault(
        "an FP8 scale that divides",
        "flashrt/engine/forms.py",
        "return self.weight.float().mul_(scale).to(dtype)",
        "return self.weight.float().div_(scale).to(dtype)",
        REPACK,
        "weight_scale_inv is multiplied, whatever its name says",
    ),
    Fault(
        "blocks of scales that begin anew in a cut",
        "flashrt/engine/forms.py",
        "return Fp8Blocks(self.weight[start:stop], scale, lo % period, period)",
        "return Fp8Blocks(self.weight[start:stop], scale, period=period)",
        FORMS,
        "the MTP layer's keys would be scaled as its queries",
    ),
    Fault(
        "experts that share blocks of scales with the next",
        "flashrt/engine/tensor_plan.py",
        "spec and attrs.evolve(spec, period=rows)",
        "spec",
        PLAN,
        "experts of an odd size would lie apart, and so the model would run by torch",
    ),
    Fault(
        "zeros without their sign",
        "flashrt/engine/forms.py",
        "numbers.sub_(self.zero.float()[..., None])",
        "numbers.add_(self.zero.float()[..., None])",
        FORMS,
        "every int4 weight would be off by twice its zero",
    ),
    Fault(
        "halves of a span mixed up",
        "flashrt/engine/forms.py",
        "return numbers.unflatten(-1, (-1, 2, SPAN // 2)).transpose(-1, -2).flatten(-3)",
        "return numbers.unflatten(-1, (-1, SPAN // 2, 2)).transpose(-1, -2).flatten(-3)",
        ("tests/engine/test_forms.py",),
        "wide int4 would mean other columns",
    ),
    Fault(
        "wide where no kernel reads it",
        "flashrt/engine/forms.py",
        "fits = k % SPAN == 0 and self.group > 0 and self.group % BLOCK == 0",
        "fits = k % SPAN == 0 and self.group > 0",
        ("tests/engine/test_forms.py",),
        "a step would take one group's scale for several",
    ),
    Fault(
        "the upper four bits first",
        "flashrt/engine/repack.py",
        "_every_other(rows), _every_other(rows >> 4)",
        "_every_other(rows >> 4), _every_other(rows)",
        REPACK,
        "neighbours of an NVFP4 row would change places",
    ),
    Fault(
        "a divisor taken for a multiplier",
        "flashrt/engine/repack.py",
        "_fill(row_scale, 1 / value if divides else value)",
        "_fill(row_scale, value)",
        REPACK,
        "the two spellings of NVFP4 differ in exactly this",
    ),
    Fault(
        "zeros of old GPTQ files taken as they are",
        "flashrt/engine/repack.py",
        "form.zero.copy_(zeros.T if awq else zeros.T + offset)",
        "form.zero.copy_(zeros.T)",
        REPACK,
        "every weight would be off by a step, and nothing would say so",
    ),
    Fault(
        "AWQ in the order of its words",
        "flashrt/engine/repack.py",
        "    ordered[..., list(AWQ_ORDER)] = mixed\n",
        "    ordered.copy_(mixed)\n",
        REPACK,
        "rows would change places by the eight",
    ),
    Fault(
        "an order of columns that is not looked at",
        "flashrt/engine/repack.py",
        "    if not torch.equal(stored.long(), plain):\n",
        "    if len(stored) != k:\n",
        REPACK,
        "checkpoints made with desc_act would load as noise",
    ),
    Fault(
        "any number of scales",
        "flashrt/engine/repack.py",
        "    if tensor.shape not in shapes:\n",
        "    if len(tensor.shape) > 4:\n",
        REPACK,
        "what does not fit would be read as something else, or fail without a name",
    ),
    Fault(
        "a scale that may be missing",
        "flashrt/engine/spellings.py",
        "[one for one in fitting if all(ending in tensors for ending in one.needed)]",
        "fitting",
        SPELLINGS,
        "half a matrix would fail later and without its name",
    ),
    Fault(
        "left-over scales that nobody mentions",
        "flashrt/engine/spellings.py",
        "        raise _without_numbers(tensors, plain)\n",
        "        return StoredMatrix(key, FP8, {})\n",
        SPELLINGS,
        "a pack that was converted in part would be served as if it were whole",
    ),
    Fault(
        "eight bits that are never not-a-number",
        "flashrt/engine/streaming.py",
        "    if values.dtype == torch.float8_e4m3fn:",
        "    if values.dtype == torch.float8_e4m3fn and values.dim() > 5:",
        STREAMING,
        "a damaged scale would turn every answer into nothing",
    ),
    Fault(
        "lists of config.json that are believed",
        "flashrt/engine/claims.py",
        "    odd = [key for key in sorted(quantized) if not claims.quantizes(key)]\n",
        "    odd: list[str] = []\n",
        CLAIMS,
        "nobody would be told that a checkpoint is not what it says",
    ),
    Fault(
        "rotations that nobody does",
        "flashrt/engine/claims.py",
        '    if isinstance(transforms, Mapping) and transforms.get("config_groups"):\n',
        "    if transforms == []:\n",
        CLAIMS,
        "such a checkpoint would load, and answer with noise",
    ),
    Fault(
        "slices that depend on the rows",
        "flashrt/engine/linear.py",
        "        return _by_slices(x, dense_slices(weight, x.dtype))\n",
        "        return block_linear(x, weight)\n",
        LINEAR,
        "a row's bits would depend on its neighbours (G4)",
    ),
    Fault(
        "packed logits that are rounded together",
        "flashrt/engine/linear.py",
        "        return _by_slices(wide, dense_slices(weight, wide.dtype))\n",
        "        return _by_slices(x, dense_slices(weight, x.dtype)).float()\n",
        LINEAR,
        "in bfloat16 many ids would tie, and ties go to the lowest id",
    ),
    Fault(
        "the whole matrix at once",
        "flashrt/engine/matrix.py",
        "    count = max(1, SLICE_NUMBERS // matrix.shape[1])\n",
        "    count = len(matrix)\n",
        MATRIX,
        "a product would take as much memory as the plain matrix, which nobody has counted",
    ),
    Fault(
        "blocks joined where none ends",
        "flashrt/engine/tensor_plan.py",
        "(spec and rows % spec.aligned_rows)",
        "False",
        CHECKPOINTS,
        "v would be scaled as k, in models whose heads are no multiple of 128",
    ),
    Fault(
        "a meaning that is in no digest",
        "flashrt/engine/checkpoint.py",
        "            digest.update(repr((key, matrix.zero_offset)).encode())\n",
        "            pass\n",
        CHECKPOINTS,
        "a state of one meaning would be restored into the other (G4)",
    ),
    Fault(
        "packed weights counted as plain ones",
        "flashrt/engine/memory.py",
        "made = allocate_all(self.config, META, self.placement.dtype, self.layout)",
        "made = allocate_all(self.config, META, self.placement.dtype, Layout())",
        CHECKPOINTS,
        "a model that fits would be refused, or its window cut short",
    ),
    Fault(
        "a window with what else is asked for",
        "flashrt/inspect/needs.py",
        "windows=tuple(Window.of(needs.of(window, available)) for window in windows),",
        "windows=tuple(Window.of(needs.of(windows[0], available)) for window in windows),",
        NEEDS,
        "people would buy a card that is too small",
    ),
)
