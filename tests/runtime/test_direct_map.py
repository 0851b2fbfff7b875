"""Reading the target's memory where the kernel maps it (bpf/user_memory.bpf.h): what is there is read as it
is, what is not is left to the kernel's helper. That stacks are the same either way: test_native_stacks.py."""

import pytest

import support

pytestmark = pytest.mark.root_bpf

CHECK = support.BUILD / "tests" / "direct_map_check"
READ = {"4 KiB pages", "neighbours of two pages", "shared memory", "the stack", "code of a file"}
LEFT = {
    "memory without rights",
    "memory given back",
    "memory never touched",
    "an address of the kernel",
    "the first page",
}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    done = support.Running([CHECK], tmp_path_factory.mktemp("direct_map")).wait()
    if done.rc == 77:
        pytest.skip(done.out.strip())
    assert done.rc == 0, done
    return [line.split(" ", 1) for line in done.out.splitlines()]


def test_memory_that_is_there_is_read_in_place(said):
    assert {kind for what, kind in said if what == "read"} - {"a large page"} == READ


def test_a_large_page_is_read_in_place(said):
    found = [what for what, kind in said if kind == "a large page"]
    if not found:
        pytest.skip("the kernel gives no large page")
    assert found == ["read"]


def test_memory_that_is_not_there_is_left_to_the_helper(said):
    assert {kind for what, kind in said if what == "left"} == LEFT
