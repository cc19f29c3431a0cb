"""`flashrt capsules`."""

import json
from pathlib import Path

import pytest

from flashrt.cli import main
from flashrt.disk import CapsuleDirectory
from tests.disk.capsules import holds, made, opened, put


@pytest.fixture
def directory(quick_path: Path) -> CapsuleDirectory:
    """With two capsules and a note."""
    directory = opened(quick_path)
    put(directory, made("a", seed=1))
    put(directory, made("b", seed=2, kib=8))
    directory.write_note("replay", b"ids")
    return directory


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """The exit status, and what was said on stdout."""
    status = main(["capsules", *(str(word) for word in words)])
    return status, capsys.readouterr().out


def damage(file: Path) -> None:
    """Its last byte is another."""
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)


def test_a_list_has_every_capsule(directory, capsys: pytest.CaptureFixture[str]):
    """As a table, and the same as JSON."""
    status, table = run(capsys, directory.path, "list")
    _, text = run(capsys, directory.path, "list", "--json")
    told = json.loads(text)

    assert status == 0
    assert "2 whole, 0 not" in table
    assert {row["key"] for row in told["capsules"]} == {"a", "b"}
    assert all(row["fault"] is None and row["tokens"] == 15 for row in told["capsules"])
    assert len(told["notes"]) == 1
    assert "secret" not in table + text


def test_verify_reads_everything_and_says_what_is_damaged(directory, capsys):
    """Status 1 then; a list, which reads no parts, would not know."""
    assert run(capsys, directory.path, "verify")[0] == 0
    (part,) = [row.name for filed in directory.filed() if filed.key == "a" for row in filed.rows][
        :1
    ]
    damage(directory.path / part)

    status, said = run(capsys, directory.path, "verify")

    assert status == 1
    assert f"{part} is damaged: it does not have its checksum" in said
    assert "1 whole, 1 not" in said
    assert run(capsys, directory.path, "list")[0] == 0


def test_verify_reads_notes(directory, capsys: pytest.CaptureFixture[str]):
    """They are part of what a server goes on with."""
    damage(next(directory.path.glob("note-*")))

    status, said = run(capsys, directory.path, "verify")

    assert status == 1
    assert "1 notes (1 damaged)" in said


def test_prune_lets_damage_go_and_leaves_the_rest(directory, capsys: pytest.CaptureFixture[str]):
    """Files of others stay until they are asked for, and directories in any case."""
    for row in next(filed for filed in directory.filed() if filed.key == "b").rows:
        damage(directory.path / row.name)
    (directory.path / "mine.txt").write_text("mine")
    (directory.path / "folder").mkdir()
    (directory.path / "link").symlink_to(directory.path / "folder")

    status, said = run(capsys, directory.path, "prune", "--json")
    told = json.loads(said)

    assert status == 0
    assert len(told["gone"]) == 2 + 1 + 1  # its rows, its manifest, and the state behind it
    assert told["bytes"] == sum(one["size_bytes"] for one in told["gone"]) > 0
    assert holds(directory, made("a", seed=1))
    assert directory.read_note("replay") == b"ids"
    assert (directory.path / "mine.txt").exists()
    assert run(capsys, directory.path, "verify")[0] == 0

    run(capsys, directory.path, "prune", "--foreign")
    names = {file.name for file in directory.path.iterdir()}
    assert "folder" in names
    assert not {"mine.txt", "link"} & names


def test_prune_goes_down_to_a_budget(directory, capsys: pytest.CaptureFixture[str]):
    """To nothing, where that is asked for."""
    assert "0 files went" in run(capsys, directory.path, "prune", "--budget-mb", 1)[1]

    run(capsys, directory.path, "prune", "--budget-mb", 0)

    assert [file.name for file in directory.path.iterdir()] == ["flashrt-capsules.lock"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("missing", "list"), "missing is no directory of capsules"),
        ((".", "prune", "--foreign"), "is no directory of capsules"),
        ((".", "remove"), "invalid choice: 'remove'"),
        ((".", "list", "--budget-mb", "1"), "are for prune, not list"),
        ((".", "verify", "--foreign"), "are for prune, not verify"),
        ((".", "prune", "--budget-mb", "-1"), "'-1' is no whole number of MiB"),
        ((".", "prune", "--budget-mb", "1.5"), "'1.5' is no whole number of MiB"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_status_2(
    tmp_path: Path, words, said: str, capsys, monkeypatch: pytest.MonkeyPatch
):
    """And nothing is made or removed."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis.tex").write_bytes(b"")

    assert main(["capsules", *words]) == 2

    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert said in shown.err
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]
