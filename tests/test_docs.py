"""What the repository says about itself is true, complete, and says nothing about anywhere else."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import flashrt.errors
from flashrt.cli import main
from flashrt.errors import FlashRTError, Refused
from tests.source import ROOT, Module, files, modules

SERVE = "pip install -e . && flashrt serve"
TEST = "pip install -e '.[test]' && pytest -n 2 --dist loadfile"

TEXTS = [
    file
    for file in files()
    if file.suffix in {".md", ".py", ".toml", ".jinja", ".yml", ".cfg"} or file.parent.name == ".ci"
]
PAGES = [file for file in TEXTS if file.suffix == ".md"]
TESTS = [module for module in modules("tests") if module.path.name.startswith("test_")]
ERRORS = [
    error
    for _, error in inspect.getmembers(flashrt.errors, inspect.isclass)
    if issubclass(error, FlashRTError) and error is not FlashRTError
]

# What belongs to some machine and to no project. Written so that no pattern matches itself.
FOREIGN = [
    r"/(?:work|root|tmp/venv|tmp/flashrt)[/-]",
    r"https?://[^\s/\"']*(?:py[p]i|pythonhost[e]d|npm[j]s|deb[i]an)",
    r"\.librar[y]/",
]
UNFINISHED = r"\b(?:TOD[O]|FIXM[E]|XX[X])\b"
VAGUE_NAMES = r"(?:^|_)(?:util|utils|helpers?|manager|handler|misc|common|data|info)\.py$"


def relative(path: Path) -> str:
    """A file of the repository as people write it."""
    return str(path.relative_to(ROOT))


def function_nodes(module: Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every test function of a module."""
    return [
        node
        for node in ast.walk(ast.parse(module.text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    ]


@pytest.mark.parametrize("command", [SERVE, TEST])
def test_the_readme_has_the_command(command: str):
    """Two commands do all the set-up on a fresh machine, and the README prints them as they are."""
    assert command in (ROOT / "README.md").read_text().splitlines()


def test_the_ci_script_ends_with_the_readmes_test_command():
    """What CI runs last is what a newcomer is told to run, so its output ends with the verdict."""
    lines = [line.strip() for line in (ROOT / ".ci" / "run").read_text().splitlines() if line]

    assert lines[-1] == TEST


def test_every_flag_of_serve_is_in_the_settings_page(capsys: pytest.CaptureFixture[str]):
    """Whatever `flashrt serve --help` offers, docs/settings.md explains."""
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    flags = set(re.findall(r"--[a-z][a-z-]+", capsys.readouterr().out)) - {"--help"}
    page = (ROOT / "docs" / "settings.md").read_text()

    assert len(flags) > 10
    assert [flag for flag in sorted(flags) if f"`{flag}`" not in page] == []


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_every_error_is_in_the_drawn_tree(error: type[FlashRTError]):
    """The tree at the top of `flashrt/errors.py` has every class, with its HTTP status."""
    (line,) = [
        line
        for line in flashrt.errors.__doc__.splitlines()
        if re.search(rf"─ {error.__name__}\b", line)
    ]

    if issubclass(error, Refused) and error is not Refused:
        assert str(error.status) in line


def test_a_new_errors_status_is_one_that_routers_know():
    """Requests are refused with a status of the client's side, or 503: go elsewhere."""
    statuses = {error.status for error in ERRORS if issubclass(error, Refused)}

    assert all(400 <= status < 500 or status == 503 for status in statuses)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page: Path):
    """A relative link names a file that exists."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose)

    missing = [
        target for target in targets if "://" not in target and not (page.parent / target).exists()
    ]

    assert missing == []


@pytest.mark.parametrize("file", TEXTS, ids=relative)
def test_no_text_names_a_place_outside(file: Path):
    """No path of somebody's machine, and no host of a package registry."""
    found = [
        f"{number}: {line.strip()}"
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if any(re.search(pattern, line) for pattern in FOREIGN)
    ]

    assert found == []


@pytest.mark.parametrize("file", TEXTS, ids=relative)
def test_texts_are_tidy(file: Path):
    """Nothing is left unfinished, no line ends in spaces, and the file ends with a newline."""
    text = file.read_text()

    assert re.findall(UNFINISHED, text) == []
    assert [line for line in text.splitlines() if line != line.rstrip()] == []
    assert not text or (text.endswith("\n") and not text.endswith("\n\n"))


def test_no_file_has_a_name_that_says_nothing():
    """A module is named for the one noun that it is about."""
    names = [relative(file) for file in files() if file.suffix == ".py"]

    assert [name for name in names if re.search(VAGUE_NAMES, Path(name).name)] == []


@pytest.mark.parametrize("module", TESTS, ids=str)
def test_every_test_states_its_law(module: Module):
    """A test's name is a law in the present tense, and its docstring says it in a sentence."""
    nodes = function_nodes(module)

    assert [node.name for node in nodes if not ast.get_docstring(node)] == []
    assert [node.name for node in nodes if "should" in node.name.split("_")] == []


@pytest.mark.parametrize("module", TESTS, ids=str)
def test_tests_use_real_parts_and_real_events(module: Module):
    """No mocks, and nothing waits for a number of seconds and hopes."""
    names = {name for _, name in module.imports()}

    assert [name for name in names if name.startswith("unittest.mock")] == []
    assert "time.sleep" not in names
    assert re.findall(r"\btime\.sleep\(", module.text.replace(r"\btime\.sleep\(", "")) == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (FOREIGN[0], "see /" + "work/model"),
        (FOREIGN[0], "in /" + "root/.cache"),
        (FOREIGN[1], "https://" + "py" + "pi.example/simple"),
        (UNFINISHED, "# TO" + "DO: later"),
        (VAGUE_NAMES, "string_utils.py"),
        (VAGUE_NAMES, "helpers.py"),
    ],
)
def test_the_patterns_find_what_they_are_for(pattern: str, text: str):
    """A pattern that matches nothing would pass everything."""
    assert re.search(pattern, text)


@pytest.mark.parametrize("name", ["journal.py", "metadata.py", "test_turn_loop.py"])
def test_good_names_are_left_alone(name: str):
    """Only a whole word counts."""
    assert not re.search(VAGUE_NAMES, name)
