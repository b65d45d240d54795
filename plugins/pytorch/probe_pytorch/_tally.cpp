/* Statistics of tensors in host memory, and the JSON of leaves (docs/formats.md#leaves), which Python makes as well.
 *
 * measure(address, count, code) -> (max, min, mean, norm); code is the element type (the table in
 * statistics.py). Floating: NaN among the elements makes all four NaN. Whole numbers: max and min are
 * exact ints. The caller vouches that `count` elements can be read at `address`.
 *
 * describe(tensor, dtypes, strided, is_transformed) returns what a leaf holds of an ordinary tensor in host
 * memory: the name of its dtype, its shape, requires_grad and the four statistics. `dtypes` maps each dtype to
 * its name and code. The result is None for every other tensor: on another device, of another layout or
 * dtype, without elements, with freed memory, or inside a transform of torch.func.
 *
 * encode(tensor, dtypes, strided, is_transformed, checksum, cached) returns the same as the JSON of the leaf; its
 * `dtypes` give the text up to the shape in place of the name. `checksum` is a function that returns the checksum of the
 * bytes of a tensor in row-major order, which the leaf then holds, or None. `cached` is a dict for the texts of statistics by checksum, dtype and
 * number of elements, or None to compute the statistics of each tensor.
 *
 * encode_all(groups, dtypes, strided, is_transformed, checksum, cached, plain, by_key) returns the JSON of each group of
 * values, a tuple, a list or a dict, or None if any of the values is neither an ordinary tensor of a class in `plain`
 * nor None, a Python scalar, or a list or tuple of these. It also returns None if a dict has a key in `by_key` whose
 * value is not None.
 *
 * encode_each(values, dtypes, strided, is_transformed, checksum, cached, plain) returns a list with the JSON of each
 * ordinary tensor, and None for each other value.
 */
#include "_statistics.h"

#include <charconv>
#include <cstdlib>
#include <new>
#include <string>
#include <string_view>

namespace {

/* Return statistics as a tuple (max, min, mean, norm). */
PyObject *tuple_of(const Statistics &found) {
    if (found.kind == BOOLEAN)
        return Py_BuildValue("(OOOO)", found.max ? Py_True : Py_False, found.min ? Py_True : Py_False, Py_None, Py_None);
    if (found.kind == WHOLE)
        return Py_BuildValue("(LLdd)", found.whole.max, found.whole.min, found.mean, found.norm);
    return Py_BuildValue("(dddd)", found.max, found.min, found.mean, found.norm);
}

PyObject *measure(PyObject *, PyObject *const *arguments, Py_ssize_t given) {
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
    Extent extent = {1, count, count};
    Statistics found;
    return tally(data, extent, code, &found) < 0 ? NULL : tuple_of(found);
}

/* -- tensors ------------------------------------------------------------------------------------ */

constexpr Py_ssize_t MAX_DIMENSIONS = 16;
constexpr Py_ssize_t MAX_CACHED = 65536; /* tensors whose statistics are cached */

enum { DTYPE, IS_CPU, LAYOUT, IS_NESTED, SHAPE, REQUIRES_GRAD, IS_NEG, STRIDE, DATA_PTR, STORAGE_OFFSET,
       UNTYPED_STORAGE, NBYTES, NAME_COUNT };
const char *const NAME_TEXTS[NAME_COUNT] = {
    "dtype", "is_cpu", "layout", "is_nested", "shape", "requires_grad", "is_neg", "stride", "data_ptr",
    "storage_offset", "untyped_storage", "nbytes",
};
PyObject *names[NAME_COUNT];

/* Return the truth of an attribute; -1 with an exception. */
int attribute_is_true(PyObject *object, int name) {
    PyObject *value = PyObject_GetAttr(object, names[name]);
    if (value == NULL) return -1;
    int result = PyObject_IsTrue(value);
    Py_DECREF(value);
    return result;
}

/* Call a method without arguments and return its result as a number; -1 with an exception. */
Py_ssize_t call_for_size(PyObject *object, int name) {
    PyObject *value = PyObject_CallMethodNoArgs(object, names[name]);
    if (value == NULL) return -1;
    Py_ssize_t result = PyLong_AsSsize_t(value);
    Py_DECREF(value);
    return result;
}

/* The place and layout of the elements of a tensor. */
struct Layout {
    Py_ssize_t sizes[MAX_DIMENSIONS], strides[MAX_DIMENSIONS], dimensions, numel;
};

/* Copy a tuple of up to MAX_DIMENSIONS numbers; return their count, or -1 if it holds anything else. */
Py_ssize_t read_sizes(PyObject *tuple, Py_ssize_t *sizes) {
    if (!PyTuple_Check(tuple) || PyTuple_GET_SIZE(tuple) > MAX_DIMENSIONS) return -1;
    Py_ssize_t count = PyTuple_GET_SIZE(tuple);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        if (!PyLong_CheckExact(item)) return -1;
        sizes[i] = PyLong_AsSsize_t(item);
    }
    return count;
}

