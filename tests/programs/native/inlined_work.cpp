// A program whose inlined calls are known: work() calls a lambda, which calls twist(), which calls
// the template grind<3>(), and only work() is a function of its own. Lines that end in "@name" are
// those that a chain must name. Compile with -O2 -g.
#include <cstdlib>

#define INLINED inline __attribute__((always_inline))

namespace deep {

template <int Turns>
INLINED unsigned long grind(unsigned long value) {                              // @grind-declared
  for (int i = 0; i < 200'000; ++i)                                             // @grind-loop
    value = value * 6364136223846793005UL + static_cast<unsigned long>(Turns);  // @grind
  return value;
}

struct Mill {
  static INLINED unsigned long twist(unsigned long value) {  // @twist-declared
    value ^= value >> 7;
    return grind<3>(value);  // @twist
  }
};

}  // namespace deep

__attribute__((noinline)) unsigned long work(unsigned long value) {  // @work-declared
  auto turn = [](unsigned long seed) __attribute__((always_inline)) {
    return deep::Mill::twist(seed + 1);  // @lambda
  };
  value = turn(value);  // @work
  return value ^ 1;
}

extern "C" __attribute__((noinline)) unsigned long plain(unsigned long value) {  // @plain-declared
  for (int i = 0; i < 50'000; ++i)                                               // @plain-loop
    value = value * 2862933555777941757UL + 3037000493UL;                        // @plain
  return value;
}

unsigned long volatile result;  // a loop that has no effect would be left out

int main(int count, char** words) {
  const long rounds = count > 1 ? std::atol(words[1]) : 1;  // a third of a millisecond each
  unsigned long value = 1;
  for (long round = 0; round < rounds; ++round) {
    value = work(value);   // @main-work
    value = plain(value);  // @main-plain
    result = value;
  }
}
