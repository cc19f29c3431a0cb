"""What kind of text the model is producing. Specification: specs/reader.md.

A marker that has no row in a state is no marker there: the reader takes it for text.
"""

from enum import Enum, auto

from flashrt.fsm.table import Table


class Reading(Enum):
    """Where in the answer are we?"""

    TEXT = auto()
    THINKING = auto()
    DRAFT = auto()
    CALL = auto()
    FUNCTION = auto()
    VALUE = auto()
    VALUE_OVER = auto()
    LEAVING = auto()
    OBJECT = auto()
    JSON = auto()
    CALLED = auto()


class ReadingEvent(Enum):
    """Which marker was read? OTHER is whatever is neither a marker here nor blank."""

    THINK_OPEN = auto()
    THINK_CLOSE = auto()
    CALL_OPEN = auto()
    CALL_CLOSE = auto()
    WRAPPER_OPEN = auto()
    WRAPPER_CLOSE = auto()
    FUNCTION_OPEN = auto()
    FUNCTION_CLOSE = auto()
    PARAMETER_OPEN = auto()
    PARAMETER_CLOSE = auto()
    OBJECT_OPEN = auto()
    OBJECT_NAMED = auto()
    OBJECT_CLOSE = auto()
    OTHER = auto()


READER: Table[Reading, ReadingEvent] = Table(
    name="reader",
    initial=Reading.TEXT,
    terminal=frozenset(),
    rows={
        (Reading.TEXT, ReadingEvent.THINK_OPEN): Reading.THINKING,
        (Reading.TEXT, ReadingEvent.THINK_CLOSE): Reading.TEXT,
        (Reading.TEXT, ReadingEvent.CALL_OPEN): Reading.CALL,
        (Reading.TEXT, ReadingEvent.CALL_CLOSE): Reading.TEXT,
        (Reading.TEXT, ReadingEvent.WRAPPER_OPEN): Reading.CALL,
        (Reading.TEXT, ReadingEvent.WRAPPER_CLOSE): Reading.TEXT,
        (Reading.TEXT, ReadingEvent.FUNCTION_OPEN): Reading.FUNCTION,
        #
        (Reading.THINKING, ReadingEvent.THINK_OPEN): Reading.THINKING,
        (Reading.THINKING, ReadingEvent.THINK_CLOSE): Reading.TEXT,
        (Reading.THINKING, ReadingEvent.CALL_OPEN): Reading.DRAFT,
        #
        (Reading.DRAFT, ReadingEvent.THINK_OPEN): Reading.THINKING,
        (Reading.DRAFT, ReadingEvent.THINK_CLOSE): Reading.TEXT,
        (Reading.DRAFT, ReadingEvent.OTHER): Reading.THINKING,
        #
        (Reading.CALL, ReadingEvent.CALL_OPEN): Reading.CALL,
        (Reading.CALL, ReadingEvent.WRAPPER_OPEN): Reading.CALL,
        (Reading.CALL, ReadingEvent.FUNCTION_OPEN): Reading.FUNCTION,
        (Reading.CALL, ReadingEvent.OBJECT_OPEN): Reading.OBJECT,
        (Reading.CALL, ReadingEvent.OTHER): Reading.TEXT,
        #
        (Reading.FUNCTION, ReadingEvent.PARAMETER_OPEN): Reading.VALUE,
        (Reading.FUNCTION, ReadingEvent.PARAMETER_CLOSE): Reading.FUNCTION,
        (Reading.FUNCTION, ReadingEvent.FUNCTION_CLOSE): Reading.CALLED,
        (Reading.FUNCTION, ReadingEvent.CALL_CLOSE): Reading.TEXT,
        (Reading.FUNCTION, ReadingEvent.CALL_OPEN): Reading.CALL,
        (Reading.FUNCTION, ReadingEvent.WRAPPER_CLOSE): Reading.CALLED,
        (Reading.FUNCTION, ReadingEvent.OBJECT_OPEN): Reading.JSON,
        (Reading.FUNCTION, ReadingEvent.OTHER): Reading.FUNCTION,
        #
        (Reading.VALUE, ReadingEvent.PARAMETER_CLOSE): Reading.VALUE_OVER,
        (Reading.VALUE, ReadingEvent.FUNCTION_CLOSE): Reading.LEAVING,
        (Reading.VALUE, ReadingEvent.CALL_CLOSE): Reading.LEAVING,
        #
        (Reading.VALUE_OVER, ReadingEvent.PARAMETER_OPEN): Reading.VALUE,
        (Reading.VALUE_OVER, ReadingEvent.PARAMETER_CLOSE): Reading.VALUE_OVER,
        (Reading.VALUE_OVER, ReadingEvent.FUNCTION_CLOSE): Reading.CALLED,
        (Reading.VALUE_OVER, ReadingEvent.CALL_CLOSE): Reading.TEXT,
        (Reading.VALUE_OVER, ReadingEvent.CALL_OPEN): Reading.CALL,
        (Reading.VALUE_OVER, ReadingEvent.WRAPPER_CLOSE): Reading.CALLED,
        (Reading.VALUE_OVER, ReadingEvent.OTHER): Reading.VALUE,
        #
        (Reading.LEAVING, ReadingEvent.PARAMETER_CLOSE): Reading.VALUE_OVER,
        (Reading.LEAVING, ReadingEvent.FUNCTION_CLOSE): Reading.LEAVING,
        (Reading.LEAVING, ReadingEvent.CALL_CLOSE): Reading.TEXT,
        (Reading.LEAVING, ReadingEvent.CALL_OPEN): Reading.CALL,
        (Reading.LEAVING, ReadingEvent.WRAPPER_CLOSE): Reading.CALLED,
        (Reading.LEAVING, ReadingEvent.OTHER): Reading.VALUE,
        #
        (Reading.OBJECT, ReadingEvent.OBJECT_NAMED): Reading.JSON,
        (Reading.OBJECT, ReadingEvent.OTHER): Reading.TEXT,
        #
        (Reading.JSON, ReadingEvent.OBJECT_CLOSE): Reading.CALLED,
        (Reading.JSON, ReadingEvent.CALL_CLOSE): Reading.TEXT,
        (Reading.JSON, ReadingEvent.CALL_OPEN): Reading.CALL,
        (Reading.JSON, ReadingEvent.WRAPPER_CLOSE): Reading.CALLED,
        (Reading.JSON, ReadingEvent.OTHER): Reading.TEXT,
        #
        (Reading.CALLED, ReadingEvent.FUNCTION_OPEN): Reading.FUNCTION,
        (Reading.CALLED, ReadingEvent.FUNCTION_CLOSE): Reading.CALLED,
        (Reading.CALLED, ReadingEvent.OBJECT_OPEN): Reading.OBJECT,
        (Reading.CALLED, ReadingEvent.CALL_CLOSE): Reading.TEXT,
        (Reading.CALLED, ReadingEvent.CALL_OPEN): Reading.CALL,
        (Reading.CALLED, ReadingEvent.WRAPPER_OPEN): Reading.CALL,
        (Reading.CALLED, ReadingEvent.WRAPPER_CLOSE): Reading.CALLED,
        (Reading.CALLED, ReadingEvent.OTHER): Reading.TEXT,
    },
)