/* Return true if the elements are in memory without gaps, in any order of dimensions. */
bool are_dense(Layout layout) {
    Py_ssize_t *sizes = layout.sizes, *strides = layout.strides, count = layout.dimensions, expected = 1;
    for (Py_ssize_t done = 0; done < count; done++) { /* take the dimensions from the smallest stride on */
        Py_ssize_t next = done;
        for (Py_ssize_t i = done; i < count; i++)
            if (strides[i] < strides[next] || (strides[i] == strides[next] && sizes[i] < sizes[next])) next = i;
        Py_ssize_t size = sizes[next], stride = strides[next];
        sizes[next] = sizes[done], strides[next] = strides[done];
        if (size == 1) continue;
        if (stride != expected) return false;
        expected *= size;
    }
    return true;
}

/* Read the layout of a tensor; return 1, 0 if it has no elements or cannot be measured, -1 with an exception. */
int read_layout(PyObject *tensor, PyObject *shape, Layout &layout) {
    layout.dimensions = read_sizes(shape, layout.sizes);
    if (layout.dimensions < 0) return 0;
    layout.numel = 1;
    for (Py_ssize_t i = 0; i < layout.dimensions; i++) layout.numel *= layout.sizes[i];
    if (!layout.numel) return 0;
    PyObject *stride = PyObject_CallMethodNoArgs(tensor, names[STRIDE]);
    if (stride == NULL) return -1;
    Py_ssize_t stride_count = read_sizes(stride, layout.strides);
    Py_DECREF(stride);
    return stride_count == layout.dimensions;
}

/* Return 1 if the memory of a tensor is allocated, 0 if it was freed, -1 with an exception. */
int is_allocated(PyObject *tensor) {
    PyObject *storage = PyObject_CallMethodNoArgs(tensor, names[UNTYPED_STORAGE]);
    if (storage == NULL) return -1;
    Py_ssize_t size = call_for_size(storage, NBYTES);
    Py_DECREF(storage);
    return size < 0 ? -1 : size > 0;
}

/* The arguments that tell ordinary tensors: labels and codes by dtype, torch.strided, and a test for transforms; and
 * those on checksums, which may be NULL: the function that computes them, and the texts of statistics by checksum. */
struct Known {
    PyObject *dtypes, *strided, *is_transformed, *checksum, *cached;
};

/* Return 1 for a strided tensor in host memory, outside of transforms; 0 if not, -1 with an exception. */
int is_ordinary(PyObject *tensor, const Known &known) {
    PyObject *layout = PyObject_GetAttr(tensor, names[LAYOUT]);
    if (layout == NULL) return -1;
    Py_DECREF(layout); /* layouts live as long as torch */
    int result = layout == known.strided ? attribute_is_true(tensor, IS_CPU) : 0;
    if (result <= 0) return result;
    result = attribute_is_true(tensor, IS_NESTED);
    if (result) return result < 0 ? -1 : 0;
    PyObject *transformed = PyObject_CallOneArg(known.is_transformed, tensor);
    if (transformed == NULL) return -1;
    Py_DECREF(transformed);
    if (transformed != Py_False) return 0;
    PyObject *negated = PyObject_CallMethodNoArgs(tensor, names[IS_NEG]);
    if (negated == NULL) return -1;
    Py_DECREF(negated);
    return negated == Py_False;
}

