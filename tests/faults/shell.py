"""Faults in what carries a request: the worker, items, and HTTP."""

from tests.faults.fault import Fault

WORKER = ("tests/test_worker.py",)
HTTP = ("tests/http",)
DOOR = ("tests/http/test_security.py",)

FAULTS = (
    Fault(
        "a queued cancel that still starts",
        "flashrt/worker.py",
        "            if item in self._queued:\n                self._queued.discard(item)\n"
        "                self._running = item",
        "            if True:\n                self._queued.discard(item)\n"
        "                self._running = item",
        WORKER,
        "the engine would work for a client that has left (G7)",
    ),
    Fault(
        "items that have left hold their place in the queue",
        "flashrt/worker.py",
        "        except trio.WouldBlock:\n            self._drop_finished_items()",
        "        except trio.WouldBlock:\n            pass",
        WORKER,
        "clients that came and went would fill the queue for the others (G7)",
    ),
    Fault(
        "a dead thread that nobody hears of",
        "flashrt/worker.py",
        "            self._fault = fault\n            self._end_all(",
        "            self._fault = fault\n            (lambda *_: None)(",
        WORKER,
        "whoever waits when the engine thread dies would wait for ever (G6)",
    ),
    Fault(
        "a reported hit that was none",
        "flashrt/worker.py",
        "record.cached_tokens = plan.cached_tokens",
        "record.cached_tokens = len(plan.ids)",
        ("tests/whole/test_main_job.py",),
        "cached tokens would be reported that were computed (G5)",
    ),
    Fault(
        "a delta for a client that is gone",
        "flashrt/items.py",
        "        if self.machine.fire(SinkEvent.DELTA) is SinkState.GONE:\n            return",
        "        self.machine.fire(SinkEvent.DELTA)",
        ("tests/test_items.py", *WORKER),
        "a client that hangs up would break the worker's delivery for everybody (G7)",
    ),
    Fault(
        "a sink that ends twice",
        "flashrt/items.py",
        "        self.machine.fire(SinkEvent.END)\n",
        "",
        ("tests/test_items.py",),
        "an error could follow a normal end (G6)",
    ),
    # -- HTTP ------------------------------------------------------------------------------------
    Fault(
        "no FinishGuard",
        "flashrt/http/app.py",
        "    app.asgi_app = FinishGuard(app.asgi_app)  # type: ignore[assignment]\n",
        "",
        HTTP,
        "items of clients that leave would not be left, and keep-alive timers would stop",
    ),
    Fault(
        "a disconnect that is heard after the last piece",
        "flashrt/http/guard.py",
        'if finished and message["type"] == "http.disconnect":',
        "if False:",
        HTTP,
        "the connection would be cancelled while it is being recycled",
    ),
    Fault(
        "a heartbeat that ends the stream",
        "flashrt/http/streaming.py",
        "HEARTBEAT\n                continue",
        "HEARTBEAT\n                return",
        HTTP,
        "a long prefill would look like an empty answer that ended well (G6)",
    ),
    Fault(
        "a failure that ends like an answer",
        "flashrt/http/streaming.py",
        "        case Failed(error):\n            return error_event(error)",
        "        case Failed(error):\n            return b'data: [DONE]\\n\\n'",
        HTTP,
        "an agent would act on half an answer (G6)",
    ),
    Fault(
        "an answer that just stops",
        "flashrt/http/streaming.py",
        "    except Exception as error:\n"
        "        # The headers are out, so no handler of quart's can answer any more.\n",
        "    except ZeroDivisionError as error:\n",
        HTTP,
        "a bug in the middle of a stream would be a torn connection without a word",
    ),
    Fault(
        "keys compared by prefix",
        "flashrt/http/security.py",
        "return hashlib.sha256(key.encode()).digest()",
        "return hashlib.sha256(key[:7].encode()).digest()",
        DOOR,
        "whoever knows how keys begin would be let in",
    ),
    Fault(
        "a foreign host that is served",
        "flashrt/http/security.py",
        "        if host and not self._hosts.allows(host):",
        "        if False:",
        DOOR,
        "a web page could drive a local agent server by DNS rebinding",
    ),
    Fault(
        "a foreign page that is served",
        "flashrt/http/security.py",
        "if origin is None or self._origins.allows(origin):",
        "if True:",
        DOOR,
        "any web page could ask a local agent server",
    ),
    Fault(
        "a chunked body without a limit",
        "flashrt/http/body.py",
        "                if len(body) > limit_bytes:",
        "                if False:",
        ("tests/http/test_app.py",),
        "one client could fill the memory of all (G9)",
    ),
    Fault(
        "a body that is not declared as JSON",
        "flashrt/http/body.py",
        'if request.mimetype != "application/json":',
        "if False:",
        ("tests/http/test_app.py",),
        "a web page could post without asking first",
    ),
    Fault(
        "a refusal that does not say what to do",
        "flashrt/protocols/error.py",
        "return error.status if isinstance(error, Refused) else 500",
        "return 400 if isinstance(error, Refused) else 500",
        ("tests/protocols/test_error.py", "tests/http/test_app.py"),
        "a full queue would look like a bad request, and clients would not come back",
    ),
    Fault(
        "an inner error told to the client",
        "flashrt/protocols/error.py",
        '"The server failed while it worked on this request; its log has the details."',
        "str(error)",
        ("tests/protocols/test_error.py",),
        "paths and secrets in exceptions would leave the server",
    ),
)
