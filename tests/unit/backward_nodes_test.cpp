// In which words of a node its Python instance is looked for.
#include "user/target/backward_nodes.h"

#include <gtest/gtest.h>

#include <set>

namespace dynprof {
namespace {

TEST(BackwardNodes, TheWordsOfEachTorchAreLookedAtAndThenTheFirstAgain) {
  std::set<unsigned> offsets;
  std::uint16_t first = first_node_words();
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(first % 8, 0u);
    EXPECT_EQ(first & DP_NODE_SEARCHED, 0u);
    for (unsigned word = 0; word < DP_NODE_WORDS; ++word)
      EXPECT_TRUE(offsets.insert(first + 8 * word).second) << first << " looks at words again";
    first = node_words_after(first);
  }
  EXPECT_EQ(first, first_node_words());
  EXPECT_TRUE(offsets.contains(0x70)) << "torch 2.13";
  EXPECT_TRUE(offsets.contains(0x1d8)) << "torch 2.11";
  EXPECT_EQ(node_words_after(12345), first_node_words());
}

}  // namespace
}  // namespace dynprof