/* The latest measurements of one call of the extension. A tensor may occur in it several times, also as a view, and
 * nothing is computed in between. */
struct Measured {
    static constexpr int COUNT = 8;
    struct {
        const void *data;
        Extent extent;
        long code;
        Statistics statistics;
    } entries[COUNT];
    int count = 0;

    /* Measure elements, unless that is done; return 0, or -1 with an exception. */
    int take(const void *data, Extent extent, long code, Statistics &found) {
        for (int i = 0; i < count && i < COUNT; i++) {
            auto &entry = entries[i];
            if (entry.data == data && entry.code == code && entry.extent.rows == extent.rows &&
                entry.extent.stride == extent.stride && entry.extent.length == extent.length) {
                found = entry.statistics;
                return 0;
            }
        }
        if (tally(data, extent, code, &found) < 0) return -1;
        entries[count++ % COUNT] = {data, extent, code, found};
        return 0;
    }
};

/* Measure the elements of a tensor at `data`; return 1, 0 if there is no memory for a copy, -1 with an exception. */
int measure_layout(const void *data, const Layout &layout, long code, Measured &measured, Statistics &found) {
    const Py_ssize_t *sizes = layout.sizes, *strides = layout.strides;
    bool has_rows = layout.dimensions == 2 && strides[1] == 1 && strides[0] >= sizes[1] && sizes[1] % LANES == 0;
    if (has_rows) return measured.take(data, {sizes[0], strides[0], sizes[1]}, code, found) < 0 ? -1 : 1;
    Extent extent = {1, layout.numel, layout.numel};
    if (are_dense(layout)) return measured.take(data, extent, code, found) < 0 ? -1 : 1;
    if (code < 0 || code >= CODE_COUNT || layout.numel > PY_SSIZE_T_MAX / ITEM_SIZES[code]) return 0;
    char *copy = (char *)malloc((size_t)(layout.numel * ITEM_SIZES[code]));
    if (copy == NULL) return 0;
    gather(copy, (const char *)data, sizes, strides, layout.dimensions, ITEM_SIZES[code]);
    int result = tally(copy, extent, code, &found);
    free(copy);
    return result < 0 ? -1 : 1;
}

/* The values of a leaf except for its statistics: the name of the dtype (borrowed), the layout, and so on. */
struct Description {
    PyObject *label;
    Layout layout;
    bool requires_grad;
    const void *data;
    long code;
};

/* Describe an ordinary tensor; return 1, 0 for any other tensor, or -1 with an exception. */
int describe_into(PyObject *tensor, const Known &known, Description &found) {
    PyObject *dtype = PyObject_GetAttr(tensor, names[DTYPE]);
    if (dtype == NULL) return -1;
    PyObject *entry = PyDict_GetItemWithError(known.dtypes, dtype); /* borrowed: (label, code) */
    Py_DECREF(dtype);
    if (entry == NULL) return PyErr_Occurred() ? -1 : 0;
    int result = is_ordinary(tensor, known);
    if (result <= 0) return result;
    PyObject *shape = PyObject_GetAttr(tensor, names[SHAPE]);
    if (shape == NULL) return -1;
    result = read_layout(tensor, shape, found.layout);
    Py_DECREF(shape);
    if (result <= 0) return result;
    Py_ssize_t offset = call_for_size(tensor, STORAGE_OFFSET);
    if (offset < 0) return -1;
    if (offset && (result = is_allocated(tensor)) <= 0) return result; /* else freed memory is at address 0 */
    PyObject *address = PyObject_CallMethodNoArgs(tensor, names[DATA_PTR]);
    if (address == NULL) return -1;
    found.data = PyLong_AsVoidPtr(address);
    Py_DECREF(address);
    if (found.data == NULL) return PyErr_Occurred() ? -1 : 0;
    result = attribute_is_true(tensor, REQUIRES_GRAD);
    if (result < 0) return -1;
    found.requires_grad = result;
    found.label = PyTuple_GET_ITEM(entry, 0);
    found.code = PyLong_AsLong(PyTuple_GET_ITEM(entry, 1));
    return 1;
}

