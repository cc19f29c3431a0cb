"""Faults in the Responses protocol: its events, its items, and what is kept of its answers."""

from tests.faults.fault import Fault

ANSWER = ("tests/protocols/test_responses_answer.py",)
REQUEST = ("tests/protocols/test_responses.py",)
ROUTES = ("tests/http/test_responses.py",)
STORE = ("tests/test_stored.py",)

FAULTS = (
    Fault(
        "a call that was cut is done",
        "flashrt/protocols/responses_folding.py",
        "                call.status = INCOMPLETE\n        # Clients",
        "                yield from call.closes(INCOMPLETE)\n        # Clients",
        ANSWER,
        "Codex would execute half a command",
    ),
    Fault(
        "a cancelled answer that failed",
        "flashrt/protocols/responses_answer.py",
        "    CANCELLED: Incomplete,",
        "    CANCELLED: FailedEvent,",
        ANSWER,
        "clients would ask again for what somebody has just ended",
    ),
    Fault(
        "each item of an answer a turn of its own",
        "flashrt/protocols/responses_input.py",
        'if not self.messages or self.messages[-1]["role"] != "assistant":',
        "if True:",
        REQUEST,
        "the prompt would not be the one of chat, and no answer would be found again",
    ),
    Fault(
        "a summary that counts more than what was thought",
        "flashrt/protocols/responses_thought.py",
        '_texts(item.get("content")) or _texts(item.get("summary"))',
        '_texts(item.get("summary")) or _texts(item.get("content"))',
        ("tests/protocols/test_responses_thought.py",),
        "a client that shows less than it carries would change the conversation",
    ),
    Fault(
        "half a pair of surrogates told",
        "flashrt/protocols/responses_custom.py",
        "(?![dD][89abAB])",
        "",
        ("tests/protocols/test_responses_custom.py",),
        "a character of a custom call would be torn, and its event no UTF-8",
    ),
    Fault(
        "a session that ends with every answer",
        "flashrt/protocols/responses.py",
        'names += ["session", "flashrt_session"]',
        "pass",
        REQUEST,
        "a conversation by previous_response_id would be many to the server",
    ),
    Fault(
        "an answer that every key may go on from",
        "flashrt/http/responses.py",
        "return self.store.find(self.client, earlier_id)",
        "return next((a for (_, n), a in self.store._answers.items() if n == earlier_id), None)",
        ROUTES,
        "what one tenant has said would be another's conversation (G10)",
    ),
    Fault(
        "an answer that is kept against its client's wish",
        "flashrt/http/responses.py",
        "if not call.stores or self.forgotten:",
        "if self.forgotten:",
        ROUTES,
        "`store` false would mean nothing",
    ),
    Fault(
        "an answer that runs for ever",
        "flashrt/http/responses.py",
        "            del self.running[place]\n",
        "",
        ROUTES,
        "each answer would be held until the server ends",
    ),
    Fault(
        "kept answers without a bound of bytes",
        "flashrt/stored.py",
        "or self.held_bytes > self._bytes_max",
        "or False",
        STORE,
        "a thousand long conversations would take all memory",
    ),
    Fault(
        "a shared text that is counted away with its first answer",
        "flashrt/stored.py",
        "            left = uses + by\n",
        "            left = uses + by if by > 0 else 0\n",
        STORE,
        "the bound would be below what is held",
    ),
    Fault(
        "a cancel without its reason",
        "flashrt/service.py",
        '        item.cancel.cancel(AnswerCancelled("The answer was cancelled."))\n',
        "",
        ("tests/whole/test_responses.py",),
        "the client would be told of a failure",
    ),
)
