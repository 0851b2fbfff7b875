// Precompiled for the unit tests. Sources do not include this themselves. nlohmann/json.hpp and gmock.h stay out: in a
// precompiled header they cost each file that does not use them more than they save the few that do.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>