/* Measure a tensor; return 1, 0 if there is no memory for a copy, or -1 with an exception. */
int measure_described(const Description &found, Measured &measured, Statistics &four) {
    int result = measure_layout(found.data, found.layout, found.code, measured, four);
    if (result > 0 && !found.layout.dimensions && four.kind != BOOLEAN) /* a value given four times */
        four.mean = four.norm = four.kind == WHOLE ? (double)four.whole.max : four.max;
    return result;
}

/* Read the arguments that follow the tensor or the groups; return false with an exception. */
bool read_known(PyObject *const *arguments, Py_ssize_t given, Py_ssize_t expected, Known &known) {
    bool has_cache = given > 5 && arguments[5] != Py_None;
    if (given != expected || !PyDict_Check(arguments[1]) || (has_cache && !PyDict_Check(arguments[5]))) {
        PyErr_SetString(PyExc_TypeError, "expected a tensor or groups, a dict, a layout, functions and a dict");
        return false;
    }
    PyObject *checksum = given > 4 && arguments[4] != Py_None ? arguments[4] : NULL;
    known = {arguments[1], arguments[2], arguments[3], checksum, has_cache ? arguments[5] : NULL};
    return true;
}

PyObject *describe(PyObject *, PyObject *const *arguments, Py_ssize_t given) {
    Known known;
    Description found;
    Measured measured;
    Statistics statistics;
    if (!read_known(arguments, given, 4, known)) return NULL;
    int result = describe_into(arguments[0], known, found);
    if (result > 0) result = measure_described(found, measured, statistics);
    if (result < 0) return NULL;
    if (!result) Py_RETURN_NONE;
    PyObject *sizes = PyList_New(found.layout.dimensions);
    for (Py_ssize_t i = 0; sizes && i < found.layout.dimensions; i++)
        PyList_SET_ITEM(sizes, i, PyLong_FromSsize_t(found.layout.sizes[i]));
    bool is_single_number = !found.layout.dimensions && statistics.kind == WHOLE;
    long long value = statistics.whole.max;
    PyObject *four = is_single_number ? Py_BuildValue("(LLLL)", value, value, value, value) : tuple_of(statistics);
    PyObject *tuple =
        sizes && four ? PyTuple_Pack(4, found.label, sizes, found.requires_grad ? Py_True : Py_False, four) : NULL;
    Py_XDECREF(sizes);
    Py_XDECREF(four);
    return tuple;
}

/* -- JSON --------------------------------------------------------------------------------------- */

void add_whole(std::string &out, long long value) {
    char digits[24];
    out.append(digits, (size_t)(std::to_chars(digits, digits + sizeof digits, value).ptr - digits));
}

#ifdef __cpp_lib_to_chars
/* Add a finite number as repr() writes it: the fewest digits that read back as the same number. */
void add_finite(std::string &out, double value) {
    char raw[40], digits[24];
    char *end = std::to_chars(raw, raw + sizeof raw, value, std::chars_format::scientific).ptr, *at = raw;
    if (*at == '-') {
        out += '-';
        at++;
    }
    int count = 0, exponent = 0;
    for (; *at != 'e'; at++)
        if (*at != '.') digits[count++] = *at;
    std::from_chars(at[1] == '+' ? at + 2 : at + 1, end, exponent);
    int point = exponent + 1; /* where the decimal point is among the digits */
    if (point > 16 || point <= -4) {
        out += digits[0];
        if (count > 1) {
            out += '.';
            out.append(digits + 1, (size_t)count - 1);
        }
        out += exponent < 0 ? "e-" : "e+";
        if (exponent > -10 && exponent < 10) out += '0';
        add_whole(out, exponent < 0 ? -exponent : exponent);
    } else if (point <= 0) {
        out += "0.";
        out.append((size_t)-point, '0');
        out.append(digits, (size_t)count);
    } else if (point >= count) {
        out.append(digits, (size_t)count);
        out.append((size_t)(point - count), '0');
        out += ".0";
    } else {
        out.append(digits, (size_t)point);
        out += '.';
        out.append(digits + point, (size_t)(count - point));
    }
}
#else
void add_finite(std::string &out, double value) {
    char *digits = PyOS_double_to_string(value, 'r', 0, Py_DTSF_ADD_DOT_0, NULL);
    if (digits == NULL) throw std::bad_alloc();
    out += digits;
    PyMem_Free(digits);
}
#endif

