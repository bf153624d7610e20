"""Answers with whatever the stand-in plays: the directive stands in the user's text."""

from runyard import agent

writer = agent(system="You write what you are asked for.", model="claude-sonnet-4-5")
