"""Slots: as many runs as the process may execute, handed out to threads and to the event loop."""

import threading

from runyard_workers.slots import SlotPool

GUARD_S = 30.0


def open_pool(size: int) -> SlotPool:
    slots = SlotPool(size)
    slots.open()
    return slots


def test_a_pool_hands_out_nothing_before_it_is_open() -> None:
    slots = SlotPool(2)
    assert not slots.available()
    assert not slots.reserve(0)
    slots.open()
    assert slots.available()
    assert slots.reserve(0)


def test_a_full_pool_hands_out_nothing_until_a_release() -> None:
    slots = open_pool(1)
    assert slots.reserve(0)
    assert not slots.available()
    assert not slots.reserve(0.001)
    slots.release()
    assert slots.reserve(0)


def test_a_closed_pool_hands_out_nothing_though_slots_are_free() -> None:
    slots = open_pool(2)
    slots.close()
    assert not slots.available()
    assert not slots.reserve(0.001)


def test_a_worker_without_a_beat_gets_no_slot() -> None:
    beats = [False, True]
    slots = SlotPool(1, is_alive=lambda: beats[0])
    slots.open()
    assert not slots.available()
    assert not slots.reserve(0.001)
    beats.pop(0)
    assert slots.reserve(0)


def test_a_waiting_thread_gets_the_slot_that_is_released() -> None:
    slots = open_pool(1)
    assert slots.reserve(0)
    reserved: list[bool] = []
    thread = threading.Thread(target=lambda: reserved.append(slots.reserve(GUARD_S)))
    thread.start()
    slots.release()
    thread.join(GUARD_S)
    assert reserved == [True]
    assert not slots.reserve(0)


def test_opening_wakes_every_waiting_thread() -> None:
    slots = SlotPool(3)
    reserved: list[bool] = []
    threads = [threading.Thread(target=lambda: reserved.append(slots.reserve(GUARD_S))) for _ in range(3)]
    for thread in threads:
        thread.start()
    slots.open()
    for thread in threads:
        thread.join(GUARD_S)
    assert reserved == [True] * 3


def test_many_threads_never_hold_more_than_there_are() -> None:
    slots = open_pool(3)
    lock = threading.Lock()
    held = most = 0

    def hold_often() -> None:
        nonlocal held, most
        for _ in range(50):
            assert slots.reserve(GUARD_S)
            with lock:
                held += 1
                most = max(most, held)
            with lock:
                held -= 1
            slots.release()

    threads = [threading.Thread(target=hold_often) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GUARD_S)
    assert 0 < most <= 3
    assert [slots.reserve(0) for _ in range(4)] == [True, True, True, False]
