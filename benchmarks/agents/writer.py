"""Answers as the stand-in plays it; the user's text says what it plays."""

from runyard import agent

writer = agent(system="You write what you are asked for.", model="claude-sonnet-4-5")