COMPLETES = {
    (Reading.FUNCTION, ReadingEvent.FUNCTION_CLOSE),
    (Reading.FUNCTION, ReadingEvent.CALL_CLOSE),
    (Reading.FUNCTION, ReadingEvent.CALL_OPEN),
    (Reading.FUNCTION, ReadingEvent.WRAPPER_CLOSE),
    (Reading.VALUE_OVER, ReadingEvent.FUNCTION_CLOSE),
    (Reading.VALUE_OVER, ReadingEvent.CALL_CLOSE),
    (Reading.VALUE_OVER, ReadingEvent.CALL_OPEN),
    (Reading.VALUE_OVER, ReadingEvent.WRAPPER_CLOSE),
    (Reading.LEAVING, ReadingEvent.CALL_CLOSE),
    (Reading.LEAVING, ReadingEvent.CALL_OPEN),
    (Reading.LEAVING, ReadingEvent.WRAPPER_CLOSE),
    (Reading.JSON, ReadingEvent.OBJECT_CLOSE),
    (Reading.JSON, ReadingEvent.CALL_CLOSE),
    (Reading.JSON, ReadingEvent.CALL_OPEN),
    (Reading.JSON, ReadingEvent.WRAPPER_CLOSE),
}
"""The rows whose reason says *complete*: they leave a call that is whole."""