/* Add a number as Python's json writes it. */
void add_number(std::string &out, double value) {
    if (std::isfinite(value))
        add_finite(out, value);
    else
        out += std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
}

/* Add the four statistics, each with its name, as the fields of a leaf. */
void add_statistics(std::string &out, const Statistics &four, bool is_single) {
    if (four.kind == BOOLEAN) {
        out += four.max ? ", \"Max\": true" : ", \"Max\": false";
        out += four.min ? ", \"Min\": true" : ", \"Min\": false";
        out += ", \"Mean\": null, \"Norm\": null";
        return;
    }
    bool is_whole = four.kind == WHOLE;
    out += ", \"Max\": ";
    is_whole ? add_whole(out, four.whole.max) : add_number(out, four.max);
    out += ", \"Min\": ";
    is_whole ? add_whole(out, four.whole.min) : add_number(out, four.min);
    out += ", \"Mean\": ";
    is_whole && is_single ? add_whole(out, four.whole.max) : add_number(out, four.mean);
    out += ", \"Norm\": ";
    is_whole && is_single ? add_whole(out, four.whole.max) : add_number(out, four.norm);
}

/* Return true if the elements are in memory without gaps, in row-major order. */
bool is_row_major(const Layout &layout) {
    Py_ssize_t expected = 1;
    for (Py_ssize_t i = layout.dimensions; i-- > 0; expected *= layout.sizes[i])
        if (layout.sizes[i] != 1 && layout.strides[i] != expected) return false;
    return true;
}

/* Return the checksum of a tensor's bytes in row-major order; NULL with an exception. */
PyObject *compute_checksum(const Description &found, PyObject *checksum) {
    const Layout &layout = found.layout;
    const void *data = found.data;
    Py_ssize_t item_size = ITEM_SIZES[found.code];
    char *copy = NULL;
    if (!is_row_major(layout)) {
        if (layout.numel <= PY_SSIZE_T_MAX / item_size) copy = (char *)malloc((size_t)(layout.numel * item_size));
        if (copy == NULL) return PyErr_NoMemory();
        gather(copy, (const char *)data, layout.sizes, layout.strides, layout.dimensions, item_size);
        data = copy;
    }
    PyObject *bytes = PyMemoryView_FromMemory((char *)data, layout.numel * item_size, PyBUF_READ);
    PyObject *digest = bytes == NULL ? NULL : PyObject_CallOneArg(checksum, bytes);
    Py_XDECREF(bytes);
    free(copy);
    return digest;
}

/* Return the text of a tensor's statistics, which is cached by checksum, dtype and number of elements; NULL with an
 * exception, or without one if there is no memory for a copy. */
PyObject *read_cached_statistics(PyObject *digest, const Description &found, const Known &known, Measured &measured) {
    Py_ssize_t numel = found.layout.dimensions ? found.layout.numel : 0; /* the mean of a 0-d integer is an integer */
    PyObject *key = Py_BuildValue("(OOn)", digest, found.label, numel);
    if (key == NULL) return NULL;
    PyObject *text = Py_XNewRef(PyDict_GetItemWithError(known.cached, key));
    Statistics four;
    if (text == NULL && !PyErr_Occurred() && measure_described(found, measured, four) > 0) {
        std::string fields;
        add_statistics(fields, four, !found.layout.dimensions);
        text = PyUnicode_FromStringAndSize(fields.data(), (Py_ssize_t)fields.size());
        if (PyDict_GET_SIZE(known.cached) >= MAX_CACHED) PyDict_Clear(known.cached);
        if (text != NULL && PyDict_SetItem(known.cached, key, text) < 0) Py_CLEAR(text);
    }
    Py_DECREF(key);
    return text;
}

