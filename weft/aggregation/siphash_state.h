// SipHash's state and rounds, over single words or over vectors of them.
#pragma once

#include <cstdint>

namespace weft::aggregation {

template <class Word>
struct SipHashState {
  Word v0, v1, v2, v3;

  // The constants spell "somepseudorandomlygeneratedbytes".
  [[gnu::always_inline]] SipHashState(const Word& k0, const Word& k1)
      : v0(k0 ^ 0x736f6d6570736575U),
        v1(k1 ^ 0x646f72616e646f6dU),
        v2(k0 ^ 0x6c7967656e657261U),
        v3(k1 ^ 0x7465646279746573U) {}

  // By reference, as finish() below: to return a vector would depend on the processor's calling convention.
  [[gnu::always_inline]] static void rotate(Word& x, int bits) { x = (x << bits) | (x >> (64 - bits)); }

  [[gnu::always_inline]] void rounds(int count) {
    for (int i = 0; i < count; ++i) {
      v0 += v1, v2 += v3;
      rotate(v1, 13), rotate(v3, 16);
      v1 ^= v0, v3 ^= v2;
      rotate(v0, 32);
      v2 += v1, v0 += v3;
      rotate(v1, 17), rotate(v3, 21);
      v1 ^= v2, v3 ^= v0;
      rotate(v2, 32);
    }
  }
  [[gnu::always_inline]] void absorb(const Word& word) {
    v3 ^= word;
    rounds(2);
    v0 ^= word;
  }
  [[gnu::always_inline]] void finish(Word& result) {
    v2 ^= 0xffU;
    rounds(4);
    result = v0 ^ v1 ^ v2 ^ v3;
  }
};

}  // namespace weft::aggregation
