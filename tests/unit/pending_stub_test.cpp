// The code that adds a pending call, run in this process: it must come back with every register as given.
#include "user/inject/pending_stub.h"

#include <asm/prctl.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <vector>

#include "user/target/process.h"

namespace dynprof {
namespace {

int (*added)(void*);
void* added_argument;
int add_result;
int saved_threads, restored_threads, loads, initialized;

bool made_at_once;  // by another thread, while the one that adds it is still in add()

void make_on_a_thread() {
  std::thread([] { EXPECT_EQ(added(added_argument), 0); }).join();
}
int add(int (*call)(void*), void* argument) {
  added = call;
  added_argument = argument;
  if (made_at_once) make_on_a_thread();
  return add_result;
}
void* save_thread() {
  ++saved_threads;
  return &saved_threads;
}
void restore_thread(void* thread) { restored_threads += thread == &saved_threads; }
int initialize() { return ++initialized; }
void* load(const char* path, int flags) {
  ++loads;
  return std::strcmp(path, "/the/library.so") == 0 && flags == (RTLD_NOW | RTLD_NODELETE) ? &loads
                                                                                          : nullptr;
}
void* find(void*, const char* name) {
  return std::strcmp(name, "InitializeInjection") == 0 ? reinterpret_cast<void*>(&initialize)
                                                       : nullptr;
}
const char* last_error() { return "no such file"; }

bool is_mapped(std::uint64_t address) {
  const auto mappings = read_mappings(getpid());
  return mappings && std::any_of(mappings->begin(), mappings->end(), [&](const Mapping& m) {
           return m.start <= address && address < m.end;
         });
}

// In the middle of much free memory: what the allocator, a sanitizer or a new thread maps meanwhile goes to either end.
std::uint64_t address_that_stays_free() {
  constexpr std::uint64_t kFree = 1ULL << 30;
  void* free = mmap(nullptr, kFree, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (free == MAP_FAILED) return 0;
  munmap(free, kFree);
  return (reinterpret_cast<std::uint64_t>(free) + kFree / 2) / kMappingBytes * kMappingBytes;
}

class PendingStub : public testing::Test {
 protected:
  void SetUp() override {
    added = nullptr;
    made_at_once = false;
    add_result = saved_threads = restored_threads = loads = initialized = 0;
    data_.token = 7;
    data_.base = address_that_stays_free();
    ASSERT_NE(data_.base, 0U);
    data_.process = static_cast<std::uint32_t>(getpid());
    data_.add_pending_call = reinterpret_cast<std::uint64_t>(&add);
    data_.save_thread = reinterpret_cast<std::uint64_t>(&save_thread);
    data_.restore_thread = reinterpret_cast<std::uint64_t>(&restore_thread);
    data_.dlopen = reinterpret_cast<std::uint64_t>(&load);
    data_.dlsym = reinterpret_cast<std::uint64_t>(&find);
    data_.dlerror = reinterpret_cast<std::uint64_t>(&last_error);
    data_.munmap = reinterpret_cast<std::uint64_t>(&munmap);
    std::strcpy(data_.function, "InitializeInjection");
    std::strcpy(data_.library, "/the/library.so");
  }
  void TearDown() override {
    if (is_mapped(data_.base)) munmap(reinterpret_cast<void*>(data_.base), kMappingBytes);
    if (code_ != MAP_FAILED) munmap(code_, kCodeBytes);
  }

  // Goes through the code as a thread does that is made to, with values in all registers that the code may change.
  void enter() {
    const std::vector<std::byte> stub = pending_stub(data_);
    code_ = mmap(nullptr, kCodeBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::memcpy(code_, stub.data(), stub.size());
    mprotect(code_, kCodeBytes, PROT_READ | PROT_EXEC);
    struct {
      void* code;
      std::uint64_t rax, rcx, rdx, rsi, rdi, r8, r9, r10, r11, carry;
    } passed = {};
    passed.code = code_;
    asm volatile(
        "mov $0x1001, %%edi\n"  // ARCH_SET_GS: to where the code goes on
        "lea 1f(%%rip), %%rsi\n"
        "mov $158, %%eax\n"
        "syscall\n"
        "mov $11, %%eax\n"
        "mov $12, %%ecx\n"
        "mov $13, %%edx\n"
        "mov $14, %%esi\n"
        "mov $15, %%edi\n"
        "mov $16, %%r8d\n"
        "mov $17, %%r9d\n"
        "mov $18, %%r10d\n"
        "mov $19, %%r11d\n"
        "stc\n"
        "jmp *0(%%rbx)\n"
        "1:\n"
        "mov %%rax, 8(%%rbx)\n"
        "mov %%rcx, 16(%%rbx)\n"
        "mov %%rdx, 24(%%rbx)\n"
        "mov %%rsi, 32(%%rbx)\n"
        "mov %%rdi, 40(%%rbx)\n"
        "mov %%r8, 48(%%rbx)\n"
        "mov %%r9, 56(%%rbx)\n"
        "mov %%r10, 64(%%rbx)\n"
        "mov %%r11, 72(%%rbx)\n"
        "sbb %%rax, %%rax\n"
        "mov %%rax, 80(%%rbx)\n"
        :
        : "b"(&passed)
        : "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc", "memory");
    const std::array came = {passed.rax, passed.rcx, passed.rdx, passed.rsi, passed.rdi,
                             passed.r8,  passed.r9,  passed.r10, passed.r11, passed.carry};
    EXPECT_EQ(came, (std::array<std::uint64_t, 10>{11, 12, 13, 14, 15, 16, 17, 18, 19, ~0ULL}));
    std::uint64_t gs = 1;
    EXPECT_EQ(syscall(SYS_arch_prctl, ARCH_GET_GS, &gs), 0);
    EXPECT_EQ(gs, 0U);
  }

  PendingData* there() { return reinterpret_cast<PendingData*>(data_.base + kDataOffset); }

  static constexpr std::size_t kCodeBytes = 4096;
  PendingData data_{};
  void* code_ = MAP_FAILED;
};

TEST_F(PendingStub, TheCallIsAddedLoadsAndRemovesItsMemory) {
  enter();
  ASSERT_NE(added, nullptr);
  there()->seen = 1;
  EXPECT_EQ(there()->state, PendingState::kAdded);
  EXPECT_EQ(there()->token, 7U);
  EXPECT_EQ(added(added_argument), 0);
  EXPECT_EQ(saved_threads, 1);
  EXPECT_EQ(restored_threads, 1);
  EXPECT_EQ(loads, 1);
  EXPECT_EQ(initialized, 1);
  EXPECT_FALSE(is_mapped(data_.base));
}

TEST_F(PendingStub, ItsMemoryIsRemovedWithoutBeingSeen) {
  enter();
  EXPECT_EQ(added(added_argument), 0);
  EXPECT_EQ(initialized, 1);
  EXPECT_FALSE(is_mapped(data_.base));
}

TEST_F(PendingStub, AnotherThreadRemovesItOnceTheMainThreadIsGone) {
  enter();
  EXPECT_EQ(there()->left, 1U);
  there()->gone = 1;
  make_on_a_thread();
  EXPECT_EQ(initialized, 1);
  EXPECT_FALSE(is_mapped(data_.base));
}

TEST_F(PendingStub, AnotherThreadDoesNotRemoveItUnderTheMainThread) {
  made_at_once = true;
  enter();
  EXPECT_EQ(initialized, 1);
  ASSERT_TRUE(is_mapped(data_.base));
  EXPECT_EQ(there()->state, PendingState::kLoaded);
  EXPECT_EQ(there()->left, 1U);
}

TEST_F(PendingStub, CancelledOnAnotherThreadItStaysUnlessTheMainThreadIsGone) {
  enter();
  there()->cancel = 1;
  make_on_a_thread();
  EXPECT_EQ(loads, 0);
  EXPECT_TRUE(is_mapped(data_.base));
}

TEST_F(PendingStub, ACancelledCallLoadsNothingAndRemovesItsMemory) {
  enter();
  there()->cancel = 1;
  EXPECT_EQ(added(added_argument), 0);
  EXPECT_EQ(loads, 0);
  EXPECT_FALSE(is_mapped(data_.base));
}

TEST_F(PendingStub, AFailureOfTheLoaderIsTold) {
  std::strcpy(data_.library, "/another.so");
  enter();
  EXPECT_EQ(added(added_argument), 0);
  EXPECT_EQ(there()->state, PendingState::kFailed);
  EXPECT_STREQ(there()->error, "no such file");
  EXPECT_EQ(restored_threads, 1);
}

TEST_F(PendingStub, AFullListIsTold) {
  add_result = -1;
  enter();
  EXPECT_EQ(there()->state, PendingState::kFull);
}

TEST_F(PendingStub, AForkedChildLoadsNothing) {
  data_.process = 1;
  enter();
  EXPECT_EQ(added(added_argument), 0);
  EXPECT_EQ(loads, 0);
}

TEST_F(PendingStub, WithoutMemoryTheThreadGoesOn) {
  void* taken = mmap(reinterpret_cast<void*>(data_.base), 4096, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(taken, reinterpret_cast<void*>(data_.base));
  enter();
  EXPECT_EQ(added, nullptr);
  munmap(taken, 4096);
}

TEST_F(PendingStub, FitsIntoThePaddingOfAPage) {
  std::memset(data_.library, 'a', sizeof data_.library - 1);
  EXPECT_LT(pending_stub(data_).size(), 1600U);
}

}  // namespace
}  // namespace dynprof
