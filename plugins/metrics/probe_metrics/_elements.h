// Elements of every dtype as vectors of doubles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#define INLINE static inline __attribute__((always_inline))
#define INLINE_MEMBER inline __attribute__((always_inline))

namespace {

constexpr int LANES = 64;  // sums that run side by side
constexpr int WIDTH = 8;   // numbers of a vector

typedef double Doubles __attribute__((vector_size(64)));
typedef int64_t Longs __attribute__((vector_size(64)));
typedef uint64_t UnsignedLongs __attribute__((vector_size(64)));
typedef float Floats __attribute__((vector_size(32)));
typedef uint32_t Words __attribute__((vector_size(32)));
typedef int32_t SignedWords __attribute__((vector_size(32)));
typedef uint16_t Halves __attribute__((vector_size(16)));

enum Code {
    FLOAT64, FLOAT32, FLOAT16, BFLOAT16, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, BOOL, CODES
};
const int SIZES[CODES] = {8, 4, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8, 1};

constexpr double INFINITE = std::numeric_limits<double>::infinity();
constexpr double LARGEST = std::numeric_limits<double>::max();

// What one side holds besides its sums.
struct Side {
    double max = -INFINITE, min = INFINITE;  // of finite elements
    int64_t nan = 0, infinite = 0;
};

INLINE double larger(double a, double b) { return a > b ? a : b; }
INLINE double smaller(double a, double b) { return a < b ? a : b; }
INLINE Doubles larger(Doubles a, Doubles b) { return a > b ? a : b; }
INLINE Doubles smaller(Doubles a, Doubles b) { return a < b ? a : b; }
INLINE Doubles every(double value) { return Doubles{} + value; }
INLINE Doubles magnitude(Doubles a) { return (Doubles)((Longs)a & INT64_MAX); }

template <typename V>
INLINE V load(const void *from) {
    V found;
    std::memcpy(&found, from, sizeof found);
    return found;
}

template <typename V>
INLINE void store(void *to, V value) {
    std::memcpy(to, &value, sizeof value);
}

// ---- elements as doubles --------------------------------------------------------------------------

template <typename T>
struct Plain {
    typedef T Stored;
    INLINE Doubles wide(const T *at) {
        typedef T Few __attribute__((vector_size(sizeof(T) * WIDTH)));
        return __builtin_convertvector(load<Few>(at), Doubles);
    }
};

// Small whole numbers go by way of 32 bits, for which there are instructions.
template <typename T>
struct Small {
    typedef T Stored;
    INLINE Doubles wide(const T *at) {
        typedef T Few __attribute__((vector_size(sizeof(T) * WIDTH)));
        return __builtin_convertvector(__builtin_convertvector(load<Few>(at), SignedWords), Doubles);
    }
};

struct Brain {
    typedef uint16_t Stored;
    INLINE Doubles wide(const uint16_t *at) {
        Words bits = __builtin_convertvector(load<Halves>(at), Words) << 16;
        return __builtin_convertvector((Floats)bits, Doubles);
    }
};

struct Truth {
    typedef uint8_t Stored;
    INLINE Doubles wide(const uint8_t *at) {
        typedef uint8_t Few __attribute__((vector_size(WIDTH)));
        SignedWords bytes = __builtin_convertvector(load<Few>(at), SignedWords);
        return __builtin_convertvector((bytes != 0) & 1, Doubles);
    }
};

// IEEE half: exponent and fraction are shifted into place; subnormals are scaled by a subtraction.
struct Half {
    typedef uint16_t Stored;
    INLINE Doubles wide(const uint16_t *at) {
        Words bits = __builtin_convertvector(load<Halves>(at), Words);
        Words sign = (bits & 0x8000u) << 16, rest = bits & 0x7fffu, moved = rest << 13;
        Words least = Words{} + (113u << 23);
        Words tiny = (Words)((Floats)(moved + least) - (Floats)least);
        Words found = rest < 0x0400u ? tiny : moved + (112u << 23);
        found = rest >= 0x7c00u ? moved | 0x7f800000u : found;
        return __builtin_convertvector((Floats)(found | sign), Doubles);
    }
};

// One vector; beyond `count` elements zeros, without reading there.
template <typename Kind>
INLINE Doubles wide(const typename Kind::Stored *at, ptrdiff_t count) {
    if (count >= WIDTH) return Kind::wide(at);
    typename Kind::Stored few[WIDTH] = {};
    for (ptrdiff_t i = 0; i < count; i++) few[i] = at[i];
    return Kind::wide(few);
}

template <typename T>
INLINE double across_max(T vector) {
    double found = vector[0];
    for (int i = 1; i < WIDTH; i++) found = larger(found, vector[i]);
    return found;
}

template <typename T>
INLINE double across_min(T vector) {
    double found = vector[0];
    for (int i = 1; i < WIDTH; i++) found = smaller(found, vector[i]);
    return found;
}

INLINE bool any(Longs mask) {
    int64_t found = 0;
    for (int i = 0; i < WIDTH; i++) found |= mask[i];
    return found != 0;
}

INLINE int64_t total(Longs counts) {
    int64_t found = 0;
    for (int i = 0; i < WIDTH; i++) found += counts[i];
    return found;
}

// Decode up to PIECE elements into `to`, padded with zeros to whole rows of lanes; true where all are
// finite, and then the extrema are noted.
template <typename Kind>
INLINE bool decode(const void *data, ptrdiff_t start, int count, double *to, Side &side) {
    const typename Kind::Stored *from = (const typename Kind::Stored *)data + start;
    Doubles high = every(-INFINITE), low = every(INFINITE);
    Longs odd = {};
    int whole = count - count % WIDTH;
    for (int i = 0; i < whole; i += WIDTH) {
        Doubles found = Kind::wide(from + i);
        odd |= ~(magnitude(found) <= LARGEST);
        high = larger(found, high);
        low = smaller(found, low);
        store(to + i, found);
    }
    double max = across_max(high), min = across_min(low);
    bool finite = !any(odd);
    if (whole < count) {
        Doubles rest = wide<Kind>(from + whole, count - whole);
        for (int i = 0; i < count - whole; i++) {
            finite &= rest[i] - rest[i] == 0;
            max = larger(rest[i], max);
            min = smaller(rest[i], min);
        }
        store(to + whole, rest);
        whole += WIDTH;
    }
    for (; whole % LANES; whole += WIDTH) store(to + whole, Doubles{});
    if (finite) {
        side.max = larger(max, side.max);
        side.min = smaller(min, side.min);
    }
    return finite;
}

INLINE bool decode(int code, const void *data, ptrdiff_t start, int count, double *to, Side &side) {
    switch (code) {
        case FLOAT64: return decode<Plain<double>>(data, start, count, to, side);
        case FLOAT32: return decode<Plain<float>>(data, start, count, to, side);
        case FLOAT16: return decode<Half>(data, start, count, to, side);
        case BFLOAT16: return decode<Brain>(data, start, count, to, side);
        case INT8: return decode<Small<int8_t>>(data, start, count, to, side);
        case INT16: return decode<Small<int16_t>>(data, start, count, to, side);
        case INT32: return decode<Plain<int32_t>>(data, start, count, to, side);
        case INT64: return decode<Plain<int64_t>>(data, start, count, to, side);
        case UINT8: return decode<Small<uint8_t>>(data, start, count, to, side);
        case UINT16: return decode<Small<uint16_t>>(data, start, count, to, side);
        case UINT32: return decode<Plain<uint32_t>>(data, start, count, to, side);
        case BOOL: return decode<Truth>(data, start, count, to, side);
        default: return decode<Plain<uint64_t>>(data, start, count, to, side);
    }
}

}  // namespace
