"""Acts at their places: before an event, before a byte, before every delta; and a body in pieces of a given size."""

from collections.abc import Iterable, Iterator

from tests.standin.events import Emit, Envelope, Item, message_events
from tests.standin.script import Act, Hold, Script


def render(script: Script, envelope: Envelope) -> list[Item]:
    """All that the player has to do after the HTTP head, in order."""
    items = _place_acts(script, list(message_events(script, envelope)))
    if script.delta_gate is not None:
        items = list(_held_deltas(items, script.delta_gate))
    for place in sorted(script.at_bytes, key=lambda place: place.byte):
        items = list(_split_at(items, place.byte, place.acts))
    if script.piece_bytes is not None:
        items = list(_in_pieces(items, script.piece_bytes))
    return items


def _place_acts(script: Script, items: list[Item]) -> list[Item]:
    events = [item for item in items if isinstance(item, Emit)]
    for place in script.at_events:
        if place.event == "head":
            continue  # before the HTTP head: the player's
        if place.event == "end":
            items = [*items, *place.acts]
            continue
        if isinstance(place.event, int):
            event = events[place.event]
        else:
            event = next(event for event in events if event.name == place.event)
        position = next(index for index, item in enumerate(items) if item is event)
        items = [*items[:position], *place.acts, *items[position:]]
    return items


def _held_deltas(items: Iterable[Item], gate: str) -> Iterator[Item]:
    for item in items:
        if isinstance(item, Emit) and item.name == "content_block_delta":
            yield Hold(gate=gate)
        yield item


def _split_at(items: Iterable[Item], byte: int, acts: Iterable[Act]) -> Iterator[Item]:
    start = 0
    placed = False
    for item in items:
        if not placed and isinstance(item, Emit):
            offset = byte - start
            start += len(item.data)
            if offset < len(item.data):
                placed = True
                if offset > 0:
                    yield Emit(name=item.name, data=item.data[:offset], complete=False)
                yield from acts
                item.data = item.data[offset:]
        yield item
    if not placed:
        raise ValueError(f"the answer has {start} bytes: there is no byte {byte}")


def _in_pieces(items: Iterable[Item], size_bytes: int) -> Iterator[Item]:
    for item in items:
        if isinstance(item, Emit):
            last = (len(item.data) - 1) // size_bytes * size_bytes
            for offset in range(0, last, size_bytes):
                piece = item.data[offset : offset + size_bytes]
                yield Emit(name=item.name, data=piece, complete=False)
            item.data = item.data[last:]
        yield item
