"""Faults of records, totals, series and the request log."""

from tests.faults.fault import Fault

LEDGER = ("tests/metrics/test_ledger.py",)
LOG = ("tests/metrics/test_request_log.py",)
SERIES = ("tests/metrics/test_prometheus.py",)

FAULTS = (
    Fault(
        "a record that is counted twice",
        "flashrt/metrics/ledger.py",
        "        record.closed = True\n",
        "",
        LEDGER,
        "records would not be requests",
    ),
    Fault(
        "prompts kept with the newest records",
        "flashrt/metrics/ledger.py",
        "            record.prompt_tokens,\n",
        "            record.prompt_ids,\n",
        LEDGER,
        "256 long prompts would stay in memory for nothing",
    ),
    Fault(
        "a record that changes behind its end",
        "flashrt/worker.py",
        "                if not record.closed:\n",
        "                if True:\n",
        ("tests/test_worker.py",),
        "an answer would say another number than the log of the same request",
    ),
    Fault(
        "a refusal while draining without a record",
        "flashrt/admission.py",
        "            self.end(new_record(), Machine(LIFECYCLE), LifeEvent.REJECT, refusal)\n",
        "",
        ("tests/test_service.py",),
        "nobody would see how many were sent away",
    ),
    Fault(
        "a request log that stops the server",
        "flashrt/metrics/request_log.py",
        "        except OSError as error:\n            self.lost_lines",
        "        except UnicodeError as error:\n            self.lost_lines",
        LOG,
        "a full disk would end the delivery of every answer",
    ),
    Fault(
        "a torn line that takes the next one with it",
        "flashrt/metrics/request_log.py",
        '            whole = b"\\n" * self._torn + line\n',
        "            whole = line\n",
        LOG,
        "two requests would be lost for readers, one of them whole",
    ),
    Fault(
        "a log that waits for its reader",
        "flashrt/metrics/request_log.py",
        " | os.O_NONBLOCK\n",
        "\n",
        LOG,
        "a stopped reader of a pipe would stop the server",
    ),
    Fault(
        "errors in words in the request log",
        "flashrt/metrics/request_log.py",
        '        "error_kind": record.error_kind,\n',
        '        "error_kind": record.error_kind,\n        "error": record.error,\n',
        LOG,
        "messages may quote what a client sent",
    ),
    Fault(
        "a bound that belongs to the next bucket",
        "flashrt/metrics/histogram.py",
        "bisect_left(self.bounds, value)",
        "bisect_left(self.bounds, value + 1e-9)",
        ("tests/metrics/test_histogram.py",),
        "quantiles would be off, and other tools would count otherwise",
    ),
    Fault(
        "milliseconds called seconds",
        "flashrt/metrics/ledger.py",
        "histogram.observe(ms / 1000)",
        "histogram.observe(ms)",
        LEDGER,
        "every time on /metrics would be a thousand times too long",
    ),
    Fault(
        "series that come with their first event",
        "flashrt/metrics/prometheus.py",
        "{**dict.fromkeys(known, 0), **counts}",
        "dict(counts)",
        SERIES,
        "the first failure of a day would be no increase for a query",
    ),
    Fault(
        "one registry for all servers of a process",
        "flashrt/metrics/prometheus.py",
        "        self._registry = CollectorRegistry(auto_describe=False)\n",
        "        from prometheus_client import REGISTRY\n\n        self._registry = REGISTRY\n",
        SERIES,
        "a second server in one process could not start, or would count for the first",
    ),
    Fault(
        "series behind the API key",
        "flashrt/http/app.py",
        '"/health/ready", "/metrics"})',
        '"/health/ready"})',
        ("tests/whole/test_records.py",),
        "a scrape has no key",
    ),
    Fault(
        "waiting counted as prefill",
        "flashrt/metrics/record.py",
        "        return _ms(self.started_at, self.prefilled_at)\n",
        "        return _ms(self.enqueued_at, self.prefilled_at)\n",
        ("tests/specs/test_record.py",),
        "a full queue would look like a slow engine",
    ),
)
