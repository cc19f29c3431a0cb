"""The life of the server. Specification: specs/server.md."""

from enum import Enum, auto

from flashrt.fsm.table import Table


class ServerState(Enum):
    """May a client come in?"""

    LOADING = auto()
    READY = auto()
    SOFT_DRAINING = auto()
    DRAINING = auto()
    FAULTED = auto()
    STOPPED = auto()


class ServerEvent(Enum):
    """What happens to the server."""

    LOADED = auto()
    SOFT_DRAIN = auto()
    UNDRAIN = auto()
    DRAIN = auto()
    FAULT = auto()
    STOP = auto()


SERVER: Table[ServerState, ServerEvent] = Table(
    name="server",
    initial=ServerState.LOADING,
    terminal=frozenset({ServerState.STOPPED}),
    rows={
        (ServerState.LOADING, ServerEvent.LOADED): ServerState.READY,
        (ServerState.LOADING, ServerEvent.FAULT): ServerState.FAULTED,
        (ServerState.LOADING, ServerEvent.STOP): ServerState.STOPPED,
        #
        (ServerState.READY, ServerEvent.SOFT_DRAIN): ServerState.SOFT_DRAINING,
        (ServerState.READY, ServerEvent.UNDRAIN): ServerState.READY,
        (ServerState.READY, ServerEvent.DRAIN): ServerState.DRAINING,
        (ServerState.READY, ServerEvent.FAULT): ServerState.FAULTED,
        #
        (ServerState.SOFT_DRAINING, ServerEvent.SOFT_DRAIN): ServerState.SOFT_DRAINING,
        (ServerState.SOFT_DRAINING, ServerEvent.UNDRAIN): ServerState.READY,
        (ServerState.SOFT_DRAINING, ServerEvent.DRAIN): ServerState.DRAINING,
        (ServerState.SOFT_DRAINING, ServerEvent.FAULT): ServerState.FAULTED,
        #
        (ServerState.DRAINING, ServerEvent.DRAIN): ServerState.DRAINING,
        (ServerState.DRAINING, ServerEvent.FAULT): ServerState.FAULTED,
        (ServerState.DRAINING, ServerEvent.STOP): ServerState.STOPPED,
        #
        (ServerState.FAULTED, ServerEvent.DRAIN): ServerState.FAULTED,
        (ServerState.FAULTED, ServerEvent.STOP): ServerState.STOPPED,
    },
)
