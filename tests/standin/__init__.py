"""A stand-in for Anthropic's Messages API: see README.md beside this file."""

from tests.standin.gates import Gate
from tests.standin.plans import By, Match, Plan
from tests.standin.record import Ending, Request
from tests.standin.rules import InvalidTranscript, validate, validate_transcript
from tests.standin.script import CutHow, Script
from tests.standin.server import Standin, Unexpected
from tests.standin.verbs import (
    Answer,
    calls,
    cut,
    event,
    fail,
    finds,
    hold,
    pause,
    ping,
    ping_until,
    raw,
    redacts,
    refuses,
    says,
    searches,
    silent,
    thinks,
)
from tests.standin.workload import workload

__all__ = [
    "Answer",
    "By",
    "CutHow",
    "Ending",
    "Gate",
    "InvalidTranscript",
    "Match",
    "Plan",
    "Request",
    "Script",
    "Standin",
    "Unexpected",
    "calls",
    "cut",
    "event",
    "fail",
    "finds",
    "hold",
    "pause",
    "ping",
    "ping_until",
    "raw",
    "redacts",
    "refuses",
    "says",
    "searches",
    "silent",
    "thinks",
    "validate",
    "validate_transcript",
    "workload",
]
