// A main for fuzz entries where libFuzzer is not linked:
//   replay FILE...         runs each file once (a corpus, or what a fuzzer found)
//   replay --random N [SEED]   runs N inputs made here: random bytes, lengths up to 4 KiB, half of
//                          them small changes of the input before (by the entry's own mutator
//                          where it has one)
//   replay --seconds N SEED DIRECTORY   runs each file in DIRECTORY, then changes of them for N seconds
#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" __attribute__((weak)) std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data,
                                                                     std::size_t size,
                                                                     std::size_t max_size,
                                                                     unsigned int seed);

namespace {

constexpr std::size_t kMaxInput = std::size_t{64} << 20;
constexpr std::size_t kMaxRandom = 4096;
constexpr std::size_t kMaxMutated = std::size_t{1} << 16;
constexpr std::size_t kMaxSeed = std::size_t{1} << 20;

std::mt19937_64 random_bits(1);

std::size_t change_bytes(std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  for (std::uint64_t changes = 1 + random_bits() % 8; changes > 0; --changes) {
    data[random_bits() % size] = static_cast<std::uint8_t>(random_bits());
  }
  return random_bits() % 16 == 0 ? random_bits() % (size + 1) : size;
}

// A copy of exactly this size on the heap, so that AddressSanitizer sees a read beyond its end.
void run(const std::vector<std::uint8_t>& input) {
  const auto copy = std::make_unique<std::uint8_t[]>(input.size());
  for (std::size_t i = 0; i < input.size(); ++i) copy[i] = input[i];
  LLVMFuzzerTestOneInput(copy.get(), input.size());
}

bool read_file(const char* path, std::vector<std::uint8_t>& input) {
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) {
    std::perror(path);
    return false;
  }
  std::uint8_t block[65536];
  std::size_t got = 0;
  while (input.size() < kMaxInput && (got = std::fread(block, 1, sizeof block, file)) > 0) {
    input.insert(input.end(), block, block + got);
  }
  const bool good = std::ferror(file) == 0;
  std::fclose(file);
  return good;
}

bool run_file(const char* path) {
  std::vector<std::uint8_t> input;
  if (!read_file(path, input)) return false;
  run(input);
  return true;
}

// The entry's own mutator for half of them, if it has one: it may replace all by an example.
void change(std::vector<std::uint8_t>& input) {
  if (LLVMFuzzerCustomMutator != nullptr && random_bits() % 2 == 0) {
    const std::size_t size = input.size();
    const std::size_t most = std::max(size, kMaxMutated);
    input.resize(most);
    input.resize(LLVMFuzzerCustomMutator(input.data(), size, most,
                                         static_cast<unsigned int>(random_bits())));
  } else {
    input.resize(change_bytes(input.data(), input.size()));
  }
}

bool run_for(double seconds, std::uint64_t seed, const char* directory) {
  random_bits.seed(seed);
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory))
    if (entry.is_regular_file()) paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  std::vector<std::vector<std::uint8_t>> seeds;
  for (const std::string& path : paths) {
    std::vector<std::uint8_t> input;
    if (!read_file(path.c_str(), input)) return false;
    run(input);
    if (input.size() <= kMaxSeed) seeds.push_back(std::move(input));
  }
  if (seeds.empty()) {
    std::fprintf(stderr, "no seeds in %s\n", directory);
    return false;
  }
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  std::uint64_t inputs = 0;
  for (; Clock::now() < until; ++inputs) {
    std::vector<std::uint8_t> input = seeds[random_bits() % seeds.size()];
    for (std::uint64_t changes = 1 + random_bits() % 4; changes > 0; --changes) change(input);
    run(input);
  }
  std::printf("%zu seeds, %" PRIu64 " changes of them in %.0f s, seed %" PRIu64 "\n", seeds.size(),
              inputs, seconds, seed);
  return inputs > 0;
}

void run_random(std::uint64_t count, std::uint64_t seed) {
  random_bits.seed(seed);
  std::vector<std::uint8_t> input;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (input.empty() || random_bits() % 2 == 0) {
      input.resize(random_bits() % (kMaxRandom + 1));
      for (std::uint8_t& byte : input) byte = static_cast<std::uint8_t>(random_bits());
    } else if (LLVMFuzzerCustomMutator == nullptr) {
      input.resize(change_bytes(input.data(), input.size()));
    }
    if (LLVMFuzzerCustomMutator != nullptr) {
      const std::size_t size = input.size();
      input.resize(kMaxMutated);
      input.resize(LLVMFuzzerCustomMutator(input.data(), size, kMaxMutated,
                                           static_cast<unsigned int>(random_bits())));
    }
    run(input);
  }
  std::printf("%" PRIu64 " random inputs, seed %" PRIu64 "\n", count, seed);
}

}  // namespace

// What libFuzzer offers to custom mutators.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t) {
  return change_bytes(data, size);
}

int main(int argc, char** argv) {
  if (argc >= 3 && std::string_view(argv[1]) == "--random") {
    const std::uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
    run_random(std::strtoull(argv[2], nullptr, 10), seed);
    return 0;
  }
  if (argc == 5 && std::string_view(argv[1]) == "--seconds") {
    return run_for(std::strtod(argv[2], nullptr), std::strtoull(argv[3], nullptr, 10), argv[4]) ? 0
                                                                                                : 1;
  }
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FILE... | --random N [SEED] | --seconds N SEED DIRECTORY\n",
                 argv[0]);
    return 2;
  }
  bool good = true;
  for (int i = 1; i < argc; ++i) good = run_file(argv[i]) && good;
  return good ? 0 : 1;
}
