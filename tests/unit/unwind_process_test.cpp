// Tables, mappings and the BPF unwinder together: this process unwound by them, against the C library's own
// unwinder; and what a process's mappings come to.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/bpf_native_space.h"
#include "tests/unit/unwind_fake_elf.h"
#include "user/target/remote_memory.h"
#include "user/unwind_tables/mappings.h"
#include "user/unwind_tables/table_pool.h"

namespace dynprof {
namespace {

using dynprof::testing::NativeSpaceImage;
using dynprof::testing::SampledThread;
using fake_elf::Bytes;

// This process as the BPF unwinder walks it: with its mappings, its files' tables and its memory.
class Walker {
 public:
  Walker() : mappings_(*files_.read(::getpid())) {
    for (const CodeMapping& code : mappings_.mappings)
      space_.map(code.mapping.start, code.mapping.end, code.bias.value_or(0),
                 code.bias ? slot_of(code) : 0);
    space_.publish();
    process_.native_space = NativeSpaceImage::kSlot;
    process_.native_owner = NativeSpaceImage::kOwner;
  }

  // Instruction addresses, innermost first; ends at the thread's start or with a 0 where it is lost.
  std::vector<std::uint64_t> walk(const ucontext_t& context) {
    const auto& all = context.uc_mcontext.gregs;
    const auto word = [&](int which) { return static_cast<std::uint64_t>(all[which]); };
    dp_host_thread thread = {};
    thread.process = &process_;
    thread.read = [](void* memory, void* to, __u32 size, __u64 address) {
      const std::span bytes(static_cast<std::byte*>(to), size);
      return static_cast<ProcessMemory*>(memory)->read(address, bytes) ? 0 : -1;
    };
    thread.context = &memory_;
    thread.ip = word(REG_RIP);
    thread.sp = word(REG_RSP);
    thread.bp = word(REG_RBP);
    thread.r10 = word(REG_R10);
    thread.r13 = word(REG_R13);
    thread.rbx = word(REG_RBX);
    space_.give_to(thread);
    const bool whole = sampled_.take(thread).sample.native_end == DP_COUNT_SAMPLES;
    std::vector<std::uint64_t> ips = sampled_.addresses();
    if (!whole) ips.push_back(0);
    return ips;
  }

 private:
  // 0: its file has no table.
  std::uint32_t slot_of(const CodeMapping& code) {
    auto [known, fresh] = slots_.try_emplace(code.file->key);
    if (!fresh) return known->second;
    if (code.vdso) {
      const auto image = read_vdso(::getpid(), code.mapping);
      if (auto table = build_unwind_table(ByteSource::of_bytes(*image)))
        known->second = space_.add(*table);
    } else if (auto file = open_mapped_file(::getpid(), code.mapping)) {
      if (auto table = build_unwind_table(*ByteSource::of_file(*std::move(file))))
        known->second = space_.add(*table);
    }
    return known->second;
  }

  ReadAccounts accounts_{kWideReadLimits};
  CodeFiles files_{accounts_};
  CodeMappings mappings_;
  std::map<std::string, std::uint32_t> slots_;
  NativeSpaceImage space_;
  dp_process process_ = {};
  ProcessMemory memory_{::getpid()};
  SampledThread sampled_;
};

struct Capture {
  std::vector<std::uint64_t> expected;
  ucontext_t context{};
  std::vector<std::uint64_t> ours;
} captured;

_Unwind_Reason_Code note(_Unwind_Context* context, void*) {
  // It closes with a 0 behind the thread's start.
  if (const std::uint64_t ip = _Unwind_GetIP(context)) captured.expected.push_back(ip);
  return _URC_NO_REASON;
}

// The walk begins while this frame still stands.
[[gnu::noinline]] void capture() {
  captured.expected.clear();
  _Unwind_Backtrace(&note, nullptr);
  captured.expected.erase(captured.expected.begin());
  ::getcontext(&captured.context);
  captured.ours = Walker().walk(captured.context);
}

// Everything above capture() itself, whose own instruction differs.
void expect_the_same(std::size_t at_least) {
  ASSERT_GT(captured.ours.size(), 1u);
  const std::vector<std::uint64_t> callers(captured.ours.begin() + 1, captured.ours.end());
  EXPECT_EQ(callers, captured.expected);
  EXPECT_GE(callers.size(), at_least);
}

[[gnu::noinline]] int recurse(int depth) {
  if (depth == 0) {
    capture();
    return 0;
  }
  return recurse(depth - 1) + 1;
}

[[gnu::noinline]] int with_alloca(std::size_t size) {
  auto* bytes = static_cast<volatile char*>(__builtin_alloca(size));
  bytes[0] = 1;
  capture();
  return bytes[0];
}

// The vector is kept on a stack that the function realigns.
struct alignas(64) Wide {
  double values[16];
};
[[gnu::noinline]] double realigned(int more, ...) {
  volatile Wide wide{};
  wide.values[0] = more;
  auto* bytes = static_cast<volatile char*>(__builtin_alloca(static_cast<std::size_t>(more)));
  bytes[0] = 1;
  capture();
  return wide.values[0];
}

int compare(const void*, const void*) {
  capture();
  return 0;
}

void on_signal(int) { capture(); }

TEST(UnwindProcess, ThisProcess) {
  recurse(20);
  expect_the_same(22);
  with_alloca(1000);
  expect_the_same(5);
  realigned(100, 1, 2);
  expect_the_same(5);
}

TEST(UnwindProcess, ThroughTheCLibrary) {
  int two[2] = {1, 2};
  std::qsort(two, 2, sizeof two[0], &compare);
  expect_the_same(5);
}

TEST(UnwindProcess, ThroughASignalFrame) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = &on_signal;
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &before), 0);
  ASSERT_EQ(::raise(SIGUSR1), 0);
  ::sigaction(SIGUSR1, &before, nullptr);
  expect_the_same(7);
}

