"""Faults that show when values come that nobody thinks of, from a client or from settings."""

from tests.faults.fault import Fault

FOUND = ("tests/fuzz/test_found.py",)
NESTING = ("tests/chat/test_nesting.py", *FOUND)
DOCUMENT = ("tests/http/test_openapi.py",)
SETTINGS = ("tests/fuzz/test_settings.py", *FOUND)

FAULTS = (
    Fault(
        "nesting that nobody counts",
        "flashrt/protocols/fields.py",
        "    if too_deep(fields):",
        "    if False:",
        FOUND,
        "a small body would end the template's recursion with a 500",
    ),
    Fault(
        "nesting counted one level late",
        "flashrt/chat/nesting.py",
        "for _ in range(NESTING_MAX):",
        "for _ in range(NESTING_MAX + 1):",
        NESTING,
        "the limit would not be the one that is told",
    ),
    Fault(
        "deep JSON inside a text",
        "flashrt/chat/messages.py",
        "isinstance(value, dict) and not too_deep(value)",
        "isinstance(value, dict)",
        FOUND,
        "the arguments of a call would bring in the depth that the body may not have",
    ),
    Fault(
        "an origin that is taken for a URL",
        "flashrt/http/security.py",
        '    except ValueError:\n        return ""\n',
        '    except TypeError:\n        return ""\n',
        FOUND,
        "a header would be enough for a 500 on every route",
    ),
    Fault(
        "a websocket that nobody serves",
        "flashrt/http/server.py",
        'if name != b"upgrade"',
        'if name != b"upgrades"',
        FOUND,
        "a handshake with a body would break in hypercorn, with a traceback in the log",
    ),
    Fault(
        "a target without a path",
        "flashrt/http/server.py",
        "if not _has_path(request.target):",
        "if False:",
        FOUND,
        "a query alone would be a 500",
    ),
    Fault(
        "a digit too many",
        "flashrt/protocols/fields.py",
        " and len(key) <= ID_DIGITS_MAX",
        "",
        FOUND,
        "Python refuses to read such a number, which would be a 500",
    ),
    Fault(
        "a bound that is not the document's",
        "flashrt/http/openapi.py",
        '"temperature": {"minimum": 0, "maximum": 2}',
        '"temperature": {"minimum": 0, "maximum": 1}',
        DOCUMENT,
        "a client that keeps to the document would not send what is served",
    ),
    Fault(
        "a setting that no float can hold",
        "flashrt/setting_values.py",
        "    except (ValueError, OverflowError):",
        "    except ValueError:",
        SETTINGS,
        "a file of settings would be a traceback",
    ),
    Fault(
        "control characters in a setting",
        "flashrt/setting_values.py",
        "    if UNWRITABLE.search(given.value):",
        "    if False:",
        SETTINGS,
        "a name with a line end would break the header of every answer",
    ),
    Fault(
        "a key that no header can carry",
        "flashrt/settings.py",
        "    _refuse_unspeakable(keys, API_KEY)\n",
        "",
        SETTINGS,
        "a server would start that lets nobody in",
    ),
)