/* Add the statistics of a tensor; return 1, 0 if there is no memory for a copy, or -1 with an exception. */
int add_measured(std::string &out, PyObject *digest, const Description &found, const Known &known, Measured &measured) {
    if (digest == NULL || known.cached == NULL) {
        Statistics four;
        int result = measure_described(found, measured, four);
        if (result > 0) add_statistics(out, four, !found.layout.dimensions);
        return result;
    }
    PyObject *text = read_cached_statistics(digest, found, known, measured);
    if (text == NULL) return PyErr_Occurred() ? -1 : 0;
    out.append((const char *)PyUnicode_1BYTE_DATA(text), (size_t)PyUnicode_GET_LENGTH(text));
    Py_DECREF(text);
    return 1;
}

/* Add the leaf of an ordinary tensor; return 1, 0 for any other tensor, or -1 with an exception. */
int add_tensor(std::string &out, PyObject *tensor, const Known &known, Measured &measured) {
    Description found;
    int result = describe_into(tensor, known, found);
    if (result <= 0) return result;
    const char *label = PyUnicode_AsUTF8(found.label);
    if (label == NULL) return -1;
    PyObject *digest = known.checksum == NULL ? NULL : compute_checksum(found, known.checksum);
    if (known.checksum != NULL && digest == NULL) return -1;
    out += label;
    out += '[';
    for (Py_ssize_t i = 0; i < found.layout.dimensions; i++) {
        if (i) out += ", ";
        add_whole(out, found.layout.sizes[i]);
    }
    out += ']';
    result = add_measured(out, digest, found, known, measured);
    out += found.requires_grad ? ", \"requires_grad\": true" : ", \"requires_grad\": false";
    const char *digits = digest == NULL ? NULL : PyUnicode_AsUTF8(digest);
    if (digest != NULL && digits == NULL) result = -1;
    if (result > 0 && digits != NULL) out.append(", \"md5\": \"").append(digits).append("\"");
    out += '}';
    Py_XDECREF(digest);
    return result;
}

PyObject *encode(PyObject *, PyObject *const *arguments, Py_ssize_t given) {
    Known known;
    Measured measured;
    if (!read_known(arguments, given, 6, known)) return NULL;
    try {
        std::string out;
        int result = add_tensor(out, arguments[0], known, measured);
        if (result < 0) return NULL;
        if (!result) Py_RETURN_NONE;
        return PyUnicode_FromStringAndSize(out.data(), (Py_ssize_t)out.size());
    } catch (const std::bad_alloc &) {
        return PyErr_NoMemory();
    }
}

#include "_trees.h"

PyMethodDef methods[] = {
    {"measure", (PyCFunction)(void (*)(void))measure, METH_FASTCALL,
     "measure(address, count, code) -> (max, min, mean, norm)"},
    {"describe", (PyCFunction)(void (*)(void))describe, METH_FASTCALL,
     "describe(tensor, dtypes, strided, is_transformed) -> (dtype name, shape, requires_grad, statistics) or None"},
    {"encode", (PyCFunction)(void (*)(void))encode, METH_FASTCALL,
     "encode(tensor, dtypes, strided, is_transformed, checksum, cached) -> the leaf as JSON, or None"},
    {"encode_all", (PyCFunction)(void (*)(void))encode_all, METH_FASTCALL,
     "encode_all(groups, dtypes, strided, is_transformed, checksum, cached, plain, by_key) -> the JSON of each group, "
     "or None"},
    {"encode_each", (PyCFunction)(void (*)(void))encode_each, METH_FASTCALL,
     "encode_each(values, dtypes, strided, is_transformed, checksum, cached, plain) -> the JSON of each tensor, or None "
     "for it"},
    {NULL, NULL, 0, NULL},
};

struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_tally", "Statistics and leaves of tensors.", -1, methods, NULL, NULL, NULL, NULL,
};

}  // namespace

PyMODINIT_FUNC PyInit__tally(void) {
    for (int i = 0; i < NAME_COUNT; i++)
        if (names[i] == NULL && (names[i] = PyUnicode_InternFromString(NAME_TEXTS[i])) == NULL) return NULL;
    return PyModule_Create(&definition);
}
