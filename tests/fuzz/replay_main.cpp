// A main for fuzz entries where libFuzzer is not linked:
//   replay FILE...         runs each file once (a corpus, or what a fuzzer found)
//   replay --random N [SEED]   runs N inputs made here: random bytes, lengths up to 4 KiB, half of
//                          them small changes of the input before (by the entry's own mutator
//                          where it has one)
#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
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

bool run_file(const char* path) {
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) {
    std::perror(path);
    return false;
  }
  std::vector<std::uint8_t> input;
  std::uint8_t block[65536];
  std::size_t got = 0;
  while (input.size() < kMaxInput && (got = std::fread(block, 1, sizeof block, file)) > 0) {
    input.insert(input.end(), block, block + got);
  }
  const bool good = std::ferror(file) == 0;
  std::fclose(file);
  if (good) run(input);
  return good;
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
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s FILE... | --random N [SEED]\n", argv[0]);
    return 2;
  }
  bool good = true;
  for (int i = 1; i < argc; ++i) good = run_file(argv[i]) && good;
  return good ? 0 : 1;
}
