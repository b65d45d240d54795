/* The statistics of elements in host memory in one pass, accumulated in double: maximum, minimum, mean, L2 norm. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif

#define LANES 16

typedef struct {
    double max, min, sum, squares;
} Tally;

static inline float from_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float load_bfloat16(uint16_t bits) { return from_bits((uint32_t)bits << 16); }

/* IEEE half to single: shift exponent and fraction into place, scale subnormals by a subtraction. */
static inline float load_half(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t rest = bits & 0x7fffu;
    uint32_t normal = (rest << 13) + (112u << 23);
    uint32_t special = (rest << 13) | 0x7f800000u;
    float tiny = from_bits((rest << 13) + (113u << 23)) - from_bits(113u << 23);
    uint32_t tiny_bits;
    memcpy(&tiny_bits, &tiny, sizeof tiny_bits);
    uint32_t found = rest >= 0x7c00u ? special : rest < 0x0400u ? tiny_bits : normal;
    return from_bits(found | sign);
}

#define SAME(value) (value)

/* Elements in memory: rows of equal length whose beginnings are `stride` elements apart. The length is a multiple of
 * LANES if there are several rows, so that the sums are those of a copy without gaps. */
typedef struct {
    Py_ssize_t rows, stride, length;
} Extent;

/* Sixteen lanes side by side, so that the compiler keeps them in vector registers. */
#define DEFINE_FLOATING(NAME, STORED, WIDE, LOAD)                                                  \
    FOR_EACH_CPU static void NAME(const STORED *data, Extent extent, Tally *found) {               \
        WIDE high[LANES], low[LANES];                                                              \
        double sum[LANES], squares[LANES];                                                         \
        for (int lane = 0; lane < LANES; lane++) {                                                 \
            high[lane] = (WIDE)-INFINITY;                                                          \
            low[lane] = (WIDE)INFINITY;                                                            \
            sum[lane] = squares[lane] = 0.0;                                                       \
        }                                                                                          \
        Py_ssize_t whole = extent.length - extent.length % LANES;                                  \
        for (Py_ssize_t row = 0; row < extent.rows; row++) {                                       \
            const STORED *start = data + row * extent.stride;                                      \
            for (Py_ssize_t i = 0; i < whole; i += LANES) {                                        \
                for (int lane = 0; lane < LANES; lane++) {                                         \
                    WIDE value = LOAD(start[i + lane]);                                            \
                    high[lane] = value > high[lane] ? value : high[lane];                          \
                    low[lane] = value < low[lane] ? value : low[lane];                             \
                    sum[lane] += (double)value;                                                    \
                    squares[lane] += (double)value * (double)value;                                \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        for (Py_ssize_t i = whole; i < extent.length; i++) {                                       \
            int lane = (int)(i - whole);                                                           \
            WIDE value = LOAD(data[i]);                                                            \
            high[lane] = value > high[lane] ? value : high[lane];                                  \
            low[lane] = value < low[lane] ? value : low[lane];                                     \
            sum[lane] += (double)value;                                                            \
            squares[lane] += (double)value * (double)value;                                        \
        }                                                                                          \
        found->max = high[0], found->min = low[0], found->sum = found->squares = 0.0;              \
        for (int lane = 0; lane < LANES; lane++) {                                                 \
            if (high[lane] > found->max) found->max = high[lane];                                  \
            if (low[lane] < found->min) found->min = low[lane];                                    \
            found->sum += sum[lane];                                                               \
            found->squares += squares[lane];                                                       \
        }                                                                                          \
    }

DEFINE_FLOATING(tally_float, float, float, SAME)
DEFINE_FLOATING(tally_double, double, double, SAME)
DEFINE_FLOATING(tally_half, uint16_t, float, load_half)
DEFINE_FLOATING(tally_bfloat16, uint16_t, float, load_bfloat16)

typedef struct {
    long long max, min;
    double sum, squares;
} WholeTally;

#define DEFINE_WHOLE(NAME, STORED)                                                                 \
    FOR_EACH_CPU static void NAME(const STORED *data, Extent extent, WholeTally *found) {          \
        STORED high = data[0], low = data[0];                                                      \
        double sum[LANES] = {0.0}, squares[LANES] = {0.0};                                         \
        Py_ssize_t whole = extent.length - extent.length % LANES;                                  \
        for (Py_ssize_t row = 0; row < extent.rows; row++) {                                       \
            const STORED *start = data + row * extent.stride;                                      \
            for (Py_ssize_t i = 0; i < extent.length; i++) {                                       \
                high = start[i] > high ? start[i] : high;                                          \
                low = start[i] < low ? start[i] : low;                                             \
            }                                                                                      \
            for (Py_ssize_t i = 0; i < whole; i += LANES) {                                        \
                for (int lane = 0; lane < LANES; lane++) {                                         \
                    double value = (double)start[i + lane];                                        \
                    sum[lane] += value;                                                            \
                    squares[lane] += value * value;                                                \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        for (Py_ssize_t i = whole; i < extent.length; i++) {                                       \
            sum[0] += (double)data[i];                                                             \
            squares[0] += (double)data[i] * (double)data[i];                                       \
        }                                                                                          \
        found->max = (long long)high, found->min = (long long)low;                                 \
        found->sum = found->squares = 0.0;                                                         \
        for (int lane = 0; lane < LANES; lane++) {                                                 \
            found->sum += sum[lane];                                                               \
            found->squares += squares[lane];                                                       \
        }                                                                                          \
    }

DEFINE_WHOLE(tally_int64, int64_t)
DEFINE_WHOLE(tally_int32, int32_t)
DEFINE_WHOLE(tally_int16, int16_t)
DEFINE_WHOLE(tally_int8, int8_t)
DEFINE_WHOLE(tally_uint8, uint8_t)

/* Compute a norm whose squares leave the range of double again, with the elements scaled. */
static double scaled_norm(const double *data, Extent extent, double scale) {
    double squares = 0.0;
    for (Py_ssize_t row = 0; row < extent.rows; row++) {
        for (Py_ssize_t i = 0; i < extent.length; i++) {
            double value = data[row * extent.stride + i] / scale;
            squares += value * value;
        }
    }
    return scale * sqrt(squares);
}

/* The kinds of elements: they decide of which types the statistics are. */
enum Kind { FLOATING, WHOLE, BOOLEAN };

/* The statistics of an array: whole numbers have exact extremes in `whole`, bools in `max` and `min`, which is then
 * true if all elements are; bools have no others. */
typedef struct {
    Kind kind;
    WholeTally whole;
    double max, min, mean, norm;
} Statistics;

/* Codes of element types, as the tables in statistics.py have them. */
enum Code { FLOAT32, FLOAT64, FLOAT16, BFLOAT16, INT64, INT32, INT16, INT8, UINT8, BOOL, CODE_COUNT };

static const Py_ssize_t ITEM_SIZES[CODE_COUNT] = {4, 8, 2, 2, 8, 4, 2, 1, 1, 1};

/* Find out whether any element of a bool array is true, and whether all are. */
static void tally_bool(const uint8_t *data, Extent extent, Statistics *found) {
    int any = 0, all = 1;
    for (Py_ssize_t row = 0; row < extent.rows; row++) {
        for (Py_ssize_t i = 0; i < extent.length; i++) {
            int value = data[row * extent.stride + i] != 0;
            any |= value;
            all &= value;
        }
    }
    found->max = any, found->min = all;
}

/* Measure the elements at `data`; return 0, or -1 with an exception for an unknown code. */
static int tally(const void *data, Extent extent, long code, Statistics *found) {
    if (code < 0 || code >= CODE_COUNT) {
        PyErr_SetString(PyExc_ValueError, "no element type has this code");
        return -1;
    }
    Tally floating;
    double count = (double)extent.rows * (double)extent.length;
    found->kind = code == BOOL ? BOOLEAN : code >= INT64 ? WHOLE : FLOATING;
    Py_BEGIN_ALLOW_THREADS
    switch ((Code)code) {
    case FLOAT32: tally_float((const float *)data, extent, &floating); break;
    case FLOAT64: tally_double((const double *)data, extent, &floating); break;
    case FLOAT16: tally_half((const uint16_t *)data, extent, &floating); break;
    case BFLOAT16: tally_bfloat16((const uint16_t *)data, extent, &floating); break;
    case INT64: tally_int64((const int64_t *)data, extent, &found->whole); break;
    case INT32: tally_int32((const int32_t *)data, extent, &found->whole); break;
    case INT16: tally_int16((const int16_t *)data, extent, &found->whole); break;
    case INT8: tally_int8((const int8_t *)data, extent, &found->whole); break;
    case UINT8: tally_uint8((const uint8_t *)data, extent, &found->whole); break;
    case BOOL: tally_bool((const uint8_t *)data, extent, found); break;
    case CODE_COUNT: break;
    }
    Py_END_ALLOW_THREADS
    if (found->kind == BOOLEAN) return 0;
    if (found->kind == WHOLE) {
        found->mean = found->whole.sum / count;
        found->norm = sqrt(found->whole.squares);
        return 0;
    }
    if (std::isnan(floating.squares)) { /* the sum of squares is NaN exactly if an element is */
        found->max = found->min = found->mean = found->norm = NAN;
        return 0;
    }
    found->max = floating.max, found->min = floating.min, found->mean = floating.sum / count;
    found->norm = sqrt(floating.squares);
    double largest = fmax(fabs(floating.max), fabs(floating.min));
    if (code == FLOAT64 && std::isfinite(largest) && largest > 0.0 && (std::isinf(found->norm) || largest < 1e-150))
        found->norm = scaled_norm((const double *)data, extent, largest);
    return 0;
}

/* Copy elements of any strides to `target` in the order of their indices; return the end of the copy. */
static char *gather(char *target, const char *data, const Py_ssize_t *sizes, const Py_ssize_t *strides,
                    Py_ssize_t dimensions, Py_ssize_t item) {
    if (dimensions == 1 && strides[0] == 1) {
        memcpy(target, data, (size_t)(sizes[0] * item));
        return target + sizes[0] * item;
    }
    for (Py_ssize_t i = 0; i < sizes[0]; i++, data += strides[0] * item) {
        if (dimensions > 1) {
            target = gather(target, data, sizes + 1, strides + 1, dimensions - 1, item);
            continue;
        }
        memcpy(target, data, (size_t)item);
        target += item;
    }
    return target;
}