// ---- mappings --------------------------------------------------------------------------------------

const CodeMapping* mapping_at(const CodeMappings& all, const void* address) {
  const auto wanted = reinterpret_cast<std::uint64_t>(address);
  for (const CodeMapping& code : all.mappings) {
    if (wanted >= code.mapping.start && wanted < code.mapping.end) return &code;
  }
  return nullptr;
}

TEST(UnwindMappings, BiasIsTheLoadersOwn) {
  ReadAccounts accounts(kWideReadLimits);
  CodeFiles files(accounts);
  const auto all = files.read(::getpid());
  ASSERT_TRUE(all);
  Dl_info found{};
  void* symbol = ::dlsym(RTLD_DEFAULT, "qsort");
  ASSERT_NE(::dladdr(symbol, &found), 0);
  const CodeMapping* libc = mapping_at(*all, symbol);
  ASSERT_NE(libc, nullptr);
  EXPECT_EQ(libc->bias, reinterpret_cast<std::uint64_t>(found.dli_fbase));
  EXPECT_EQ(libc->file->problem, "");
  EXPECT_GE(libc->file->layout.build_id.size(), 16u);
  EXPECT_TRUE(libc->file->key.starts_with(libc->file->layout.build_id + "-"));
  const auto* image = reinterpret_cast<const void*>(::getauxval(AT_SYSINFO_EHDR));
  const CodeMapping* vdso = mapping_at(*all, image);
  ASSERT_NE(vdso, nullptr);
  EXPECT_TRUE(vdso->vdso);
  EXPECT_EQ(vdso->bias, ::getauxval(AT_SYSINFO_EHDR));
  // The same objects come out again, without reading the files.
  const auto again = files.read(::getpid());
  EXPECT_EQ(mapping_at(*again, symbol)->file, libc->file);
  EXPECT_EQ(mapping_at(*again, image)->file, vdso->file);
}

class MappedFile : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_elf::File file = fake_elf::file_of({{fake_elf::kCodeAddress, 0x100, {}, 0}});
    file.build_id = Bytes(20, 0x5a);
    Bytes image = fake_elf::make(file);
    image.resize(fake_elf::kCodeSize);
    fd_.reset(::mkstemp(path_));
    ASSERT_TRUE(fd_);
    ASSERT_EQ(::write(fd_.get(), image.data(), image.size()), static_cast<ssize_t>(image.size()));
  }
  void TearDown() override {
    for (const auto& [at, size] : maps_) ::munmap(at, size);
    ::unlink(path_);
  }
  void* map(std::size_t size, off_t offset, int protection = PROT_READ | PROT_EXEC) {
    void* at = ::mmap(nullptr, size, protection, MAP_PRIVATE, fd_.get(), offset);
    if (at != MAP_FAILED) maps_.emplace_back(at, size);
    return at;
  }

  char path_[32] = "/tmp/unwind_mapped_XXXXXX";
  UniqueFd fd_;
  std::vector<std::pair<void*, std::size_t>> maps_;
};

TEST_F(MappedFile, WithoutBuildIdOrContent) {
  ASSERT_EQ(::ftruncate(fd_.get(), 0), 0);
  ASSERT_EQ(::ftruncate(fd_.get(), 4096), 0);
  void* at = map(4096, 0);
  ASSERT_NE(at, MAP_FAILED);
  ReadAccounts accounts(kWideReadLimits);
  const auto all = CodeFiles(accounts).read(::getpid());
  const CodeMapping* code = mapping_at(*all, at);
  ASSERT_NE(code, nullptr);
  EXPECT_EQ(code->file->problem, "is not an ELF file");
  EXPECT_EQ(code->bias, std::nullopt);
}

