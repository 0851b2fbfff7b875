"""The library beside other clients of CUPTI: several subscribers (CUDA 13.3 and later) before, during and after a
recording, and CUPTIs, drivers and clients that allow only one. The fake CUPTI aborts where our library finalizes it."""

import time

import pytest

import gpu_library as gpu
from gpu_library import assert_nothing_lost, assert_same, dumping, finish, start

__all__ = ["dumping", "start"]  # fixtures

SEVERAL = {"FAKE_CUPTI_VERSION": 130300}
RETRY_S = 2


def record_twenty(target):
    target.attach()
    target.do("launch 20")
    target.do("graph 2 3")
    target.do("copy 4")
    target.do("sync")
    dump, truth = finish(target)
    assert_same(dump, truth)
    assert_nothing_lost(dump.statuses[-1])
    return len(dump.of_kind(gpu.KERNEL))


@pytest.mark.parametrize("clock", [0, 1, 2], ids=["refused", "used", "ignored"])
def test_alone_as_one_of_several(dumping, clock):
    """CUPTI's own clock is CLOCK_REALTIME: times are converted where ours is not used."""
    target = dumping(env={**SEVERAL, "FAKE_CUPTI_OWN_CLOCK": clock})
    target.attach()
    target.do("launch 20")
    target.do("sync")
    dump, truth = finish(target)
    real = {w.correlation: w for w in truth.work if w.kind == gpu.KERNEL}
    told = dump.of_kind(gpu.KERNEL)
    assert len(told) == len(real) == 20
    error = [abs(row.start - real[row.correlation].start) for row in told]
    assert max(error) <= (0 if clock == 1 else 200_000), error
    assert all(row.end - row.start == real[row.correlation].end - real[row.correlation].start
               for row in told)  # fmt: skip
    assert_nothing_lost(dump.statuses[-1])
    assert target.exit() == ""


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_beside_another_client(dumping, when):
    target = dumping(env={**SEVERAL, "FAKE_CUPTI_OWN_CLOCK": 1})
    if when == "before":
        assert target.do("share torch") == "0"
    target.attach()
    if when == "during":
        assert target.do("share torch") == "0"
    target.do("launch 20")
    target.do("sync")
    if when == "during":
        assert target.do("leave") == "20"
        target.do("launch 5")
        target.do("sync")
    dump, truth = finish(target)
    assert_same(dump, truth)
    assert_nothing_lost(dump.statuses[-1])
    if when == "before":
        target.do("launch 7")  # it goes on without us
        target.do("sync")
        time.sleep(0.1)
        assert target.do("leave") == "27"
    if when == "after":
        assert target.do("share torch") == "0"
        target.do("launch 7")
        target.do("sync")
        time.sleep(0.1)
        assert target.do("leave") == "7"
    assert target.exit() == ""


def test_attached_again_and_again_beside_another_client(dumping):
    target = dumping(env={**SEVERAL, "FAKE_CUPTI_OWN_CLOCK": 1})
    assert target.do("share torch") == "0"
    for session in range(1, 11):
        target.attach(session=session)
        target.do("launch 3")
        target.do("sync")
        target.detach(session=session)
    assert len(gpu.read_dump(target.dump_path).of_kind(gpu.KERNEL)) == 30
    assert target.do("leave") == "30"
    assert target.exit() == ""


@pytest.mark.parametrize(
    "env",
    [
        {"FAKE_CUPTI_VERSION": 130200},  # it has the functions, for one subscriber
        {**SEVERAL, "FAKE_CUPTI_ONE_SUBSCRIBER": 1},  # the driver is older
        {**SEVERAL, "FAKE_CUPTI_OWN_RESULT": 27},
        {**SEVERAL, "FAKE_CUPTI_OWN_RESULT": 999},
    ],
)
def test_the_only_subscriber_where_there_can_be_one(dumping, env):
    target = dumping(env=env)
    assert record_twenty(target) == 26
    assert target.exit() == ""


@pytest.mark.parametrize("several", [True, False])
def test_a_client_that_allows_no_other(dumping, several):
    target = dumping(env=SEVERAL if several else {})
    assert target.do("alone nsys" if several else "second on") == "0"
    target.inside.raise_to(1)
    assert target.inside.await_status(gpu.BUSY).detail == 39
    target.do("launch 10")
    target.do("leave" if several else "second off")
    target.inside.await_status(gpu.ON, timeout=10 * RETRY_S)
    target.do("launch 3")
    target.do("sync")
    target.detach()
    dump = gpu.read_dump(target.dump_path)
    assert len(dump.of_kind(gpu.KERNEL)) == 3
    # CUPTI names the client only where it knows subscribers by name.
    assert dump.names.get(0xFFFFFFFF) == ("CUPTI for nsys" if several else None)
    assert [s.code for s in dump.statuses] == [gpu.STARTING, gpu.BUSY, gpu.ON, gpu.OFF]
    assert target.exit() == ""


def test_a_client_that_does_not_let_go(dumping):
    target = dumping(env=SEVERAL)
    assert target.do("alone torch") == "0"
    target.inside.raise_to(1)
    target.inside.await_status(gpu.BUSY)
    for _ in range(3):
        target.do("launch 1000")
        time.sleep(RETRY_S / 2)
    assert target.inside.status().code == gpu.BUSY
    target.inside.raise_to(0)
    assert target.do("leave") == "3000"
    assert target.exit() == ""
    dump = gpu.read_dump(target.dump_path)
    assert [s.code for s in dump.statuses] == [gpu.STARTING, gpu.BUSY] and not dump.records


def test_kinds_that_are_refused(dumping):
    target = dumping(env={**SEVERAL, "FAKE_CUPTI_ENABLE_RESULT": 35})
    target.inside.raise_to(1)
    target.inside.await_status(gpu.FAILED, detail=35)
    target.do("launch 100")
    assert target.do("share torch") == "35", "our subscription has ended"
    target.inside.raise_to(0)
    assert target.exit() == ""


def test_exit_while_active_beside_another_client(dumping):
    target = dumping(env={**SEVERAL, "FAKE_CUPTI_OWN_CLOCK": 1})
    assert target.do("share torch") == "0"
    target.attach()
    target.do("launch 50")
    assert target.exit() == ""
    assert len(gpu.read_dump(target.dump_path).of_kind(gpu.KERNEL)) == 50
