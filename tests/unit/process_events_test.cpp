// Which processes the program on sched_process_free reports. It is run by BPF_PROG_TEST_RUN, not attached.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "bpf/ended_process.h"
#include "bpf/events.h"
#include "process.skel.h"
#include "user/kernel/bpf_object.h"

namespace dynprof {
namespace {

class ProcessFreed : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    auto opened = open_object<process_bpf>("process");
    ASSERT_TRUE(opened) << opened.error().what;
    programs_ = std::move(*opened);
    if (auto loaded = load_object("process", *programs_); !loaded)
      GTEST_SKIP() << loaded.error().what;
    auto keep = [](void* out, void* data, std::size_t size) {
      dp_process_event event = {};
      if (size >= sizeof event) std::memcpy(&event, data, sizeof event);
      static_cast<std::vector<dp_process_event>*>(out)->push_back(event);
      return 0;
    };
    ring_.reset(ring_buffer__new(bpf_map__fd(programs_->maps.events), keep, &events_, nullptr));
    ASSERT_TRUE(ring_);
  }

  void end(std::uint64_t task, dp_ended_process process) {
    ASSERT_EQ(0, bpf_map__update_elem(programs_->maps.ended, &task, sizeof task, &process,
                                      sizeof process, BPF_ANY));
  }

  // Nothing can be read at these addresses: the kernel's tgid of the task is 0.
  std::vector<dp_process_event> free(std::uint64_t task) {
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &task, .ctx_size_in = sizeof task);
    EXPECT_EQ(0, bpf_prog_test_run_opts(bpf_program__fd(programs_->progs.process_freed), &options));
    events_.clear();
    ring_buffer__consume(ring_.get());
    return events_;
  }

 private:
  struct Free {
    void operator()(ring_buffer* ring) const { ring_buffer__free(ring); }
  };
  Skeleton<process_bpf> programs_;
  std::vector<dp_process_event> events_;
  std::unique_ptr<ring_buffer, Free> ring_;
};

TEST_F(ProcessFreed, OfAProcessThatEnded) {
  end(0x1000, {.pid = 5, .tgid = 0});
  const auto events = free(0x1000);
  ASSERT_EQ(1u, events.size());
  EXPECT_EQ(DP_EVENT_REAPED, events[0].header.kind);
  EXPECT_EQ(5u, events[0].header.pid);
  EXPECT_TRUE(free(0x1000).empty()) << "reported twice";
}

TEST_F(ProcessFreed, NotOfAnotherWithTheSameTask) {
  end(0x1000, {.pid = 5, .tgid = 7});
  EXPECT_TRUE(free(0x1000).empty());
  end(0x1000, {.pid = 6, .tgid = 0});
  EXPECT_EQ(1u, free(0x1000).size()) << "the next process with this task";
}

TEST_F(ProcessFreed, NotOfThreadsAndOthers) {
  end(0x1000, {.pid = 5, .tgid = 0});
  EXPECT_TRUE(free(0x2000).empty());
}

}  // namespace
}  // namespace dynprof