TEST_F(MappedFile, DeletedAndReplaced) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can open a deleted file of a mapping";
  void* at = map(0x2000, 0x3000);
  ASSERT_NE(at, MAP_FAILED);
  ::unlink(path_);
  UniqueFd other(::open(path_, O_CREAT | O_EXCL | O_WRONLY, 0600));
  ASSERT_TRUE(other);
  ReadAccounts accounts(kWideReadLimits);
  const auto all = CodeFiles(accounts).read(::getpid());
  const CodeMapping* code = mapping_at(*all, at);
  ASSERT_NE(code, nullptr);
  EXPECT_TRUE(code->mapping.deleted);
  EXPECT_EQ(code->file->problem, "");
  EXPECT_EQ(code->file->layout.build_id.substr(0, 4), "5a5a");
  // The segment lies at 0x1000 and begins with the file.
  EXPECT_EQ(code->bias, reinterpret_cast<std::uint64_t>(at) - 0x3000 - fake_elf::kCodeAddress);
  auto file = open_mapped_file(::getpid(), code->mapping);
  ASSERT_TRUE(file);
  EXPECT_TRUE(build_unwind_table(*ByteSource::of_file(*std::move(file))));
}

TEST_F(MappedFile, TenThousandAreTheMost) {
  // One range, every other page of it executable.
  constexpr std::size_t kPages = 10'050;
  auto* range = static_cast<char*>(
      ::mmap(nullptr, 2 * kPages * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(range, MAP_FAILED);
  maps_.emplace_back(range, 2 * kPages * 4096);
  for (std::size_t i = 0; i < kPages; ++i) {
    ASSERT_NE(::mmap(range + 2 * i * 4096, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED,
                     fd_.get(), 0),
              MAP_FAILED);
  }
  ReadAccounts accounts(kWideReadLimits);
  const auto all = CodeFiles(accounts).read(::getpid());
  ASSERT_TRUE(all);
  EXPECT_EQ(all->mappings.size(), kMaxCodeMappings);
  EXPECT_GE(all->left_out, 50u);
}

// ---- the pool --------------------------------------------------------------------------------------

TableRequest request_of(std::uint64_t id, Bytes image) {
  TableRequest request;
  request.id = id;
  request.image = std::move(image);
  return request;
}

TEST(UnwindPool, EveryRequestIsAnswered) {
  const Bytes good = fake_elf::make(fake_elf::file_of({{fake_elf::kCodeAddress, 0x100, {}, 0}}));
  ReadAccounts accounts(kWideReadLimits);
  TablePool pool(2, nullptr, accounts);
  EXPECT_EQ(pool.pending(), 0u);
  EXPECT_FALSE(pool.wait(std::chrono::milliseconds(60'000))) << "nothing is under way";
  for (std::uint64_t id = 0; id < 100; ++id) {
    TableRequest request = request_of(id, id % 10 == 0 ? Bytes{1, 2, 3} : good);
    ASSERT_TRUE(pool.submit(request));
  }
  std::set<std::uint64_t> done;
  while (auto result = pool.wait(std::chrono::milliseconds(60'000))) {
    EXPECT_TRUE(done.insert(result->id).second);
    EXPECT_EQ(result->table.has_value(), result->id % 10 != 0);
  }
  EXPECT_EQ(done.size(), 100u);
  EXPECT_EQ(pool.pending(), 0u);
}

TEST(UnwindPool, TheDescriptorSaysWhenThereIsSomething) {
  ReadAccounts accounts(kWideReadLimits);
  TablePool pool(1, nullptr, accounts);
  pollfd ready{pool.ready_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 0), 0);
  TableRequest request;
  request.id = 7;
  request.file.reset(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  ASSERT_TRUE(pool.submit(request));
  ASSERT_EQ(::poll(&ready, 1, 60'000), 1);
  const auto result = pool.take();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->id, 7u);
  ASSERT_TRUE(result->table) << result->table.error().what;
  EXPECT_GT(result->table->rows.size(), 1000u);
  EXPECT_EQ(::poll(&ready, 1, 0), 0);
  EXPECT_FALSE(pool.take());
}

TEST(UnwindPool, RequestsAreBounded) {
  ReadAccounts accounts(kWideReadLimits);
  TablePool pool(1, nullptr, accounts);
  std::size_t taken = 0;
  for (std::size_t i = 0; i < TablePool::kMaxRequests + 10; ++i) {
    TableRequest request = request_of(i, {1});
    if (pool.submit(request)) {
      ++taken;
    } else {
      EXPECT_EQ(request.image.size(), 1u) << "what is refused is left as it was";
    }
  }
  EXPECT_EQ(taken, TablePool::kMaxRequests);
  ASSERT_TRUE(pool.wait(std::chrono::milliseconds(60'000)));
  TableRequest request = request_of(1, {1});
  EXPECT_TRUE(pool.submit(request));
}

TEST(UnwindPool, ItEndsWithWorkLeft) {
  for (int round = 0; round < 20; ++round) {
    ReadAccounts accounts(kWideReadLimits);
    TablePool pool(2, nullptr, accounts);
    for (std::uint64_t id = 0; id < 50; ++id) {
      TableRequest request;
      request.id = id;
      request.file.reset(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
      ASSERT_TRUE(pool.submit(request));
    }
  }
}

}  // namespace
}  // namespace dynprof
