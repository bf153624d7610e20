"""`Content([...])`: blocks that the Messages API accepts, checked where they are made."""

import base64

import pytest

from runyard import Content

DATA = base64.b64encode(b"bytes").decode()
TEXT = {"type": "text", "text": "hello"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
LINKED = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": DATA}, "title": "A"}
PLAIN = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}}


def test_blocks_are_kept_as_they_are_and_copied():
    given = [dict(TEXT), IMAGE, LINKED, PDF, PLAIN, {**TEXT, "cache_control": {"type": "ephemeral"}}]
    content = Content(given)
    assert list(content.blocks) == given
    given[0]["text"] = "changed"
    assert content.blocks[0] == TEXT
    assert Content([]).blocks == ()


@pytest.mark.parametrize(
    ("block", "place"),
    [
        ({"type": "text"}, '"1.text"'),
        ({"type": "text", "text": 5}, "1.text"),
        ({"type": "text", "text": b"bytes"}, "1.text"),
        ({"type": "video", "text": "a"}, "1"),
        ({"text": "a"}, "1"),
        ({"type": "text", "text": "a", "txet": "b"}, '"1.txet"'),
        ({"type": "image"}, '"1.source"'),
        (
            {"type": "image", "source": {"type": "base64", "media_type": "image/bmp", "data": DATA}},
            "1.source.media_type",
        ),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "???"}}, "1.source.data"),
        ({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": ""}}, "1.source.data"),
        ({"type": "image", "source": {"type": "url", "url": "file:///etc/passwd"}}, "1.source.url"),
        ({"type": "document", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}, "1.source"),
    ],
)
def test_a_bad_block_is_named_by_its_place(block, place):
    with pytest.raises(ValueError, match="Content: ") as raised:
        Content([TEXT, block])
    assert place in str(raised.value)


def test_a_long_mistake_makes_a_short_message():
    with pytest.raises(ValueError, match="Content") as raised:
        Content([{"type": "text", "text": "a", "x" * 10: "y" * 100_000}])
    assert len(str(raised.value)) < 500
