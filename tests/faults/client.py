"""Faults in `flashrt chat`."""

from tests.faults.fault import Fault

FAULTS = (
    Fault(
        "a command that runs without a yes",
        "flashrt/client/tools.py",
        "        if tool.asks and not self.allow(text):\n",
        "        if tool.asks and self.allow(text) is None:\n",
        ("tests/client/test_tools.py",),
        "a model would do anything on the machine of a newcomer",
    ),
    Fault(
        "a yes that was typed before the question",
        "flashrt/client/screen.py",
        "        termios.tcflush(sys.stdin, termios.TCIFLUSH)\n",
        "",
        ("tests/client/test_screen.py",),
        "what was typed while the model wrote would let its next command run",
    ),
    Fault(
        "a text that steers the terminal",
        "flashrt/client/screen.py",
        "    return text.translate(READABLE)\n",
        "    return text\n",
        ("tests/client/test_screen.py",),
        "the command on the screen would not be the one that runs",
    ),
    Fault(
        "a link out of the current folder",
        "flashrt/client/tools.py",
        "Path(path).resolve()",
        "Path(path).absolute()",
        ("tests/client/test_tools.py",),
        "files that nobody was asked about would go to the server",
    ),
    Fault(
        "a call that runs though it was cut off",
        "flashrt/client/answer.py",
        'if self.finish_reason == "tool_calls" else []',
        "if self._calls else []",
        ("tests/client/test_answer.py",),
        "half a command may do what the whole one would not",
    ),
    Fault(
        "a stream that broke off taken for a whole answer",
        "flashrt/client/server.py",
        '                raise NoAnswer(f"the answer of {self.url} broke off")\n',
        "                return\n",
        ("tests/client/test_server.py",),
        "the conversation would go on from words that nobody finished",
    ),
    Fault(
        "a cancelled turn that stays in the conversation",
        "flashrt/client/conversation.py",
        '        said = [_message("user", text)]\n',
        '        said = [_message("user", text)]\n        self.messages += said\n',
        ("tests/client/test_conversation.py",),
        "the next question would be answered together with the one that was taken back",
    ),
)
