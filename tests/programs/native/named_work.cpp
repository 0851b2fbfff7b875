// A library whose functions have names worth looking up: a local one, which only .symtab knows, of a
// template with a long name.
#include <vector>

namespace deep::inside {

template <class A, class B, class C>
struct Box {
  A a;
  B b;
  C c;
};

template <class T>
[[gnu::noinline]] static double spin_in_a_template(const T& box, long rounds) {
  double sum = box.a;
  for (volatile long i = 0; i < rounds; ++i) sum += static_cast<double>(i) * box.b;
  return sum;
}

}  // namespace deep::inside

// Not the last call: a call in tail position leaves no frame.
extern "C" double exported_work(long rounds) {
  const deep::inside::Box<double, double, std::vector<std::vector<double>>> box{1, 2, {}};
  return deep::inside::spin_in_a_template(box, rounds) + 1;
}
