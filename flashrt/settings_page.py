"""docs/settings.md, from the settings themselves: python -m flashrt.settings_page."""

import sys

from flashrt.settings import API_KEY, Field, env_name, fields, flag_name, kind


def default_text(field: Field) -> str:
    """The default as a reader would write it; empty if there is none."""
    default = field.default
    if "auto" in field.metadata and default == field.metadata["auto"]:
        return "auto"
    if default is None or default == ():
        return ""
    return str(default).lower() if kind(field) is bool else str(default)


def page() -> str:
    """docs/settings.md."""
    rows = [
        "| flag | variable | in the file | default | what it does |",
        "| --- | --- | --- | --- | --- |",
    ]
    for field in fields():
        text = field.metadata["help"]
        choices = field.metadata.get("choices")
        text += f": {', '.join(choices)}" if choices else ""
        text += " (may be repeated)" if kind(field) is tuple else ""
        key = "" if field.name == "config" else f"`{field.name}`"
        default = f"`{default_text(field)}`" if default_text(field) else ""
        rows.append(f"| `{flag_name(field)}` | `{env_name(field)}` | {key} | {default} | {text} |")
    return _PAGE.format(table="\n".join(rows), key=API_KEY)


_PAGE = """# Settings

<!-- Generated: python -m flashrt.settings_page > docs/settings.md -->

Every setting of `flashrt serve` is a flag, an environment variable, and a key of the TOML file that
`--config` names. Where one is given twice, the flag counts before the variable, and the variable
before the file. Lists are repeated flags, members between commas in a variable, and arrays in the
file. An unknown key or variable, a wrong type, or two settings that contradict each other end the
start with a message that names them.

`{key}` is an API key that is let in, beside those of `--api-key-file`. It has no flag, since
flags can be read by every user of the machine, and no key in the file.

{table}

The process ends with status 0 after SIGTERM or SIGINT, 1 if the engine has died, and 2 if it cannot
be served as asked; then one line on standard error says which setting is wrong and what is allowed.
"""


if __name__ == "__main__":
    sys.stdout.write(page())
