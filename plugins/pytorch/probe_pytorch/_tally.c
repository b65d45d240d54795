/* Maximum, minimum, mean and L2 norm of an array in one pass, accumulated in double.
 *
 * measure(address, count, code) -> (max, min, mean, norm); code is the element type (the table in
 * statistics.py). Floating: NaN among the elements makes all four NaN. Whole numbers: max and min are
 * exact ints. The caller vouches that `count` elements can be read at `address`.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__gnu_linux__)
#define FOR_EACH_CPU __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define FOR_EACH_CPU
#endif

#define LANES 16

typedef struct {
    double max, min, sum, squares;
    int nan;
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

/* Sixteen lanes side by side, so that the compiler keeps them in vector registers. */
#define DEFINE_FLOATING(NAME, STORED, WIDE, LOAD)                                                  \
    FOR_EACH_CPU static void NAME(const STORED *data, Py_ssize_t count, Tally *found) {            \
        WIDE high[LANES], low[LANES];                                                              \
        double sum[LANES], squares[LANES];                                                         \
        int nan[LANES];                                                                            \
        for (int lane = 0; lane < LANES; lane++) {                                                 \
            high[lane] = (WIDE)-INFINITY;                                                          \
            low[lane] = (WIDE)INFINITY;                                                            \
            sum[lane] = squares[lane] = 0.0;                                                       \
            nan[lane] = 0;                                                                         \
        }                                                                                          \
        Py_ssize_t whole = count - count % LANES;                                                  \
        for (Py_ssize_t i = 0; i < whole; i += LANES) {                                            \
            for (int lane = 0; lane < LANES; lane++) {                                             \
                WIDE value = LOAD(data[i + lane]);                                                 \
                high[lane] = value > high[lane] ? value : high[lane];                              \
                low[lane] = value < low[lane] ? value : low[lane];                                 \
                nan[lane] |= value != value;                                                       \
                sum[lane] += (double)value;                                                        \
                squares[lane] += (double)value * (double)value;                                    \
            }                                                                                      \
        }                                                                                          \
        for (Py_ssize_t i = whole; i < count; i++) {                                               \
            int lane = (int)(i - whole);                                                           \
            WIDE value = LOAD(data[i]);                                                            \
            high[lane] = value > high[lane] ? value : high[lane];                                  \
            low[lane] = value < low[lane] ? value : low[lane];                                     \
            nan[lane] |= value != value;                                                           \
            sum[lane] += (double)value;                                                            \
            squares[lane] += (double)value * (double)value;                                        \
        }                                                                                          \
        found->max = high[0], found->min = low[0], found->sum = found->squares = 0.0;              \
        found->nan = 0;                                                                            \
        for (int lane = 0; lane < LANES; lane++) {                                                 \
            if (high[lane] > found->max) found->max = high[lane];                                  \
            if (low[lane] < found->min) found->min = low[lane];                                    \
            found->sum += sum[lane];                                                               \
            found->squares += squares[lane];                                                       \
            found->nan |= nan[lane];                                                               \
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
    FOR_EACH_CPU static void NAME(const STORED *data, Py_ssize_t count, WholeTally *found) {       \
        STORED high = data[0], low = data[0];                                                      \
        double sum[LANES] = {0.0}, squares[LANES] = {0.0};                                         \
        for (Py_ssize_t i = 0; i < count; i++) {                                                   \
            high = data[i] > high ? data[i] : high;                                                \
            low = data[i] < low ? data[i] : low;                                                   \
        }                                                                                          \
        Py_ssize_t whole = count - count % LANES;                                                  \
        for (Py_ssize_t i = 0; i < whole; i += LANES) {                                            \
            for (int lane = 0; lane < LANES; lane++) {                                             \
                double value = (double)data[i + lane];                                             \
                sum[lane] += value;                                                                \
                squares[lane] += value * value;                                                    \
            }                                                                                      \
        }                                                                                          \
        for (Py_ssize_t i = whole; i < count; i++) {                                               \
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
static double scaled_norm(const double *data, Py_ssize_t count, double scale) {
    double squares = 0.0;
    for (Py_ssize_t i = 0; i < count; i++) {
        double value = data[i] / scale;
        squares += value * value;
    }
    return scale * sqrt(squares);
}

static PyObject *measure(PyObject *module, PyObject *const *arguments, Py_ssize_t given) {
    (void)module;
    if (given != 3) {
        PyErr_SetString(PyExc_TypeError, "measure takes an address, a count and a code");
        return NULL;
    }
    void *data = PyLong_AsVoidPtr(arguments[0]);
    Py_ssize_t count = PyLong_AsSsize_t(arguments[1]);
    long code = PyLong_AsLong(arguments[2]);
    if (PyErr_Occurred()) return NULL;
    if (data == NULL || count <= 0) {
        PyErr_SetString(PyExc_ValueError, "there are no elements to measure");
        return NULL;
    }
    Tally floating;
    WholeTally whole;
    int is_whole = code >= 4;
    Py_BEGIN_ALLOW_THREADS
    switch (code) {
    case 0: tally_float(data, count, &floating); break;
    case 1: tally_double(data, count, &floating); break;
    case 2: tally_half(data, count, &floating); break;
    case 3: tally_bfloat16(data, count, &floating); break;
    case 4: tally_int64(data, count, &whole); break;
    case 5: tally_int32(data, count, &whole); break;
    case 6: tally_int16(data, count, &whole); break;
    case 7: tally_int8(data, count, &whole); break;
    case 8: tally_uint8(data, count, &whole); break;
    default: is_whole = -1;
    }
    Py_END_ALLOW_THREADS
    if (is_whole < 0) {
        PyErr_SetString(PyExc_ValueError, "no element type has this code");
        return NULL;
    }
    if (is_whole)
        return Py_BuildValue("(LLdd)", whole.max, whole.min, whole.sum / (double)count, sqrt(whole.squares));
    if (floating.nan) return Py_BuildValue("(dddd)", NAN, NAN, NAN, NAN);
    double norm = sqrt(floating.squares);
    double largest = fmax(fabs(floating.max), fabs(floating.min));
    if (code == 1 && isfinite(largest) && largest > 0.0 && (isinf(norm) || largest < 1e-150))
        norm = scaled_norm(data, count, largest);
    double mean = floating.sum / (double)count;
    return Py_BuildValue("(dddd)", floating.max, floating.min, mean, norm);
}

static PyMethodDef methods[] = {
    {"measure", (PyCFunction)(void (*)(void))measure, METH_FASTCALL,
     "measure(address, count, code) -> (max, min, mean, norm)"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_tally", "Statistics of an array in one pass.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__tally(void) { return PyModule_Create(&definition); }
