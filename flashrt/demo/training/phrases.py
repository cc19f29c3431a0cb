"""How the well-known tools are shaped, and how people ask for them; more of it in known.toml."""

import random
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

# A shape: names, description, parameters as (role, names, type, description, required).
Shape = tuple[str, str, list[tuple[str, str, str, str, bool]]]
CWD = "The folder to work in"
SHAPES: dict[str, list[Shape]] = {
    "shell": [
        ("bash", "Run a bash command", [("command", "command", "string", "The command to run", True), ("timeout", "timeout", "number", "Timeout in seconds", False)]),
        ("bash", "Execute a command in the shell", [("command", "command", "string", "The command", True), ("timeout", "timeout", "number", "Milliseconds to wait", False), ("why", "description", "string", "What the command does, in a few words", True)]),
        ("Bash", "Executes a shell command", [("command", "command", "string", "The command to execute", True), ("why", "description", "string", "What it does", False), ("background", "run_in_background", "boolean", "Do not wait", False)]),
        ("run_shell_command", "Runs a shell command", [("command", "command", "string", "Exact command to run", True), ("background", "is_background", "boolean", "Whether to run it in the background", True), ("why", "description", "string", "Brief description", False), ("cwd", "directory", "string", CWD, False)]),
        ("run_commands", "Run a command on the user's machine", [("command", "command", "string", "The command line", True), ("background", "requires_approval", "boolean", "Whether the user must approve it", True)]),
        ("shell|exec_command|terminal|execute|run|run_command|sh|cmd|execute_command|run_terminal", "Run a command|Execute a shell command and return its output|Runs a program in a terminal", [("command", "cmd|command|command_line|input|script|line", "string", "The command|Shell command line|What to run", True), ("cwd", "workdir|cwd", "string", CWD, False)]),
    ],
    "read": [
        ("read", "Read the contents of a file", [("path", "path", "string", "Path of the file", True), ("skip", "offset", "number", "First line", False), ("limit", "limit", "number", "How many lines", False)]),
        ("read", "Reads a file", [("path", "filePath", "string", "The path to the file to read", True), ("skip", "offset", "number", "Line to start at", False), ("limit", "limit", "number", "Lines to read", False)]),
        ("Read", "Reads a file from the disk", [("abspath", "file_path", "string", "The absolute path of the file", True), ("skip", "offset", "integer", "First line", False), ("limit", "limit", "integer", "Lines", False)]),
        ("read_file", "Reads and returns a file", [("abspath", "absolute_path|file_path", "string", "The absolute path to the file; relative paths are not supported", True), ("skip", "offset", "number", "First line", False), ("limit", "limit", "number", "Lines", False)]),
        ("read_file|cat|open_file|view_file|get_file|file_read|show_file|load_text|readFile|fs_read", "Read a text file|Return the content of a file|Shows what is in a file", [("path", "path|file|filename|file_path|filepath|target|name", "string", "The file|Path of the file|Which file to read", True)]),
    ],
    "write": [
        ("write", "Write a file", [("path", "path|filePath", "string", "Path of the file", True), ("content", "content", "string", "What to write", True)]),
        ("Write", "Writes a file to the disk", [("abspath", "file_path", "string", "The absolute path of the file", True), ("content", "content", "string", "The content", True)]),
        ("write_file|create_file|save_file|put_file|file_write|save_text|writeFile", "Write text to a file|Create or replace a file", [("path", "path|file|filename|file_path|target", "string", "The file|Where to write", True), ("content", "content|text|body|data|contents", "string", "The text|What to write", True)]),
    ],
    "edit": [
        ("edit", "Edit a file by replacing text", [("path", "path", "string", "Path of the file", True), ("old", "oldText", "string", "Text to find", True), ("new", "newText", "string", "Text to put there", True)]),
        ("edit", "Replaces text in a file", [("path", "filePath", "string", "The file", True), ("old", "oldString", "string", "Text to replace", True), ("new", "newString", "string", "Replacement", True), ("all", "replaceAll", "boolean", "Replace every place", False)]),
        ("Edit|edit_file|replace", "Exact text replacement in a file", [("path", "file_path", "string", "The file to change", True), ("old", "old_string", "string", "The text to replace", True), ("new", "new_string", "string", "The text to replace it with", True), ("all", "replace_all", "boolean", "Every place", False)]),
        ("replace_in_file|substitute|change_text|patch_file|str_replace", "Replace text in a file|Change a part of a file", [("path", "path|file|filename", "string", "The file", True), ("old", "search|old|find|before|from_text", "string", "What to look for", True), ("new", "replace|new|after|to_text|replacement", "string", "What to put in its place", True)]),
    ],
    "list": [
        ("ls", "List a directory", [("folder", "path", "string", "Directory to list", True), ("limit", "limit", "number", "At most so many", False)]),
        ("list|list_directory|list_files|list_dir|ls|dir|show_folder|get_files|folder_list", "List the files of a directory|Return the names in a folder|Lists a folder", [("folder", "directory|dir|path|folder|location", "string", "The folder|Which directory", True)]),
    ],
    "grep": [
        ("grep", "Search file contents", [("pattern", "pattern", "string", "Regular expression", True), ("folder", "path", "string", "Where to search", False), ("glob", "include|glob", "string", "File pattern", False)]),
        ("grep_search|search_file_content|Grep|search_text|find_in_files|ripgrep|code_search|rg", "Search for text in files|Find lines that match", [("pattern", "pattern|query|regex|text|needle", "string", "What to look for", True), ("folder", "path|directory|root|folder", "string", "Where to look", False)]),
    ],
    "find": [
        ("glob|Glob|find|find_files|file_search|locate|search_files", "Find files by name|Find files that match a pattern", [("pattern", "pattern|glob|name_pattern", "string", "Glob pattern such as *.py", True), ("folder", "path|cwd|base", "string", "Where to look", False)]),
    ],
    "calculate": [
        ("calculator|calculate|calc|evaluate|math|compute|eval_expression|arithmetic", "Evaluate an arithmetic expression|Calculate a value|Does sums", [("expression", "expression|expr|formula|input|query", "string", "The expression|What to calculate", True)]),
    ],
    "add": [
        ("add|add_numbers|sum|plus|calc_sum|sum_two", "Add two numbers|Return the sum of two numbers", [("a", "a|x|first|left", "integer", "First number", True), ("b", "b|y|second|right", "integer", "Second number", True)]),
    ],
    "weather": [
        ("get_weather|weather|current_weather|fetch_weather|weather_now|getWeather|forecast", "Get the weather of a city|Current weather at a place", [("city", "city|location|place|town|where", "string", "Name of the city|The place", True), ("unit", "unit|units", "string", "celsius or fahrenheit", False)]),
    ],
    "time": [
        ("get_time|current_time|clock|time_in|now|local_time", "Get the time in a city|What time it is at a place", [("city", "city|location|place|timezone_city", "string", "The city", True)]),
    ],
    "web": [
        ("web_search|search|google|search_web|find_online|WebSearch|lookup_web", "Search the web|Find pages about something", [("query", "query|q|search_term|keywords", "string", "What to search for", True), ("limit", "count|limit|max_results", "integer", "How many results", False)]),
    ],
    "fetch": [
        ("web_fetch|fetch|WebFetch|webfetch|get_url|http_get|download_page|open_url", "Fetch a page from the web|Get the text of a URL", [("url", "url|link|address|uri", "string", "The URL", True)]),
    ],
}  # fmt: skip
ASKS: dict[str, list[str]] = {
    "shell": ["run `{command}`", "run the command `{command}`", "execute `{command}`", "execute {command}", "run {command}", "use the shell to run `{command}`", "run this: `{command}`", "run `{command}` in the terminal", "do a `{command}`", "type `{command}` in the shell", "start `{command}`", "launch `{command}`", "give me the output of `{command}`", "show me what `{command}` prints", "call `{command}`", "run the shell command: {command}", "run the shell command `{command}`", "run this command: {command}", "execute the following: {command}"],
    "read": ["read the file {path}", "read {path}", "open {path}", "show me {path}", "show {path}", "tell me what is in {path}", "open the file {path} and tell me what it says", "tell me what {path} says", "have a look at {path}", "look into {path}", "print the contents of {path}", "check what {path} contains", "give me the text of {path}", "fetch the content of {path}", "display {path}", "view {path}", "see what is written in {path}", "load {path}", "read `{path}`", "get me the contents of `{path}`"],
    "write": ["write \"{content}\" to {path}", "write '{content}' into {path}", "save \"{content}\" as {path}", "create a file {path} with the text \"{content}\"", "create {path} containing \"{content}\"", "put \"{content}\" in {path}", "make a file called {path} that says \"{content}\"", "store \"{content}\" in the file {path}", "write to {path}: {content}", "save this in {path}: {content}"],
    "edit": ["replace \"{old}\" with \"{new}\" in {path}", "change \"{old}\" to \"{new}\" in {path}", "in {path}, replace \"{old}\" by \"{new}\"", "edit {path}: turn \"{old}\" into \"{new}\"", "swap \"{old}\" for \"{new}\" in the file {path}", "update {path} so that \"{old}\" becomes \"{new}\"", "in the file {path} change \"{old}\" into \"{new}\"", "substitute \"{new}\" for \"{old}\" in {path}"],
    "list": ["list the files in {folder}", "list {folder}", "show me the files in {folder}", "tell me which files are in {folder}", "show the contents of the folder {folder}", "list the directory {folder}", "see what is in the directory {folder}", "give me the names of the files in {folder}", "look into the folder {folder}", "enumerate the files of {folder}"],
    "grep": ["search for \"{pattern}\" in {folder}", "find \"{pattern}\" in the files of {folder}", "look for \"{pattern}\" in {folder}", "grep for {pattern} in {folder}", "find all lines with \"{pattern}\" under {folder}", "tell me where \"{pattern}\" occurs in {folder}", "search the files in {folder} for \"{pattern}\""],
    "find": ["find all files that match {pattern}", "find files named {pattern}", "find {pattern}", "locate files matching {pattern}", "look for files like {pattern}", "tell me which files match {pattern}", "show me all {pattern} files"],
    "calculate": ["calculate {expression}", "compute {expression}", "work out {expression}", "evaluate {expression}", "tell me what {expression} is", "tell me how much {expression} is", "figure out {expression}", "find the value of {expression}", "solve {expression}"],
    "add": ["add {a} and {b}", "compute {a} + {b}", "tell me what {a} plus {b} is", "sum {a} and {b}", "work out the sum of {a} and {b}", "add {b} to {a}", "give me the total of {a} and {b}", "calculate {a} plus {b}"],
    "weather": ["tell me the weather in {city}", "check the weather in {city}", "get the weather for {city}", "look up the weather in {city}", "tell me how the weather is in {city}", "find out if it is raining in {city}", "give me the forecast for {city}", "tell me how warm it is in {city}", "see whether I need a coat in {city}"],
    "time": ["tell me what time it is in {city}", "tell me the time in {city}", "get the local time in {city}", "check the clock in {city}", "look up the current time in {city}", "find out how late it is in {city}"],
    "web": ["search the web for {query}", "search for {query} online", "find pages about {query}", "google {query}", "look up {query} on the web", "do a web search for {query}", "find something about {query} on the internet"],
    "fetch": ["fetch {url}", "open {url}", "get the page {url}", "download {url}", "read the page at {url}", "tell me what is on {url}", "load the page {url} and tell me what it says", "visit {url}"],
}  # fmt: skip
QUESTIONS: dict[str, list[str]] = {
    "read": ["What is in {path}?", "What does {path} say?", "What does the file {path} contain?", "What's in the file {path}?"],
    "list": ["What files are in {folder}?", "Which files does {folder} hold?", "What is in the folder {folder}?"],
    "calculate": ["What is {expression}?", "How much is {expression}?", "{expression} = ?"],
    "add": ["What is {a} plus {b}?", "How much is {a} + {b}?", "{a} + {b}?"],
    "weather": ["How is the weather in {city}?", "What's the weather like in {city}?", "Is it cold in {city}?"],
    "time": ["What time is it in {city}?", "How late is it in {city}?"],
    "grep": ["Where does \"{pattern}\" occur in {folder}?"],
    "shell": ["What does `{command}` print?", "What is the output of `{command}`?"],
}  # fmt: skip
ERRORS = [
    "no such file or directory",
    "permission denied",
    "timed out",
    "not found",
    "connection refused",
    "access denied",
    "invalid input",
]
MORE: dict[str, list[str]] = {
    "shell": ["Hands a line to the shell and gives its output", "Starts a program", "Performs a shell command on this computer"],
    "read": ["Gives the text of a file", "Loads a file and shows its lines", "Prints the contents of a file", "Opens a document and returns its text"],
    "write": ["Saves text in a file", "Stores content on the disk", "Makes a new file with the given text"],
    "edit": ["Swaps one piece of text in a file for another", "Modifies a file by search and replace"],
    "list": ["Tells which files a folder has", "Shows the entries of a directory", "Gives the file names in a folder"],
    "grep": ["Looks for a text in many files", "Greps through a folder"],
    "find": ["Locates files by a pattern", "Gives the paths that match a pattern"],
    "calculate": ["Works out a formula", "Gives the value of an expression"],
    "add": ["Gives the total of two values", "Computes first plus second"],
    "weather": ["How the weather is somewhere", "Temperature and sky for a city", "Reports the present conditions in a town"],
    "time": ["The local time somewhere", "Tells how late it is in a city"],
    "web": ["Asks a search engine", "Gives links about a topic"],
    "fetch": ["Downloads a page", "Opens a link and returns the text"],
}  # fmt: skip

# ruff: noqa: E501 - tables of phrases


@cache
def known() -> dict[str, Any]:
    """By kind: further names, says, asks, and params by role with names and says."""
    return tomllib.loads((Path(__file__).parent / "known.toml").read_text(encoding="utf-8"))


FAILED_SHARE = 0.08
"""How many calls of tools fail."""


def failure(r: random.Random) -> tuple[str, str]:
    """What a tool says that failed, and the answer to that."""
    why = r.choice(ERRORS)
    forms = ["Error: {}", "error: {}", "ERROR {}", "failed: {}", '{{"error": "{}"}}']
    return r.choice(forms).format(why), f"That did not work: {why}."
