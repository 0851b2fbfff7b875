#include "user/kernel/cpu_sampling.h"

#include <gtest/gtest.h>

#include <vector>

namespace dynprof {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

// CPUs that come and go as a test says; each event opened is noted.
struct Machine {
  std::vector<int> online = {0, 1};
  std::vector<int> opened;
  int attached = 0;
  int refuses = -1;

  CpuSampling sampling() {
    return CpuSampling({.online = [this] { return online; },
                        .open = [this](int cpu) -> Result<UniqueFd> {
                          opened.push_back(cpu);
                          if (cpu == refuses) return error("no counter left");
                          return UniqueFd();
                        },
                        .attach = [this](UniqueFd) -> Result<Link> {
                          ++attached;
                          return Link();
                        }});
  }
  static std::vector<CpuEvent> events(std::initializer_list<int> cpus) {
    std::vector<CpuEvent> list;
    for (int cpu : cpus) list.push_back({cpu, UniqueFd()});
    return list;
  }
};

TEST(CpuSampling, OnesThatComeLaterAreSampled) {
  Machine machine;
  CpuSampling sampling = machine.sampling();
  ASSERT_TRUE(sampling.begin(Machine::events({0, 1})));
  EXPECT_EQ(machine.attached, 2);
  EXPECT_EQ(sampling.follow(1 * kSecond), "");
  EXPECT_TRUE(machine.opened.empty()) << "those on line are sampled already";
  machine.online = {0, 1, 2, 3};
  EXPECT_EQ(sampling.follow(1 * kSecond + 1), "");
  EXPECT_TRUE(machine.opened.empty()) << "looks once a second";
  EXPECT_EQ(sampling.follow(2 * kSecond), "");
  EXPECT_EQ(machine.opened, (std::vector{2, 3}));
  EXPECT_EQ(machine.attached, 4);
}

TEST(CpuSampling, OneThatGoesAndComesAgainGetsANewEvent) {
  Machine machine;
  CpuSampling sampling = machine.sampling();
  ASSERT_TRUE(sampling.begin(Machine::events({0, 1})));
  machine.online = {0};
  EXPECT_EQ(sampling.follow(1 * kSecond), "");
  EXPECT_EQ(sampling.cpus(), 1u);
  machine.online = {0, 1};
  EXPECT_EQ(sampling.follow(2 * kSecond), "");
  EXPECT_EQ(machine.opened, (std::vector{1}));
  EXPECT_EQ(sampling.cpus(), 2u);
}

TEST(CpuSampling, OneThatCannotBeSampledIsNamedOnce) {
  Machine machine;
  machine.refuses = 2;
  CpuSampling sampling = machine.sampling();
  ASSERT_TRUE(sampling.begin(Machine::events({0, 1})));
  machine.online = {0, 1, 2};
  EXPECT_EQ(sampling.follow(1 * kSecond), "CPU 2 came online and is not sampled: no counter left");
  EXPECT_EQ(sampling.follow(2 * kSecond), "");
  EXPECT_EQ(machine.opened, (std::vector{2}));
}

TEST(CpuList, IsReadAsTheKernelWritesIt) {
  EXPECT_EQ(parse_cpu_list("0-3,7\n"), (std::vector{0, 1, 2, 3, 7}));
  EXPECT_EQ(parse_cpu_list("0"), (std::vector{0}));
  EXPECT_EQ(parse_cpu_list("2,4-5"), (std::vector{2, 4, 5}));
  EXPECT_TRUE(parse_cpu_list("").empty());
  EXPECT_TRUE(parse_cpu_list("none").empty());
  EXPECT_EQ(parse_cpu_list("1,x"), (std::vector{1}));
  EXPECT_EQ(parse_cpu_list("5-"), std::vector<int>());
  EXPECT_LE(parse_cpu_list("0-2000000000").size(), 65536u);
  EXPECT_LE(parse_cpu_list("0-65534,0-65535,0-65535").size(), 65536u);
}

}  // namespace
}  // namespace dynprof
